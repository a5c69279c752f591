"""Repetition, presence and frequency penalties over the last tokens."""

from collections import Counter, deque
from collections.abc import Iterable

import numpy as np

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool


class Penalties:
    """Counts the tokens in a window, one more with each committed token.

    Args:
        sampling: the parameters.
        history: the tokens so far.
    """

    def __init__(self, sampling: Sampling, history: Iterable[int]) -> None:
        self._sampling = sampling
        self._window: deque[int] = deque()
        self._counts: Counter[int] = Counter()
        self.active = sampling.repeat_last_n != 0 and (
            sampling.repeat_penalty != 1
            or sampling.presence_penalty != 0
            or sampling.frequency_penalty != 0
        )
        for token in history if self.active else ():
            self.advance(token)

    def advance(self, token: int) -> None:
        """Take note of a committed token."""
        if not self.active:
            return
        self._window.append(token)
        self._counts[token] += 1
        if 0 < self._sampling.repeat_last_n < len(self._window):
            old = self._window.popleft()
            self._counts[old] -= 1
            if not self._counts[old]:
                del self._counts[old]

    def apply(self, pool: Pool) -> None:
        """Make tokens that occurred less likely, as llama.cpp does."""
        if not self.active or not self._counts:
            return
        sampling = self._sampling
        tokens = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float64, len(self._counts))
        values = pool.values_of(tokens)
        values = np.where(
            values <= 0, values * sampling.repeat_penalty, values / sampling.repeat_penalty
        )
        values -= counts * sampling.frequency_penalty + sampling.presence_penalty
        pool.replace(tokens, values)
        # Multiplying a logit multiplies what moves it.
        factor = max(sampling.repeat_penalty, 1 / sampling.repeat_penalty)
        pool.slack *= factor
