"""Locally typical sampling (Meister et al. 2023): neither too likely nor too unlikely."""

import numpy as np

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool


def typ_p(pool: Pool, sampling: Sampling) -> None:
    """Leave the tokens whose surprise is nearest to the entropy, with so much mass.

    Which these are hangs on all logits at once, so nothing about them is taken for sure.
    """
    if sampling.typical_p >= 1:
        return
    pool.doubt()
    order = pool.ranking()
    extent = pool.extent
    probabilities = pool.probabilities()[order]
    surprise = -np.log(np.maximum(probabilities, 1e-300))
    entropy = float((probabilities * surprise).sum())
    typical = np.argsort(np.abs(surprise - entropy), kind="stable")
    mass = np.cumsum(probabilities[typical])
    enough = np.flatnonzero(mass > sampling.typical_p)
    count = max(int(enough[0]) + 1 if len(enough) else len(order), sampling.min_keep)
    kept = np.zeros_like(pool.kept)
    kept[order[typical[:count]]] = True
    pool.cut(kept, sure=kept, possible=kept)
    pool.extent = max(pool.extent, min(sampling.min_keep, extent))
