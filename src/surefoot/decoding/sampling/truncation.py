"""Samplers that leave out unlikely tokens; `Pool` says what is unsure."""

import math

import numpy as np

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Floats, Pool
from surefoot.decoding.scores import nth_largest

_HEAD = 400
"""So many of the most likely tokens are tried first where only a head of them is wanted."""


def top_k(pool: Pool, sampling: Sampling) -> None:
    """Leave the k most likely tokens."""
    if sampling.top_k > 0:
        pool.keep_top(sampling.top_k)


def min_p(pool: Pool, sampling: Sampling) -> None:
    """Leave tokens at least so likely as a share of the most likely one (Nguyen et al. 2024)."""
    if sampling.min_p > 0:
        pool.keep_above(pool.top + math.log(sampling.min_p), pool.slack, sampling.min_keep)


def top_n_sigma(pool: Pool, sampling: Sampling) -> None:
    """Leave logits at most n standard deviations below the highest (Tang et al. 2024)."""
    n = sampling.top_n_sigma
    if n <= 0:
        return
    if not pool.counted:
        pool.doubt()
    row = pool.whole()
    values = pool.values[pool.kept] if row is None else row
    values = values[np.isfinite(values)].astype(np.float64)
    if len(values) > 1:
        # If no logit moves by more than the tolerance, the deviation doesn't either.
        extent = pool.extent
        pool.keep_above(pool.top - n * float(values.std()), pool.slack * (1 + n / 2))
        pool.extent = extent  # llama.cpp leaves the others in its list, at -inf


def top_p(pool: Pool, sampling: Sampling) -> None:
    """Leave the smallest head with so much mass (Holtzman et al. 2020)."""
    if sampling.top_p >= 1:
        return
    if not pool.counted:
        pool.doubt()
    extent = pool.extent
    least = _head_of_the_whole(pool, sampling)
    if least is not None:
        total, bound = least
        pool.keep_above(bound, pool.slack)
    order = pool.ranking()
    values = pool.values[order]
    weights = np.exp(values - values[0])
    mass = weights / (weights.sum() if least is None else total)
    before = np.cumsum(mass) - mass
    kept = np.zeros_like(pool.kept)
    keep = before < sampling.top_p
    keep[: max(1, sampling.min_keep)] = True
    kept[order[keep]] = True
    if pool.slack == 0:
        pool.cut(kept, sure=kept, possible=kept)
        pool.extent = max(pool.extent, min(sampling.min_keep, extent))
        return
    # Mass in front of a token at the first and the last rank that it can take, after all
    # differences have moved by the slack.
    first = np.searchsorted(-values, -(pool.values + pool.slack), side="left")
    last = np.searchsorted(-values, -(pool.values - pool.slack), side="right") - 1
    edges = np.append(before, min(1.0, before[-1] + mass[-1]))
    at_least = _moved(edges[np.minimum(first, len(values))], -pool.slack)
    at_most = _moved(edges[np.maximum(last, 0)], pool.slack)
    possible = at_least < sampling.top_p
    if sampling.min_keep > 1:  # whatever may be among the highest may stay, too
        possible |= pool.values >= values[: sampling.min_keep][-1] - pool.slack
    pool.cut(kept, sure=at_most < sampling.top_p, possible=possible)
    pool.extent = max(pool.extent, min(sampling.min_keep, extent))


def _head_of_the_whole(pool: Pool, sampling: Sampling) -> tuple[float, float] | None:
    """Total weight of the whole vocabulary, and a value below which no token can stay.

    So that not all of it has to be sorted; None if the pool is smaller than that.
    """
    row = pool.whole()
    if row is None:
        return None
    top = float(row.max())
    weights = np.exp(row - np.float32(top))
    total = float(weights.sum(dtype=np.float64))
    count = max(_HEAD, sampling.min_keep)
    # Mass that stays possible after all differences have moved by the slack.
    goal = float(_moved(np.array([sampling.top_p]), pool.slack)[0]) * total
    while count < len(row):
        bound = nth_largest(row, count)
        if float(weights[row >= np.float32(bound)].sum(dtype=np.float64)) >= goal:
            return total, bound
        count *= 8
    return total, -math.inf


def _moved(mass: Floats, shift: float) -> Floats:
    """A probability mass after its log-odds moved by `shift`."""
    mass = np.minimum(mass, 1.0)
    raised = mass * math.exp(max(-700.0, min(shift, 700.0)))
    moved: Floats = raised / (raised + (1.0 - mass))
    return moved
