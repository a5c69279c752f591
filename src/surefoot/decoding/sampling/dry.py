"""DRY: a penalty on tokens that would go on repeating what stands earlier in the text.

The penalty is multiplier * base ** (length - allowed length), as llama.cpp has it, for the longest
stretch at the end of the text that occurred before in front of the token.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.sampling.breakers import Breakers
from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool

_LARGEST = 88.7228391
"""Logarithm of the largest float32, which bounds the exponent."""


class Dry:
    """Keeps the text so far in an array, and where the last breaker in it is.

    Args:
        sampling: the parameters.
        history: the tokens so far.
        breakers: what repeats do not reach across.
    """

    def __init__(self, sampling: Sampling, history: Iterable[int], breakers: Breakers) -> None:
        self._sampling = sampling
        self._breakers = breakers
        self._tokens = np.zeros(256, np.int64)
        self._length = 0
        self._head, self._tail = -1, 0
        self.active = sampling.dry_multiplier != 0 and sampling.dry_penalty_last_n != 0
        for token in history if self.active else ():
            self.advance(token)

    def advance(self, token: int) -> None:
        """Take note of a committed token."""
        if not self.active:
            return
        if self._length == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
        self._tokens[self._length] = token
        self._length += 1
        self._note_breaker()

    def _note_breaker(self) -> None:
        """See whether the last token completes a breaker; of several the latest head counts."""
        end = self._length - 1
        for back in range(min(self._longest_tail, end) + 1):
            head = end - back
            if head < self._head:
                return
            for tail in self._breakers.tails.get(int(self._tokens[head]), ()):
                if len(tail) == back and tuple(self._tokens[head + 1 : end + 1].tolist()) == tail:
                    self._head, self._tail = head, back
                    return

    @property
    def _longest_tail(self) -> int:
        tails = self._breakers.tails.values()
        return max((len(tail) for some in tails for tail in some), default=0) if tails else -1

    def apply(self, pool: Pool) -> None:
        """Make tokens that go on with a repeat less likely."""
        if not self.active:
            return
        lengths = self.repeats()
        if not lengths:
            return
        sampling = self._sampling
        most = int(_LARGEST / math.log(sampling.dry_base)) if sampling.dry_base > 1.000001 else 0
        tokens = np.array(list(lengths), np.int64)
        exponents = np.array(list(lengths.values()), np.float64) - sampling.dry_allowed_length
        if most > 0:
            exponents = np.minimum(exponents, most)
        pool.add(tokens, -sampling.dry_multiplier * sampling.dry_base**exponents)

    def repeats(self) -> dict[int, int]:
        """Tokens that would go on with a repeat, and how long it is already."""
        sampling, end = self._sampling, self._length
        window = end if sampling.dry_penalty_last_n < 0 else min(end, sampling.dry_penalty_last_n)
        allowed = sampling.dry_allowed_length
        if window <= allowed:
            return {}
        limit = window
        if end - 1 - self._head < window and self._head >= 0:
            limit = end - 1 - self._head - self._tail
        if limit < allowed:
            return {}
        text = self._tokens[end - window : end]
        found: dict[int, int] = {}
        if allowed == 0:
            found.update(dict.fromkeys(text[1:].tolist(), 0))
        for length, ends in self._matches(text, limit):
            if length >= allowed:
                found.update(dict.fromkeys(text[ends + 1].tolist(), length))
        single = [t for t in found if () in self._breakers.tails.get(t, ())]
        for token in single:
            del found[token]
        return found

    def _matches(
        self, text: NDArray[np.int64], limit: int
    ) -> Iterable[tuple[int, NDArray[np.int64]]]:
        """Where the end of a text occurred before, by rising length of what is the same."""
        last = len(text) - 1
        ends = np.arange(last)
        for length in range(1, limit + 1):
            ends = ends[ends >= length - 1]
            ends = ends[text[ends - (length - 1)] == text[last - (length - 1)]]
            if not len(ends):
                return
            yield length, ends
