"""The near-tie rule holds for every sampler, in any order, with a past and with a mask."""

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.decoding import DEFAULT_SAMPLERS, GREEDY, Chooser, Sampling, TokenMask
from tests.decoding.test_sampling import Row, rows, shaken

OFF = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

PARAMETERS = st.builds(
    Sampling,
    seed=st.integers(0, 2**64 - 1),
    samplers=st.permutations(DEFAULT_SAMPLERS).flatmap(
        lambda names: st.integers(1, len(names)).map(lambda count: tuple(names[:count]))
    ),
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.5]),
    dynatemp_range=st.sampled_from([0.0, 0.0, 0.5]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([1.0, 0.95, 0.8, 0.4]),
    min_p=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    typical_p=st.sampled_from([1.0, 1.0, 0.9, 0.4]),
    top_n_sigma=st.sampled_from([-1.0, 0.5, 1.5]),
    min_keep=st.sampled_from([0, 0, 3]),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.05, 0.2, 0.5]),
    repeat_last_n=st.sampled_from([3, 64, -1]),
    repeat_penalty=st.sampled_from([1.0, 1.0, 0.5, 1.4, 3.0]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, 0.5]),
    dry_multiplier=st.sampled_from([0.0, 0.8]),
    dry_allowed_length=st.sampled_from([0, 1, 2]),
    mirostat=st.sampled_from([0, 0, 0, 1, 2]),
    mirostat_tau=st.sampled_from([0.3, 1.0]),
    logit_bias=st.sampled_from([(), ((0, 1.5), (1, -0.25))]),
)


def mask_of(row: Row, tokens: set[int]) -> TokenMask:
    """Some tokens of a row; all of them if none of these can be chosen."""
    tokens = {token for token in tokens if token < len(row) and row[token] > -np.inf}
    mask = np.zeros(1, np.uint32)
    for token in tokens or range(len(row)):
        mask[0] |= np.uint32(1 << token)
    return mask


@settings(max_examples=600, deadline=None)
@given(
    row=rows(),
    sampling=PARAMETERS,
    history=st.lists(st.integers(0, 5), max_size=12),
    tokens=st.none() | st.sets(st.integers(0, 11)),
    tolerance=st.sampled_from([0.002, 0.02, 0.1, 0.5]),
    seed=st.integers(0, 2**32),
)
def test_no_move_of_the_logits_changes_a_choice_that_is_no_near_tie(
    row: Row,
    sampling: Sampling,
    history: list[int],
    tokens: set[int] | None,
    tolerance: float,
    seed: int,
) -> None:
    chooser = Chooser(sampling, [token % len(row) for token in history])
    mask = None if tokens is None else mask_of(row, tokens)
    choice = chooser.choose(row, tolerance, mask)
    if choice.near_tie:
        return
    for moved in shaken(row, choice.token, tolerance, seed):
        assert chooser.choose(moved, 0.0, mask).token == choice.token


ACTIVE: dict[str, list[dict[str, Any]]] = {
    "penalties": [{"repeat_penalty": 1.5}],
    "top_n_sigma": [{"top_n_sigma": n} for n in (0.3, 0.7, 1.0, 1.5)],
    "top_k": [{"top_k": k} for k in (1, 2, 3, 5)],
    "top_p": [{"top_p": p, "min_keep": keep} for p in (0.3, 0.6, 0.9) for keep in (0, 2, 4)],
    "min_p": [{"min_p": p, "min_keep": keep} for p in (0.1, 0.3, 0.6) for keep in (0, 2, 4)],
    "xtc": [{"xtc_probability": 1.0, "xtc_threshold": p} for p in (0.05, 0.1, 0.2)],
    "temperature": [{"temperature": t} for t in (0.3, 2.0)],
}


@pytest.mark.parametrize("first", ACTIVE)
@pytest.mark.parametrize("second", ACTIVE)
def test_two_samplers_one_behind_the_other_hide_no_near_tie(first: str, second: str) -> None:
    """A wide search where it is tightest: few tokens, alike in pairs, and moves of that order."""
    random = Random(f"{first} {second}")
    draws = np.random.default_rng([*first.encode(), *second.encode()])
    clear = 0
    for _ in range(150):
        values = draws.normal(0, 1, 6)
        values[draws.permutation(6)[:2]] = values[0] + draws.normal(0, 0.1, 2)
        row = values.astype(np.float32)
        tolerance = random.choice([0.02, 0.1, 0.2])
        fields = {**random.choice(ACTIVE[first]), **random.choice(ACTIVE[second])}
        sampling = replace(OFF, samplers=(first, second), seed=random.getrandbits(32), **fields)
        chooser = Chooser(sampling, [0, 1, 0])
        choice = chooser.choose(row, tolerance)
        if choice.near_tie:
            continue
        clear += 1
        for moved in shaken(row, choice.token, tolerance, random.getrandbits(32)):
            assert chooser.choose(moved, 0.0).token == choice.token, (row, sampling, tolerance)
    assert clear > 5


def near_ties(sampling: Sampling, mask: TokenMask | None = None) -> int:
    """How many of 300 choices among 1,000 tokens are near ties, with little noise."""
    draws = np.random.default_rng(11)
    chooser = Chooser(sampling, range(40))
    return sum(
        chooser.choose(draws.normal(0, 3, 1000).astype(np.float32), 0.005, mask).near_tie
        for _ in range(300)
    )


def test_samplers_with_a_bound_do_not_call_clear_choices_near_ties() -> None:
    """Else the rule would be right and useless. Typical-p and mirostat have no bound.

    Top-n-sigma and XTC have a coarse one.
    """
    few = np.zeros(32, np.uint32)
    few[3:5] = 0xFFFFFFFF
    assert near_ties(Sampling()) < 30
    assert near_ties(Sampling(), few) < 30
    assert near_ties(Sampling(repeat_penalty=1.3, presence_penalty=0.5)) < 30
    assert near_ties(Sampling(dry_multiplier=0.8)) < 30
    assert near_ties(Sampling(temperature=0.0, repeat_penalty=1.3)) < 30
    assert near_ties(Sampling(top_n_sigma=1.0)) < 200
    assert near_ties(Sampling(xtc_probability=1.0, xtc_threshold=0.2)) < 200


def test_a_token_that_is_not_allowed_is_no_rival() -> None:
    """Bit for bit as likely as the chosen one, but the mask or a ban leaves it out."""
    row = np.array([5.0, 5.0, 1.0], np.float32)
    mask = np.array([0b101], np.uint32)
    assert Chooser(GREEDY).choose(row, 0.01).near_tie
    for temperature in (0.0, 0.1):
        masked = Chooser(Sampling(temperature=temperature)).choose(row, 0.01, mask)
        assert (masked.token, masked.near_tie) == (0, False)
        banned = Sampling(temperature=temperature, logit_bias=((1, -np.inf),))
        choice = Chooser(banned).choose(row, 0.01)
        assert (choice.token, choice.near_tie) == (0, False)
