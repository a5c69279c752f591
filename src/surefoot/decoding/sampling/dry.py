"""DRY: a penalty on tokens that would go on repeating what stands earlier in the text.

The penalty is multiplier * base ** (length - allowed length), as llama.cpp has it, for the longest
stretch at the end of the text that occurred before in front of the token.
"""

import math
from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.sampling.breakers import Breakers
from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool
from surefoot.decoding.sampling.repeats import Repeats

_LARGEST = 88.7228391
"""Logarithm of the largest float32, which bounds the exponent."""

Tokens = NDArray[np.int64]


class Dry:
    """Follows the text's repeats, and where the last breaker in it is.

    Args:
        sampling: the parameters.
        history: the tokens so far.
        breakers: what repeats do not reach across.
    """

    def __init__(self, sampling: Sampling, history: Series[int], breakers: Breakers) -> None:
        self._sampling = sampling
        self._breakers = breakers
        self._head, self._tail = -1, 0
        self.active = sampling.dry_multiplier != 0 and sampling.dry_penalty_last_n != 0
        self._repeats = Repeats(history if self.active else ())
        if self.active and breakers.tails:
            for end in range(len(history)):
                self._note_breaker(end)

    def advance(self, token: int) -> None:
        """Take note of a committed token."""
        if self.active:
            self._repeats.append(token)
            self._note_breaker(len(self._repeats) - 1)

    def _note_breaker(self, end: int) -> None:
        """See whether the token there completes a breaker; of several the latest head counts."""
        tokens, tails = self._repeats.tokens, self._breakers.tails
        for back in range(min(self._breakers.longest, end) + 1):
            head = end - back
            if head < self._head:
                return
            for tail in tails.get(int(tokens[head]), ()):
                if len(tail) == back and tuple(tokens[head + 1 : end + 1].tolist()) == tail:
                    self._head, self._tail = head, back
                    return

    def apply(self, pool: Pool) -> None:
        """Make tokens that go on with a repeat less likely."""
        if not self.active:
            return
        tokens, lengths = self.continued()
        if not len(tokens):
            return
        sampling = self._sampling
        exponents = lengths.astype(np.float64) - sampling.dry_allowed_length
        if sampling.dry_base > 1.000001:
            exponents = np.minimum(exponents, int(_LARGEST / math.log(sampling.dry_base)))
        pool.add(tokens, -sampling.dry_multiplier * sampling.dry_base**exponents)

    def continued(self) -> tuple[Tokens, Tokens]:
        """Tokens that would go on with a repeat, each once, and how long the repeat is already."""
        nothing = np.empty(0, np.int64), np.empty(0, np.int64)
        sampling, end = self._sampling, len(self._repeats)
        window = end if sampling.dry_penalty_last_n < 0 else min(end, sampling.dry_penalty_last_n)
        allowed = sampling.dry_allowed_length
        if window <= allowed:
            return nothing
        limit = window
        if self._head >= 0 and end - 1 - self._head < window:
            limit = end - 1 - self._head - self._tail
        if limit < allowed:
            return nothing
        tokens, lengths = self._repeats.continued(end - window, limit, allowed)
        if self._breakers.single:
            punished = [token not in self._breakers.single for token in tokens.tolist()]
            tokens, lengths = tokens[punished], lengths[punished]
        return tokens, lengths
