"""Both verification rules give the target's own distribution, with a drafter far from it.

Case F8: a vocabulary of 5 and many draws, for the first two tokens together and for each token
after the one in front of it.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import (
    Draft,
    Drafter,
    Judgement,
    Rule,
    RuleName,
    Sampling,
    ScoreWish,
    Sequence,
    distribution_of,
    drawn,
    raw_scores,
)
from surefoot.decoding.noise import stream, uniform
from surefoot.decoding.rejection import rejection
from surefoot.drafting.draft_model import DraftModel
from tests.support.laws import (
    DRAFT,
    LEAST,
    SHAPES,
    TARGET,
    WHOLE,
    SlottedTarget,
    law,
    p_value,
    p_values,
    texts,
)
from tests.support.planned_drafters import FunctionDrafter

BOTH: tuple[RuleName, ...] = ("coupled", "rejection")


def model(n_max: int = 3) -> DraftModel:
    return DraftModel(SlottedTarget(DRAFT), n_max=n_max)


def certain() -> Drafter:
    """Without distributions, as the n-gram kinds are."""
    return FunctionDrafter(lambda sequence, most: [(sequence.committed[-1] + 1) % 5] * most)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("rule", "drafter", "count"),
    [
        ("rejection", model, 1500),
        ("rejection", certain, 700),
        ("coupled", model, 500),
        ("coupled", certain, 500),
    ],
)
def test_texts_have_the_targets_law(
    shape: str, rule: RuleName, drafter: Callable[[], Drafter], count: int
) -> None:
    found = texts(drafter(), SHAPES[shape], rule=rule, count=count)
    assert 0 < found.accepted < found.drafted
    assert min(p_values(found.tokens, law(SHAPES[shape]))) > LEAST


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_however_deep_drafts_are_texts_have_the_targets_law(depth: int) -> None:
    found = texts(model(depth), SHAPES["warm"], count=800, length=8)
    longest = max(len(sequence.counts.drafted_by_position) for sequence in found.sequences)
    assert longest == depth
    assert min(p_values(found.tokens, law(SHAPES["warm"]))) > LEAST


def test_rejection_accepts_as_often_as_it_can_and_coupling_at_least_so_much() -> None:
    p = np.exp(TARGET[0]) / np.exp(TARGET[0]).sum()
    q = np.exp(DRAFT[0]) / np.exp(DRAFT[0]).sum()
    distance = float(np.abs(p - q).sum() / 2)
    draws = 4000
    deviation = 4 * np.sqrt(0.25 / draws)
    rates = {}
    for rule in BOTH:
        # Two tokens are the least for which there is a draft: of one token, after token 0.
        found = texts(model(1), SHAPES["warm"], rule=rule, count=draws, length=2)
        firsts = [sequence.counts.accepted_by_position[:1] == [1] for sequence in found.sequences]
        assert found.drafted == draws
        rates[rule] = sum(firsts) / draws
    print(f"distance {distance:.3f}, {rates}")
    assert rates["rejection"] == pytest.approx(1 - distance, abs=deviation)
    assert rates["coupled"] > (1 - distance) / (1 + distance) - deviation


# Rules that are wrong


def against_the_most_likely(
    sequence: Sequence, draft: Draft, offset: int, logits: NDArray[np.float32], tolerance: float
) -> Judgement:
    """It accepts a draft token that is the target's most likely one."""
    right = offset < len(draft.tokens) and draft.tokens[offset] == int(logits.argmax())
    choice = sequence.choose(logits, tolerance)
    return Judgement(choice._replace(token=draft.tokens[offset]) if right else choice, right)


def with_another_source(
    sequence: Sequence, draft: Draft, offset: int, logits: NDArray[np.float32], tolerance: float
) -> Judgement:
    """It judges by draft distributions at another temperature."""
    colder = [
        source._replace(probabilities=source.probabilities**2 / (source.probabilities**2).sum())
        for source in draft.distributions
    ]
    return rejection(sequence, draft._replace(distributions=colder), offset, logits, tolerance)


def with_a_fresh_draw(
    sequence: Sequence, draft: Draft, offset: int, logits: NDArray[np.float32], tolerance: float
) -> Judgement:
    """After a rejection it draws from p in the place of what p has more than q."""
    judged = rejection(sequence, draft, offset, logits, tolerance)
    if judged.accepted:
        return judged
    return rejection(sequence, Draft(), 0, logits, tolerance)


@pytest.mark.parametrize("wrong", [against_the_most_likely, with_another_source, with_a_fresh_draw])
def test_a_rule_that_is_wrong_is_found_out(wrong: Rule) -> None:
    found = texts(model(), SHAPES["warm"], judge=wrong, count=1500)
    assert min(p_values(found.tokens, law(SHAPES["warm"]))) < LEAST


# Noise


def test_draft_acceptance_and_residual_have_noise_of_their_own() -> None:
    """Case F9: drafter and verifier share a seed, not their draws."""
    ids = np.arange(2000)
    noises = [uniform(seed, 7, ids) for seed in (3, *(stream(3, n) for n in (1, 2, 3)))]
    for i, one in enumerate(noises):
        for other in noises[:i]:
            assert one[0] != other[0]
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.1


def test_a_drafters_draws_are_independent_of_the_targets() -> None:
    """Case F9: a drafter that is the target itself would draw alike if it shared the noise."""
    found = texts(FunctionDrafter(lambda *_: ()), SHAPES["warm"], count=4000, length=1)
    source = distribution_of(TARGET[0], Sampling(**SHAPES["warm"]), 1)
    pairs = np.zeros((5, 5))
    for seed, (token,) in enumerate(found.tokens):
        pairs[drawn(source, seed, 1), token] += 1
    shares = law(SHAPES["warm"])[0]
    assert p_value(pairs, np.outer(shares, shares) * pairs.sum()) > LEAST


def test_a_seed_gives_the_same_text_twice_and_another_seed_another() -> None:
    one, other = (texts(model(), SHAPES["hot"], count=100, length=12).tokens for _ in range(2))
    assert np.array_equal(one, other)
    assert len({tuple(text) for text in one.tolist()}) > 95


# Temperature 0, and scores


def test_at_temperature_zero_both_rules_take_the_most_likely() -> None:
    cold = {**WHOLE, "temperature": 0.0}
    likely, last = [], 0
    for _ in range(6):
        last = int(TARGET[last].argmax())
        likely.append(last)
    for rule in BOTH:
        found = texts(model(), cold, rule=rule, count=3)
        assert found.tokens.tolist() == [likely] * 3
        assert found.drafted > 0


@pytest.mark.parametrize("post_sampling", [False, True])
def test_every_token_has_its_scores_accepted_or_not(post_sampling: bool) -> None:
    found = texts(model(), SHAPES["top-k 3"], count=20, length=8, wish=ScoreWish(2, post_sampling))
    assert 0 < found.accepted < found.drafted
    rows = law(SHAPES["top-k 3"])
    for sequence in found.sequences:
        assert len(sequence.scores) == sequence.generated
        before = [0, *sequence.committed[1:-1]]
        for last, token, scores in zip(
            before, sequence.committed[1:], sequence.scores, strict=True
        ):
            if post_sampling:
                assert scores.logprob == pytest.approx(np.log(rows[last, token]))
            else:
                assert scores == raw_scores(TARGET[last], token, 2)
