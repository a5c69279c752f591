"""Both verification rules give the target's own distribution, with a drafter far from it.

Case F8: a vocabulary of 5 and many draws, for the first token and for the first two together.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare

from surefoot.decoding import (
    Chooser,
    Draft,
    Drafter,
    Judgement,
    Round,
    Rule,
    RuleName,
    Sampling,
    Sequence,
    choose,
    distribution_of,
    drawn,
    memory_for,
)
from surefoot.decoding.noise import gumbel, stream, uniform
from surefoot.decoding.rejection import rejection
from surefoot.drafting.draft_model import DraftModel
from tests.support.fixed import FixedTarget
from tests.support.planned_drafters import FunctionDrafter

DRAWS = 5_000
LEAST = 1e-4
"""A smaller p-value fails a test. Seeds are fixed, so a test that passes goes on passing."""

TARGET = np.array(
    [[0, 2, 1, -1, 0.5], [1, 0, 2, 0.3, -2], [0, 0, 0, 3, 0], [2, -1, 0, 1, 1], [0, 1, 0, 1, 2]],
    np.float32,
)
DRAFT = np.array(
    [
        [1.8, 0.8, 1.2, 1, 0.5],
        [-2, 2, 0, 1, 1],
        [1, 1, 1, 0, 1],
        [0, 2, 2, -1, 0],
        [2, 0, 1, 0, -1],
    ],
    np.float32,
)
SHAPES: dict[str, dict[str, Any]] = {
    "cold": {"temperature": 0.5},
    "warm": {"temperature": 1.0},
    "hot": {"temperature": 1.5},
    "top-k 3": {"temperature": 1.0, "top_k": 3},
    "top-p 0.8": {"temperature": 1.0, "top_p": 0.8},
    "min-p 0.1": {"temperature": 1.0, "min_p": 0.1},
}
WHOLE: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


class SlottedTarget(FixedTarget):
    """A draft model for one sequence."""

    slots, context_length, batch_size = 1, 4096, 512


def drafter_of(kind: str) -> Drafter:
    if kind == "model":
        return DraftModel(SlottedTarget(DRAFT), n_max=3)
    return FunctionDrafter(lambda sequence, most: [(sequence.committed[-1] + 1) % 5] * most)


def draws(
    sampling: dict[str, Any],
    rule: RuleName,
    drafter: Drafter,
    seeds: Iterable[int],
    judge: Rule | None = None,
) -> tuple[NDArray[np.int64], int, int]:
    """The first two tokens after token 0 for many seeds; tokens drafted and accepted, too."""
    target = FixedTarget(TARGET)
    found, drafted, accepted = [], 0, 0
    memory = memory_for(target, 0, 1)
    play = Round(target, drafter, judge)
    for seed in seeds:
        memory.clear()
        sequence = Sequence([0], memory, Sampling(seed=seed, **{**WHOLE, **sampling}), rule=rule)
        while sequence.generated < 2:
            play.play([sequence])
        drafter.forget(sequence)
        found.append(sequence.committed[1:3])
        drafted += sequence.counts.drafted_by_position[0]
        accepted += (sequence.counts.accepted_by_position or [0])[0]
    return np.array(found), drafted, accepted


def expected(sampling: dict[str, Any]) -> NDArray[np.float64]:
    """The probabilities of the first two tokens together, shape (5, 5)."""
    shape = Sampling(**{**WHOLE, **sampling})
    rows = np.zeros((5, 5))
    for token in range(5):
        tokens, shares = Chooser(shape).distribution(TARGET[token])
        rows[token, tokens] = shares
    joint: NDArray[np.float64] = rows[0][:, None] * rows
    return joint


def p_value(found: NDArray[np.int64], joint: NDArray[np.float64]) -> float:
    """That of the joint counts; tokens that have no probability must not occur."""
    counts = np.zeros((5, 5))
    np.add.at(counts, (found[:, 0], found[:, 1]), 1)
    assert counts[joint == 0].sum() == 0
    wanted = joint * len(found)
    often = wanted >= 5  # the test holds for such cells; the rare ones are taken together
    seen = np.append(counts[often], counts[~often].sum())
    due = np.append(wanted[often], wanted[~often].sum())
    return float(chisquare(seen[due > 0], due[due > 0]).pvalue)


@pytest.mark.parametrize("kind", ["model", "certain"])
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_two_tokens_have_the_targets_distribution(
    shape: str, rule: RuleName, kind: str
) -> None:
    found, drafted, accepted = draws(SHAPES[shape], rule, drafter_of(kind), range(DRAWS))
    assert 0 < accepted < drafted
    assert p_value(found, expected(SHAPES[shape])) > LEAST


def test_rejection_accepts_as_often_as_it_can_and_coupling_at_least_so_much() -> None:
    shape = SHAPES["warm"]
    p = np.exp(TARGET[0]) / np.exp(TARGET[0]).sum()
    q = np.exp(DRAFT[0]) / np.exp(DRAFT[0]).sum()
    distance = float(np.abs(p - q).sum() / 2)
    deviation = 4 * np.sqrt(0.25 / DRAWS)
    _, drafted, accepted = draws(shape, "rejection", drafter_of("model"), range(DRAWS))
    assert accepted / drafted == pytest.approx(1 - distance, abs=deviation + 0.05)
    _, drafted, accepted = draws(shape, "coupled", drafter_of("model"), range(DRAWS))
    assert accepted / drafted > (1 - distance) / (1 + distance) - deviation


def test_a_confidence_limit_does_not_change_the_distribution() -> None:
    drafter = DraftModel(SlottedTarget(DRAFT), n_max=3, p_min=0.3)
    found, drafted, _ = draws(SHAPES["hot"], "rejection", drafter, range(DRAWS))
    assert drafted > 0
    assert p_value(found, expected(SHAPES["hot"])) > LEAST


def against_the_most_likely(
    sequence: Sequence, draft: Draft, offset: int, logits: NDArray[np.float32], tolerance: float
) -> Judgement:
    """A wrong rule: it accepts a draft token that is the target's most likely one."""
    right = offset < len(draft.tokens) and draft.tokens[offset] == int(logits.argmax())
    choice = sequence.choose(logits, tolerance)
    return Judgement(choice._replace(token=draft.tokens[offset]) if right else choice, right)


def with_another_source(
    sequence: Sequence, draft: Draft, offset: int, logits: NDArray[np.float32], tolerance: float
) -> Judgement:
    """A wrong rule: the ratio uses a draft distribution at another temperature."""
    cold = Sampling(temperature=0.3, **WHOLE)
    wrong = [distribution_of(DRAFT[0], cold, 0) for _ in draft.tokens]
    return rejection(sequence, draft._replace(distributions=wrong), offset, logits, tolerance)


@pytest.mark.parametrize("wrong", [against_the_most_likely, with_another_source])
def test_a_rule_that_is_wrong_is_found_out(wrong: Rule) -> None:
    found, _, _ = draws(SHAPES["warm"], "rejection", drafter_of("model"), range(DRAWS), wrong)
    assert p_value(found, expected(SHAPES["warm"])) < LEAST


def test_draft_acceptance_and_residual_have_noise_of_their_own() -> None:
    """Case F9: drafter and verifier share a seed, not their draws."""
    ids = np.arange(2000)
    noises = [uniform(seed, 7, ids) for seed in (3, *(stream(3, n) for n in (1, 2, 3)))]
    for i, one in enumerate(noises):
        for other in noises[:i]:
            assert one[0] != other[0]
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.1


def test_the_draft_models_draws_are_from_what_it_hands_over() -> None:
    sampling = Sampling(seed=1, temperature=1.0, **WHOLE)
    source = distribution_of(DRAFT[0], sampling, 5)
    tokens = [drawn(source, seed, 5) for seed in range(4000)]
    counts = np.bincount(tokens, minlength=5)
    shares = np.zeros(5)
    shares[source.tokens] = source.probabilities
    assert chisquare(counts, shares * 4000).pvalue > LEAST


def test_a_seed_gives_the_same_text_twice() -> None:
    one, _, _ = draws(SHAPES["hot"], "rejection", drafter_of("model"), range(200))
    other, _, _ = draws(SHAPES["hot"], "rejection", drafter_of("model"), range(200))
    assert np.array_equal(one, other)


def test_at_temperature_zero_both_rules_take_the_most_likely() -> None:
    cold = {"temperature": 0.0}
    coupled, _, _ = draws(cold, "coupled", drafter_of("model"), range(5))
    rejected, _, _ = draws(cold, "rejection", drafter_of("model"), range(5))
    assert np.array_equal(coupled, rejected)
    assert set(coupled[:, 0].tolist()) == {int(TARGET[0].argmax())}
    assert choose(TARGET[0], Sampling(temperature=0.0), 1, 0.0).token == int(TARGET[0].argmax())
    assert gumbel(0, 0, np.array([0])).shape == (1,)
