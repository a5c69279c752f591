"""Locally typical sampling (Meister et al. 2023): neither too likely nor too unlikely."""

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Floats, Pool
from surefoot.decoding.scores import nth_largest

_HEAD = 400
"""So many tokens are looked at first, so that not all have to be sorted."""


def typ_p(pool: Pool, sampling: Sampling) -> None:
    """Leave the tokens whose surprise is nearest to the entropy, with so much mass.

    Which these are hangs on all logits at once, so nothing about them is taken for sure.
    """
    if sampling.typical_p >= 1:
        return
    pool.doubt()
    pool.spread()
    extent = pool.extent
    kept = np.flatnonzero(pool.kept)
    probabilities = pool.probabilities()[kept]
    surprise = -np.log(np.maximum(probabilities, 1e-300))
    entropy = float((probabilities * surprise).sum())
    distance = np.abs(surprise - entropy)
    typical = _nearest(distance, probabilities, sampling)
    left = np.zeros_like(pool.kept)
    left[kept[typical]] = True
    pool.cut(left, sure=left, possible=left)
    pool.extent = max(pool.extent, min(sampling.min_keep, extent))


def _nearest(distance: Floats, probabilities: Floats, sampling: Sampling) -> NDArray[np.int64]:
    """Indices of the smallest distances with enough mass; of equals, the more probable first."""
    count = max(_HEAD, sampling.min_keep)
    while True:
        whole = count >= len(distance)
        near = (
            np.arange(len(distance))
            if whole
            else np.flatnonzero(distance <= -nth_largest(-distance, count))
        )
        order = near[np.lexsort((-probabilities[near], distance[near]))]
        enough = np.flatnonzero(np.cumsum(probabilities[order]) > sampling.typical_p)
        if len(enough) or whole:
            last = int(enough[0]) + 1 if len(enough) else len(order)
            return order[: max(last, sampling.min_keep)]
        count *= 8
