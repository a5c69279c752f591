"""The toy language: a row of logits from a reading of the memory.

A skeleton that hangs on the last two tokens makes texts run in loops, which n-gram drafts find;
a digest of everything in sight moves each row, so that texts leave their loops and wrong memory
shows in the logits.
"""

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.runtime.simulated.memory import Reading
from surefoot.runtime.simulated.tokenizer import SimulatedTokenizer

_SPREAD = 4093
"""Rows of noise to pick from, one for each remainder of the digest."""

_NOISE = 0.8
"""Standard deviation of a row's noise."""


class Language:
    """A distribution over next tokens for each reading.

    Args:
        seed: what the language follows from.
        tokenizer: which tokens there are.
        end_rate: about how often, per token, the language ends a text.
    """

    def __init__(self, seed: int, tokenizer: SimulatedTokenizer, end_rate: float) -> None:
        size = tokenizer.vocabulary_size
        draws = np.random.default_rng((seed, 0))
        self._seed = seed
        self._size = size
        self._noise = draws.normal(0, _NOISE, size + _SPREAD).astype(np.float32)
        self._bias = np.full(size, -3.0, dtype=np.float32)
        self._common = tokenizer.common
        self._bias[list(self._common)] = 0.0
        self._bias[list(tokenizer.control)] = -20.0
        self._end = min(tokenizer.end_of_generation)
        self._bias[self._end] = -8.0
        self._end_below = round(end_rate * 65536)
        self._successors = tokenizer.successors
        # The favourite loses to the best of all others about one time in ten.
        self._favour = _NOISE * math.sqrt(2 * math.log(size)) + 1.0

    def write(self, reading: Reading, row: NDArray[np.float32]) -> None:
        """Write the logits that follow from a reading.

        Args:
            reading: what the memory shows.
            row: shape (vocabulary,); overwritten.
        """
        mixed = hash((self._seed, reading.digest))
        start = mixed % _SPREAD
        np.add(self._noise[start : start + self._size], self._bias, out=row)
        # Two readings with the same noise still differ, all but surely.
        row[(mixed >> 12) % self._size] += (mixed >> 24 & 0xFFFF) * 2.0**-18
        favour = self._favour
        # A few bits of the last two tokens: 256 contexts, so that loops are short at any size.
        before, last = reading.recent
        skeleton = hash((self._seed, before & 3, last & 63))
        row[self._common[skeleton % len(self._common)]] += favour
        row[self._common[(skeleton >> 20) % len(self._common)]] += favour / 2
        successor = self._successors.get(reading.recent[1])
        if successor is not None:
            row[successor] += 4 * favour
        elif (mixed >> 40 & 0xFFFF) < self._end_below:
            row[self._end] = 4 * favour
