"""Sampling is exact: speculation leaves the target's distribution alone (cases F8 and F9).

Draws come from many seeds and many positions, all fixed, so each test either always passes or never
does. A vocabulary of 5, fixed logits after each token.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Series
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from surefoot.decoding import Drafter, Ending, Sampling, Sequence, choose
from tests.support.fixed import FixedTarget
from tests.support.planned_drafters import CoupledDrafter, FunctionDrafter, RandomDrafter
from tests.support.play import begin, generated, play_out

Probabilities = NDArray[np.float64]

SMALLEST_P = 1e-4
VOCABULARY = 5
SEED = 20_261_130
"""Everything below follows from it."""

TABLE = np.random.default_rng(SEED).normal(0, 1.2, (VOCABULARY, VOCABULARY)).astype(np.float32)
DRAFT_TABLE = TABLE + np.random.default_rng(SEED + 1).normal(0, 0.7, TABLE.shape).astype(np.float32)

DRAFTERS: dict[str, Callable[[], Drafter | None]] = {
    "off": lambda: None,
    "right by chance": lambda: RandomDrafter(SEED, VOCABULARY, full=True),
    "sharing the seed": lambda: CoupledDrafter(DRAFT_TABLE),
    "with a seed of its own": lambda: CoupledDrafter(DRAFT_TABLE, seed=1),
    "most likely": lambda: FunctionDrafter(most_likely),
}

TRUNCATIONS = {
    "whole": Sampling(top_k=0, top_p=1.0, min_p=0.0),
    "top-k 3": Sampling(top_k=3, top_p=1.0, min_p=0.0),
    "top-p 0.8": Sampling(top_k=0, top_p=0.8, min_p=0.0),
    "both and min-p": Sampling(top_k=4, top_p=0.9, min_p=0.1),
}


def shaped(truncation: str, temperature: float, seed: int = SEED) -> Sampling:
    """Sampling with one of the truncations."""
    return replace(TRUNCATIONS[truncation], temperature=temperature, seed=seed)


def most_likely(sequence: Sequence, most: int) -> list[int]:
    """The target's own favourite, which greedy drafters propose whatever the temperature."""
    last = sequence.committed[-1]
    tokens = []
    for _ in range(most):
        last = int(TABLE[last].argmax())
        tokens.append(last)
    return tokens


def distribution(row: NDArray[np.float32], sampling: Sampling) -> Probabilities:
    """What to draw from: top-k, top-p, min-p, temperature, written plainly."""
    order = np.argsort(-row, kind="stable")[: sampling.top_k or len(row)]
    shares = np.exp(row[order].astype(np.float64))
    shares /= shares.sum()
    head = order[np.cumsum(shares) - shares < sampling.top_p]
    if sampling.min_p:
        head = head[row[head] >= row.max() + np.log(sampling.min_p)]
    p: Probabilities = np.zeros(len(row))
    p[head] = np.exp(row[head].astype(np.float64) / sampling.temperature)
    p /= p.sum()
    return p


def p_value(counts: Iterable[int], expected: Iterable[float]) -> float:
    """Chi-square; what has probability 0 must not have happened at all."""
    observed, shares = np.array(list(counts)), np.array(list(expected))
    assert observed[shares == 0].sum() == 0
    possible = shares > 0
    total = observed.sum()
    return float(stats.chisquare(observed[possible], shares[possible] * total).pvalue)


def texts(
    drafter: Drafter | None, sampling: Callable[[int], Sampling], count: int, length: int
) -> list[list[int]]:
    """The texts of `count` seeds, each after token 0."""
    target = FixedTarget(TABLE)
    found = []
    for seed in range(count):
        sequence = begin(
            target,
            [0],
            sampling=sampling(SEED + seed),
            ending=Ending(max_tokens=length),
            max_draft=4,
        )
        play_out(target, [sequence], drafter, most_rounds=length)
        sequence.memory.clear()
        found.append(generated(sequence))
    return found


def joint_counts(texts: Series[Series[int]]) -> NDArray[np.int64]:
    """How often each pair stood at the first two positions."""
    counts = np.zeros((VOCABULARY, VOCABULARY), dtype=np.int64)
    for first, second, *_ in texts:
        counts[first, second] += 1
    return counts


@pytest.mark.parametrize(
    ("name", "truncation"),
    [
        *((name, "whole") for name in DRAFTERS),
        *(("sharing the seed", truncation) for truncation in TRUNCATIONS if truncation != "whole"),
    ],
)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_text_with_any_drafter_follows_the_targets_distribution(
    name: str, truncation: str, temperature: float
) -> None:
    """Positions 1, and 1 and 2 jointly, over seeds."""

    def sampling(seed: int) -> Sampling:
        return shaped(truncation, temperature, seed)

    counts = joint_counts(texts(DRAFTERS[name](), sampling, count=2000, length=3))
    conditional = np.array([distribution(row, sampling(0)) for row in TABLE])
    first = conditional[0]
    assert p_value(counts.sum(axis=1), first) > SMALLEST_P
    joint = first[:, np.newaxis] * conditional
    # Cells too rare for chi-square go together.
    rare = joint * counts.sum() < 5
    observed = [*counts[~rare], counts[rare].sum()]
    expected = [*joint[~rare], joint[rare].sum()]
    assert counts[joint == 0].sum() == 0
    assert p_value(observed, expected) > SMALLEST_P


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_one_long_text_follows_the_targets_distribution(name: str, temperature: float) -> None:
    """Transitions over the positions of one seed: the noise of neighbours is independent."""
    sampling = shaped("whole", temperature)
    (text,) = texts(DRAFTERS[name](), lambda _: sampling, count=1, length=4000)
    counts = np.zeros((VOCABULARY, VOCABULARY), dtype=np.int64)
    np.add.at(counts, (text[:-1], text[1:]), 1)
    for row, observed in zip(TABLE, counts, strict=True):
        assert p_value(observed, distribution(row, sampling)) > SMALLEST_P


@pytest.mark.parametrize("truncation", TRUNCATIONS)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.5])
def test_choices_follow_the_distribution_closely(truncation: str, temperature: float) -> None:
    """The rule of choice alone, with more draws: seeds and positions mixed."""
    counts = np.zeros(VOCABULARY, dtype=np.int64)
    for seed in range(20):
        sampling = shaped(truncation, temperature, SEED + seed)
        for position in range(500):
            counts[choose(TABLE[1], sampling, position, 0.0).token] += 1
    assert p_value(counts, distribution(TABLE[1], sampling)) > SMALLEST_P


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_fixed_seed_gives_the_same_text_with_any_drafter(name: str) -> None:
    """Case F9: twice, and the same as without one."""

    def sampling(seed: int) -> Sampling:
        return Sampling(seed=seed, temperature=1.0)

    plain = texts(None, sampling, count=20, length=50)
    assert texts(DRAFTERS[name](), sampling, count=20, length=50) == plain
    assert texts(DRAFTERS[name](), sampling, count=20, length=50) == plain


def test_accepting_whatever_is_most_likely_would_be_noticed() -> None:
    """Case F8's mistake, made on purpose: these draws are enough to see it."""
    favourite = int(TABLE[0].argmax())
    drafts = np.random.default_rng(SEED).integers(VOCABULARY, size=3000)
    counts = np.zeros(VOCABULARY, dtype=np.int64)
    for seed, draft in enumerate(drafts):
        drawn = choose(TABLE[0], shaped("whole", 1.0, seed), 1, 0.0).token
        counts[favourite if draft == favourite else drawn] += 1
    assert p_value(counts, distribution(TABLE[0], shaped("whole", 1.0))) < SMALLEST_P


@pytest.mark.parametrize("position", range(VOCABULARY))
def test_sharing_the_noise_makes_drafter_and_target_agree_as_promised(position: int) -> None:
    """At least (1 - TV) / (1 + TV) of the time, and more than independent draws would."""
    sampling = shaped("whole", 1.0)
    count = 4000
    agreed = sum(
        choose(TABLE[position], sampling, at, 0.0).token
        == choose(DRAFT_TABLE[position], sampling, at, 0.0).token
        for at in range(count)
    )
    p = distribution(TABLE[position], sampling)
    q = distribution(DRAFT_TABLE[position], sampling)
    distance = np.abs(p - q).sum() / 2
    spread = 3 * (0.25 / count) ** 0.5
    assert agreed / count > (1 - distance) / (1 + distance) - spread
    assert agreed / count > p @ q + spread
