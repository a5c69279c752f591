"""Positional noise: uniform, independent in every direction, and a pure function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from surefoot.decoding.noise import SEED_LIMIT, gumbel, uniform

SMALLEST_P = 1e-4
"""All seeds here are fixed, so a test either always passes or never does."""

TOKENS = np.arange(2000)


@pytest.mark.parametrize("seed", [0, 1, 2, 42, 2**32, SEED_LIMIT - 1])
def test_noise_is_uniform_over_tokens(seed: int) -> None:
    draws = np.concatenate([uniform(seed, position, TOKENS) for position in range(20)])
    assert stats.kstest(draws, "uniform").pvalue > SMALLEST_P
    assert 0 < draws.min() < draws.max() < 1


@pytest.mark.parametrize("token", [0, 1, 248_319])
def test_noise_is_uniform_over_positions_and_over_seeds(token: int) -> None:
    one = np.array([token])
    over_positions = [uniform(7, position, one)[0] for position in range(5000)]
    over_seeds = [uniform(seed, 7, one)[0] for seed in range(5000)]
    assert stats.kstest(over_positions, "uniform").pvalue > SMALLEST_P
    assert stats.kstest(over_seeds, "uniform").pvalue > SMALLEST_P


@pytest.mark.parametrize(
    ("other_seed", "other_position", "shift"),
    [(8, 5, 0), (7, 6, 0), (8, 6, 0), (6, 6, 0), (5, 7, 0), (7, 5, 1), (7, 6, 1), (8, 4, 0)],
    ids=["seed", "position", "both", "one up one down", "swapped", "token", "diagonal", "down"],
)
def test_neighbouring_noise_is_independent(
    other_seed: int, other_position: int, shift: int
) -> None:
    """A neighbour in any direction tells nothing: joint counts over a 10 x 10 grid."""
    tokens = np.arange(50_000)
    ours = uniform(7, 5, tokens)
    theirs = uniform(other_seed, other_position, tokens + shift)
    counts, _, _ = np.histogram2d(ours, theirs, bins=10, range=[[0, 1], [0, 1]])
    assert stats.chisquare(counts.ravel()).pvalue > SMALLEST_P


def test_gumbel_noise_has_its_distribution() -> None:
    draws = np.concatenate([gumbel(3, position, TOKENS) for position in range(20)])
    assert stats.kstest(draws, "gumbel_r").pvalue > SMALLEST_P


@given(
    seed=st.integers(0, SEED_LIMIT - 1),
    position=st.integers(0, 2**40),
    tokens=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
)
def test_noise_is_a_pure_function_of_its_arguments(
    seed: int, position: int, tokens: list[int]
) -> None:
    """Which other tokens are asked for, in which order or type, makes no difference."""
    together = gumbel(seed, position, np.array(tokens, dtype=np.int64))
    apart = [gumbel(seed, position, np.array([token], dtype=np.int32))[0] for token in tokens]
    assert together.tolist() == apart
    assert np.isfinite(together).all()


def test_noise_stays_what_it_is() -> None:
    """Changing it would change every seed's text; these values are from its first version."""
    values = uniform(42, 10, np.array([0, 1, 248_319]))
    assert values.tolist() == pytest.approx(PINNED, abs=1e-15)


PINNED = [0.5299570021436635, 0.8371667377399243, 0.7023665669297361]
