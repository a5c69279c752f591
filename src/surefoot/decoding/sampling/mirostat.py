"""Mirostat: truncation that steers the text's surprise to a target (Basu et al. 2021)."""

import math

import numpy as np

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool
from surefoot.decoding.scores import most_likely

_HEAD = 100
"""From so many of the most likely tokens version 1 estimates the exponent of Zipf's law."""


class Mirostat:
    """Holds mu, the surprise that is allowed now; it moves with each committed token.

    Args:
        sampling: the parameters; `mirostat` is 0 for none.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self.mu = 2 * sampling.mirostat_tau
        self.active = sampling.mirostat != 0

    def advance(self, surprise: float) -> None:
        """Take note of a committed token's surprise, in bits."""
        if self.active:
            self.mu -= self._sampling.mirostat_eta * (surprise - self._sampling.mirostat_tau)

    def apply(self, pool: Pool, vocabulary_size: int) -> None:
        """Leave the head of the distribution whose surprise is allowed.

        That hangs on all logits, and mu on those before, so nothing about it is taken for sure.
        """
        pool.spread()
        pool.doubt()
        if self._sampling.mirostat == 1:
            pool.keep_top(self._count(pool, vocabulary_size))
            return
        probabilities = pool.probabilities()
        with np.errstate(divide="ignore"):
            allowed = pool.kept & (-np.log2(probabilities) <= self.mu)
        allowed[probabilities.argmax()] = True
        pool.cut(allowed, sure=allowed, possible=allowed)

    def _count(self, pool: Pool, vocabulary_size: int) -> int:
        """How many tokens version 1 leaves; all of them where the estimate has no meaning."""
        probabilities = pool.probabilities()
        head = np.maximum(probabilities[most_likely(probabilities, _HEAD)], 1e-300)
        if len(head) < 2:
            return 1
        steps = np.log(np.arange(2, len(head) + 1) / np.arange(1, len(head)))
        falls = np.log(head[:-1] / head[1:])
        exponent = float((steps * falls).sum() / (steps * steps).sum())
        excess = exponent - 1
        with np.errstate(all="ignore"):
            count = np.power(
                excess * np.exp2(self.mu) / (1 - np.power(float(vocabulary_size), -excess)),
                1 / np.float64(exponent),
            )
        return max(1, int(count)) if math.isfinite(count) else vocabulary_size
