"""XTC: at times exclude the top choices."""

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.noise import uniform
from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Floats, Pool

_CHANCE = np.array([-2])
"""The chance hangs on an id that no token has, so it is independent of the choice."""


def xtc(pool: Pool, sampling: Sampling, position: int) -> None:
    """Now and then leave out all tokens above a threshold but the least likely of them."""
    if sampling.xtc_probability <= 0 or sampling.xtc_threshold > 0.5:
        return
    if uniform(sampling.seed, position, _CHANCE)[0] > sampling.xtc_probability:
        return
    order = pool.ranking()
    probabilities = pool.probabilities()[order]
    last = int(np.count_nonzero(probabilities >= sampling.xtc_threshold)) - 1
    if not pool.counted or _may_cross(probabilities, sampling.xtc_threshold, pool.slack):
        pool.doubt()
    if last < 1 or pool.extent - last < sampling.min_keep:
        return
    if _may_swap(pool, order, last):
        pool.doubt()
    dropped = np.zeros_like(pool.kept)
    dropped[order[:last]] = True
    extent = pool.extent
    pool.cut(pool.kept & ~dropped, sure=~dropped, possible=~dropped)
    pool.extent = extent - last


def _may_cross(probabilities: Floats, threshold: float, slack: float) -> bool:
    """Whether a probability could cross the threshold."""
    if threshold <= 0 or slack == 0:
        return False
    return bool(np.any(np.abs(np.log(np.maximum(probabilities, 1e-300) / threshold)) <= slack))


def _may_swap(pool: Pool, order: NDArray[np.int64], last: int) -> bool:
    """Whether another token could be the least likely one above the threshold."""
    gap = pool.values[order[last - 1]] - pool.values[order[last]]
    return bool(gap <= pool.slack)
