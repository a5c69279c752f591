"""Synthetic acceptance: by chance, at given rates, the same for the same seed."""

import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.decoding import (
    Draft,
    Ending,
    InvalidParameterError,
    Round,
    Sampling,
    Sequence,
    SyntheticAcceptance,
    check_rates,
    rates_for_length,
)
from surefoot.decoding.memory import CuttableMemory
from tests.support.kinds import KINDS, simulated
from tests.support.planned_drafters import RandomDrafter
from tests.support.play import begin

VOCABULARY = 16
RATES = (0.9, 0.7, 0.65, 0.2)
END = 7


def sequence_of(seed: int, temperature: float = 0.0) -> Sequence:
    return Sequence(
        committed=[1],
        memory=CuttableMemory(cast(Any, None), 0),
        sampling=Sampling(seed=seed, temperature=temperature),
        ending=Ending(frozenset({END})),
    )


def judged(
    verify: SyntheticAcceptance, sequence: Sequence, tokens: list[int]
) -> tuple[int, list[int]]:
    """What becomes of a draft where the target would say token 0 everywhere."""
    logits = np.zeros((len(tokens) + 1, VOCABULARY), dtype=np.float32)
    logits[:, 0] = 9
    before, draft, accepted = len(sequence.committed), Draft(tokens, "test"), 0
    for offset, row in enumerate(logits):
        choice, agreed = verify(sequence, draft, offset, row, 0.0)
        sequence.committed.append(choice.token)
        accepted += agreed
        if not agreed:
            break
    chosen = sequence.committed[before:]
    del sequence.committed[before:]
    return accepted, chosen


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rates_are_met_position_by_position(temperature: float) -> None:
    verify, sequence, rounds = SyntheticAcceptance(RATES), sequence_of(3, temperature), 4000
    reached = [0] * len(RATES)
    for _ in range(rounds):
        accepted, tokens = judged(verify, sequence, [5] * len(RATES))
        assert tokens[:-1] == [5] * accepted
        sequence.committed += tokens
        for position in range(accepted):
            reached[position] += 1
    for count, rate in zip(reached, RATES, strict=True):
        deviation = math.sqrt(rounds * rate * (1 - rate))
        assert abs(count - rounds * rate) < 4 * deviation
    mean = 1 + sum(reached) / rounds
    assert mean == pytest.approx(verify.mean_length, abs=0.1)


def test_other_seeds_have_other_luck() -> None:
    verify = SyntheticAcceptance([0.5] * 8)
    assert {judged(verify, sequence_of(seed), [5] * 8)[0] for seed in range(50)} == {0, 8}
    verify = SyntheticAcceptance(rates_for_length(4, 8))
    assert {judged(verify, sequence_of(seed), [5] * 8)[0] for seed in range(200)} >= set(range(7))


def test_chance_hangs_on_the_position_not_on_the_rounds() -> None:
    verify = SyntheticAcceptance(rates_for_length(4, 8))
    sequence = next(s for s in map(sequence_of, range(99)) if judged(verify, s, [5] * 8)[0] == 5)
    accepted, tokens = judged(verify, sequence, [5] * 8)
    assert judged(verify, sequence, [6] * 8)[0] == accepted
    sequence.committed += tokens[:2]
    assert judged(verify, sequence, [5] * 6)[0] == accepted - 2


def test_rates_of_zero_and_one_are_certain() -> None:
    assert judged(SyntheticAcceptance([0.0] * 3), sequence_of(1), [5, 5, 5]) == (0, [0])
    assert judged(SyntheticAcceptance([1.0] * 3), sequence_of(1), [5, 5, 5]) == (3, [5, 5, 5, 0])
    assert judged(SyntheticAcceptance([1.0, 0.0]), sequence_of(1), [5, 5]) == (1, [5, 0])


def test_tokens_behind_the_last_rate_are_not_accepted() -> None:
    assert judged(SyntheticAcceptance([1.0]), sequence_of(1), [5, 5, 5]) == (1, [5, 0])


def test_a_drafted_end_of_generation_is_not_accepted() -> None:
    assert judged(SyntheticAcceptance([1.0] * 3), sequence_of(1), [5, END, 5]) == (1, [5, 0])


def test_without_a_draft_the_target_decides() -> None:
    assert judged(SyntheticAcceptance([1.0]), sequence_of(1), []) == (0, [0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1.0, 2.5, 5.0])
def test_every_round_goes_on_and_the_same_seed_goes_on_alike(kind: str, length: float) -> None:
    texts = []
    for _ in range(2):
        runtime = simulated(kind)
        sequence = begin(
            runtime,
            [3, 1, 4],
            sampling=Sampling(seed=8, temperature=1.0),
            ending=Ending(max_tokens=60),
            max_draft=4,
        )
        round_ = Round(
            runtime,
            RandomDrafter(5, 64, full=True),
            SyntheticAcceptance(rates_for_length(length, 4)),
        )
        rounds, passes = 0, runtime.passes
        while sequence.finish is None:
            (outcome,) = round_.play([sequence])
            assert len(outcome.tokens) >= 1
            rounds += 1
        assert runtime.passes - passes == rounds == sequence.counts.rounds
        assert sequence.counts.mean_length == pytest.approx(length, abs=1.0)
        texts.append(sequence.committed)
    assert texts[0] == texts[1]


@given(
    longest=st.integers(1, 64),
    share=st.floats(0, 1),
)
def test_rates_for_a_length_have_that_length(longest: int, share: float) -> None:
    length = 1 + share * longest
    rates = rates_for_length(length, longest)
    check_rates("rates", rates)
    assert len(rates) == longest
    assert 1 + sum(rates) == pytest.approx(length, abs=1e-6)
    for position, rate in enumerate(rates):
        assert rate == pytest.approx(rates[0] ** (position + 1))


@pytest.mark.parametrize("rates", [[], [1.1], [-0.1], [0.2, 0.3], [float("nan")]])
def test_impossible_rates_are_an_error(rates: list[float]) -> None:
    with pytest.raises(InvalidParameterError, match="synth_rates: must"):
        SyntheticAcceptance(rates)
