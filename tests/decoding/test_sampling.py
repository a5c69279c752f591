"""The rule of choice: truncation as llama.cpp does it, and a near-tie rule that errs on one side.

`reference` is llama.cpp's chain top-k, top-p, min-p, temperature, written plainly.
"""

import math
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from surefoot.decoding import (
    GREEDY,
    DecodeError,
    InvalidParameterError,
    Round,
    Sampling,
    Sequence,
    choose,
)
from surefoot.decoding.memory import CuttableMemory
from surefoot.decoding.noise import gumbel
from surefoot.decoding.sampling.pool import Pool
from surefoot.decoding.sampling.truncation import min_p, top_k, top_p
from surefoot.drafting.scripted import ScriptedDrafter
from tests.support.adversary import AdversarialTarget
from tests.support.fixed import FixedTarget
from tests.support.kinds import simulated
from tests.support.play import begin

Row = NDArray[np.float32]

GRID = st.integers(-40, 40).map(lambda n: n / 8)
"""Logits on a grid, so that exact ties are common."""


@st.composite
def rows(draw: st.DrawFn, most: int = 12) -> Row:
    """A row of logits with close neighbours: a grid, and small steps off it."""
    values = draw(st.lists(GRID, min_size=2, max_size=most))
    steps = draw(
        st.lists(
            st.sampled_from([0.0, 0.0, 1e-3, -1e-3, 0.01, -0.01, 0.03]),
            min_size=len(values),
            max_size=len(values),
        )
    )
    masked = draw(st.sets(st.integers(0, len(values) - 1), max_size=len(values) - 1))
    row = np.array(values, dtype=np.float32) + np.array(steps, dtype=np.float32)
    if draw(st.booleans()):
        row[list(masked)] = -np.inf
    return row


PARAMETERS = st.builds(
    Sampling,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.3, 0.8, 1.0, 1.5]),
    top_k=st.integers(0, 14),
    top_p=st.sampled_from([1.0, 0.99, 0.95, 0.8, 0.5, 0.4, 0.05, 1e-6]),
    min_p=st.sampled_from([0.0, 0.01, 0.05, 0.3, 0.5, 1.0]),
)


def reference(row: Row, sampling: Sampling) -> tuple[list[int], bool]:
    """The tokens that llama.cpp's chain keeps, and whether a rounding could decide otherwise."""
    logits = [float(logit) for logit in row]
    tokens = sorted(range(len(row)), key=lambda token: (-logits[token], token))
    close = False
    if sampling.top_k > 0:
        tokens = tokens[: sampling.top_k]
    top = logits[tokens[0]]
    if sampling.top_p < 1:
        weights = [math.exp(logits[token] - top) for token in tokens]
        mass, kept = 0.0, []
        for token, weight in zip(tokens, weights, strict=True):
            kept.append(token)
            mass += weight / math.fsum(weights)
            close = close or abs(mass - sampling.top_p) < 1e-9
            if mass >= sampling.top_p:
                break
        tokens = kept
    if sampling.min_p > 0:
        least = top + math.log(sampling.min_p)
        close = close or any(abs(logits[token] - least) < 1e-9 for token in tokens[1:])
        tokens = [token for token in tokens if logits[token] >= least or token == tokens[0]]
    return tokens, close


def survivors(row: Row, sampling: Sampling, tolerance: float) -> Pool:
    """What llama.cpp's first truncations leave."""
    pool = Pool(row, 2 * tolerance)
    for truncate in (top_k, top_p, min_p):
        truncate(pool, sampling)
    pool.spread()
    return pool


@settings(max_examples=300)
@given(row=rows(), sampling=PARAMETERS, tolerance=st.sampled_from([0.0, 0.01, 0.3]))
def test_truncation_keeps_what_llama_cpp_keeps(
    row: Row, sampling: Sampling, tolerance: float
) -> None:
    expected, close = reference(row, sampling)
    expected = [token for token in expected if row[token] > -np.inf]
    candidates = survivors(row, sampling, tolerance)
    kept = {int(token) for token in candidates.tokens[candidates.kept] if row[token] > -np.inf}
    if not close:
        assert kept == set(expected)
    assert np.array_equal(candidates.values, row[candidates.tokens].astype(np.float64))
    assert not np.any(candidates.sure & ~candidates.kept)
    assert len(set(candidates.tokens.tolist())) == len(candidates.tokens)


@settings(max_examples=300)
@given(row=rows(), sampling=PARAMETERS, position=st.integers(0, 2**20))
def test_a_choice_is_the_best_of_what_is_kept(row: Row, sampling: Sampling, position: int) -> None:
    expected, close = reference(row, sampling)
    if close:
        return
    scores = row[expected].astype(np.float64) / sampling.temperature
    scores += gumbel(sampling.seed, position, np.array(expected))
    best = int(scores.argmax())
    ahead = np.delete(scores, best)
    if len(ahead) == 0 or scores[best] > ahead.max() + 1e-9:
        assert choose(row, sampling, position, 0.0).token == expected[best]


def shaken(row: Row, chosen: int, tolerance: float, seed: int) -> list[Row]:
    """The row with each logit moved by at most the tolerance.

    Each token in turn is raised against all others, or against the chosen one; beside that, random
    corners of the box and points inside it.
    """
    draws = np.random.default_rng(seed)
    size = len(row)
    against_all = 2 * np.eye(size) - 1
    against_chosen = np.eye(size)
    against_chosen[:, chosen] = -1
    corners = draws.choice([-1.0, 1.0], (12, size))
    inside = draws.uniform(-1, 1, (4, size))
    moves = np.concatenate([against_all, -against_all, against_chosen, corners, inside])
    return [*(row + moves.astype(np.float32) * np.float32(tolerance * 0.999))]


@settings(max_examples=300)
@given(
    row=rows(),
    sampling=st.one_of(st.just(GREEDY), PARAMETERS),
    tolerance=st.sampled_from([0.002, 0.02, 0.1, 0.5]),
    position=st.integers(0, 1000),
    seed=st.integers(0, 2**32),
)
def test_a_choice_that_is_no_near_tie_stands_however_the_logits_move(
    row: Row, sampling: Sampling, tolerance: float, position: int, seed: int
) -> None:
    choice = choose(row, sampling, position, tolerance)
    if choice.near_tie:
        return
    for moved in shaken(row, choice.token, tolerance, seed):
        assert choose(moved, sampling, position, 0.0).token == choice.token


def test_two_tokens_that_share_the_top_are_a_near_tie_under_top_p() -> None:
    """The one in front alone fills top-p; a hair of noise puts the other there."""
    row = np.array([1.0, 1.0 - 1e-6, -10.0], dtype=np.float32)
    sampling = Sampling(temperature=1.0, top_k=0, top_p=0.4, min_p=0.0)
    choice = choose(row, sampling, 0, tolerance=1e-3)
    assert choice.token == 0
    assert choice.near_tie
    moved = np.array([1.0, 1.0 + 1e-6, -10.0], dtype=np.float32)
    assert choose(moved, sampling, 0, tolerance=0.0).token == 1


def test_a_token_that_may_take_a_kept_ones_place_is_a_rival() -> None:
    """Of two tokens that are alike top-p keeps one, and the other has the better noise."""
    row = np.array([1.0, 0.5, 0.5 - 1e-6, -10.0], dtype=np.float32)
    swapped = row[[0, 2, 1, 3]]
    found = 0
    for seed in range(300):
        sampling = Sampling(seed=seed, temperature=1.0, top_k=0, top_p=0.6, min_p=0.0)
        choice = choose(row, sampling, 0, tolerance=1e-3)
        if choose(swapped, sampling, 0, tolerance=0.0).token != choice.token:
            assert choice.near_tie
            found += choice.token == 0
    assert found > 10


def test_clear_choices_are_not_called_near_ties() -> None:
    """Else the rule would be right and useless."""
    draws = np.random.default_rng(11)
    near = sum(
        choose(
            draws.normal(0, 3, 1000).astype(np.float32),
            Sampling(seed=1, temperature=0.8),
            position,
            tolerance=0.005,
        ).near_tie
        for position in range(500)
    )
    assert near < 50


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(), Sampling(top_k=0, top_p=1.0, min_p=0.0)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_end_the_pass_and_are_never_chosen(
    sampling: Sampling, bad: float
) -> None:
    row = np.zeros(50, dtype=np.float32)
    row[17] = bad
    with pytest.raises(DecodeError, match="can't be trusted"):
        choose(row, sampling, 0, 0.0)
    with pytest.raises(DecodeError):
        choose(np.full(50, -np.inf, dtype=np.float32), sampling, 0, 0.0)


def test_bad_logits_are_never_committed_and_the_pass_is_not_trusted() -> None:
    """Case A10: a NaN is an error, not a token. What another sequence decided before stands."""
    runtime = simulated("attention", slots=2)
    target = AdversarialTarget(runtime, lambda *_: 5)
    sequences = [begin(target, [1, 2], slot=slot, slots=2) for slot in range(2)]
    good, bad = np.zeros((1, 64), dtype=np.float32), np.full((1, 64), np.nan, dtype=np.float32)
    with (
        patch.object(target, "decode", return_value=[good, bad]),
        pytest.raises(DecodeError, match="can't be trusted"),
    ):
        Round(target).play(sequences)
    assert [sequence.generated for sequence in sequences] == [1, 0]


def test_rows_behind_the_first_disagreement_are_not_looked_at() -> None:
    rows_ = np.zeros((4, 8), dtype=np.float32)
    rows_[0, 3] = rows_[1, 5] = 1.0
    rows_[2:] = np.nan
    table = np.zeros((8, 8), dtype=np.float32)
    table[[1, 3, 4, 2]] = rows_
    target = FixedTarget(table)
    sequence = Sequence([1], CuttableMemory(target, 0), sampling=GREEDY)
    [outcome] = Round(target, ScriptedDrafter([[3, 4, 2]])).play([sequence])
    assert (outcome.tokens, outcome.accepted) == ([3, 5], 1)


def test_masked_tokens_are_never_chosen() -> None:
    row = np.full(16, -np.inf, dtype=np.float32)
    row[[4, 9]] = [0.0, -30.0]
    ways = [GREEDY, Sampling(temperature=50, top_k=0, top_p=1, min_p=0), Sampling()]
    for sampling in ways:
        chosen = {choose(row, sampling, position, 0.1).token for position in range(200)}
        assert chosen <= {4, 9}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("seed", [-1, 2**64]),
        ("temperature", [-0.1, math.nan, math.inf]),
        ("top_k", [-1]),
        ("top_p", [0.0, 1.1, math.nan]),
        ("min_p", [-0.1, 1.1, math.nan]),
    ],
)
def test_a_parameter_out_of_range_is_named(name: str, values: list[float]) -> None:
    for value in values:
        with pytest.raises(InvalidParameterError, match=name):
            Sampling(**{name: value})  # type: ignore[arg-type]


def test_temperature_moves_the_distribution_the_way_it_should() -> None:
    row = np.array([2.0, 1.0, 0.0], dtype=np.float32)
    shares = []
    for temperature in (0.2, 1.0, 5.0):
        sampling = Sampling(seed=3, temperature=temperature, top_k=0, top_p=1, min_p=0)
        shares.append(sum(choose(row, sampling, at, 0.0).token == 0 for at in range(1000)))
    assert all(hotter < colder for colder, hotter in pairwise(shares))
