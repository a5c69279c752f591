"""Drafters that run a model draw for rejection, and hand over what they drew from (case F11)."""

from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import (
    Distribution,
    Drafter,
    Ending,
    Feed,
    RuleName,
    Sampling,
    Sequence,
    choose,
    distribution_of,
    drawn,
)
from surefoot.drafting.draft_model import FAILURES_ALLOWED, DraftModel
from surefoot.drafting.mtp import MtpDrafter
from tests.drafting.texts import propose, sequence_of
from tests.support.kinds import simulated
from tests.support.laws import DRAFT, LEAST, SHAPES, SlottedTarget, p_value
from tests.support.oracle import Oracle
from tests.support.toy_head import ToyHead, WatchedRuntime

VOCABULARY = 24
PROMPT = [1, 2, 3, 4, 5]
LIKE: dict[str, Any] = {"vocabulary_size": VOCABULARY, "end_rate": 0.0}
HOT = Sampling(seed=5, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
SEEDS = [replace(HOT, seed=seed) for seed in range(8)]


def sequence_by(rule: RuleName, sampling: Sampling = HOT, prompt: Series[int] = PROMPT) -> Sequence:
    sequence = sequence_of(prompt)
    sequence.sampling, sequence.rule = sampling, rule
    return sequence


def simple(fail_decode: set[int] | None = None) -> Drafter:
    return DraftModel(simulated("hybrid", **LIKE, fail_decode=fail_decode or set()), n_max=3)


def mtp(fail_decode: set[int] | None = None) -> Drafter:
    runtime = WatchedRuntime(simulated("hybrid", **LIKE))
    failing = fail_decode or set()
    head = ToyHead(runtime, Oracle("hybrid", **LIKE), fails=lambda number: number in failing)
    drafter = MtpDrafter(head, n_max=3)
    runtime.decode([Feed(0, PROMPT[:-1], 0, 1)])  # outputs, so that rows are only kept
    return drafter


@pytest.fixture(params=[simple, mtp], ids=["draft-simple", "draft-mtp"])
def make(request: pytest.FixtureRequest) -> Callable[..., Drafter]:
    made: Callable[..., Drafter] = request.param
    return made


def shares(source: Distribution) -> NDArray[np.float64]:
    row = np.zeros(VOCABULARY)
    row[source.tokens] = source.probabilities
    return row


def test_the_distributions_are_the_very_ones_that_tokens_were_drawn_from(
    make: Callable[..., Drafter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case F11."""
    used: list[tuple[Distribution, int]] = []

    def noted(source: Distribution, seed: int, position: int) -> int:
        used.append((source, drawn(source, seed, position)))
        return used[-1][1]

    monkeypatch.setattr("surefoot.drafting.minima.drawn", noted)
    proposed = propose(make(), sequence_by("rejection"))
    assert len(proposed.tokens) == len(proposed.distributions) == 3
    for (source, token), given, drafted in zip(
        used, proposed.distributions, proposed.tokens, strict=True
    ):
        assert given is source
        assert drafted == token


def test_they_are_the_drafters_own_under_the_sequences_parameters(
    make: Callable[..., Drafter],
) -> None:
    narrow = Sampling(seed=5, temperature=0.7, top_k=3, top_p=1.0, min_p=0.0)
    proposed = propose(make(), sequence_by("rejection", narrow))
    text, oracle = list(PROMPT), Oracle("hybrid", **LIKE)
    for token, given in zip(proposed.tokens, proposed.distributions, strict=True):
        expected = distribution_of(oracle.logits(text), narrow, len(text))
        assert np.count_nonzero(shares(given)) == 3
        assert shares(given) == pytest.approx(shares(expected))
        text.append(token)


def test_for_the_coupled_rule_nothing_is_handed_over_and_the_targets_noise_is_used(
    make: Callable[..., Drafter],
) -> None:
    proposed = propose(make(), sequence_by("coupled"))
    assert len(proposed.tokens) == 3
    assert not proposed.distributions
    text, oracle = list(PROMPT), Oracle("hybrid", **LIKE)
    for token in proposed.tokens:
        assert token == choose(oracle.logits(text), HOT, len(text), 0.0).token
        text.append(token)
    rejected = {tuple(propose(make(), sequence_by("rejection", seeded)).tokens) for seeded in SEEDS}
    coupled = {tuple(propose(make(), sequence_by("coupled", seeded)).tokens) for seeded in SEEDS}
    assert len(rejected & coupled) <= 1


def test_a_greedy_sequence_is_drafted_for_as_ever(make: Callable[..., Drafter]) -> None:
    greedy = Sampling(temperature=0.0)
    one, other = (propose(make(), sequence_by(rule, greedy)) for rule in ("rejection", "coupled"))
    assert list(one.tokens) == list(other.tokens) == Oracle("hybrid", **LIKE).text(PROMPT, 3)
    assert not one.distributions


def test_what_was_drawn_before_a_failure_is_still_judged(make: Callable[..., Drafter]) -> None:
    """The failure may hang on what was drawn."""
    # The head's first pass absorbs nothing but the prompt's last token, as the draft model's does.
    for failing, left in (({1}, 1), ({2}, 2)):
        proposed = propose(make(failing), sequence_by("rejection"))
        assert len(proposed.tokens) == len(proposed.distributions) == left
        whole = propose(make(), sequence_by("rejection"))
        assert list(proposed.tokens) == list(whole.tokens)[:left]
        assert propose(make(failing), sequence_by("coupled")).tokens == ()


def test_a_model_that_keeps_failing_behind_its_first_token_is_left_alone() -> None:
    always_one = np.full((5, 5), -20, np.float32)
    always_one[:, 1] = 20
    drafter = DraftModel(SlottedTarget(always_one, silent_after=1), n_max=3)
    sequence = sequence_by("rejection", Sampling(**SHAPES["warm"]), [0])
    lengths = []
    for _ in range(FAILURES_ALLOWED + 4):
        lengths.append(len(propose(drafter, sequence).tokens))
        sequence.committed.append(0)
    assert lengths == [1] * (FAILURES_ALLOWED + 1) + [0] * 3
    assert sequence.counts.by_drafter["draft-simple"].failure


def test_draws_have_the_distribution_that_is_handed_over() -> None:
    drafter = DraftModel(SlottedTarget(DRAFT), n_max=1)
    counts, due = np.zeros(5), np.zeros(5)
    for seed in range(3000):
        sequence = sequence_by("rejection", Sampling(seed=seed, **SHAPES["hot"]), [0])
        sequence.ending = Ending()
        proposed = propose(drafter, sequence)
        counts[proposed.tokens[0]] += 1
        due[proposed.distributions[0].tokens] += proposed.distributions[0].probabilities
        drafter.forget(sequence)
    assert p_value(counts, due) > LEAST
