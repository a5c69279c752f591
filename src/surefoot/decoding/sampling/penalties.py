"""Repetition, presence and frequency penalties over the last tokens."""

from collections import deque
from collections.abc import Sequence as Series

import numpy as np

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool


class Penalties:
    """Counts the tokens in a window, one more with each committed token.

    The counts lie in arrays, each token's in a slot of its own, so that nothing has to be gathered
    before they are used.

    Args:
        sampling: the parameters.
        history: the tokens so far.
    """

    def __init__(self, sampling: Sampling, history: Series[int]) -> None:
        self._sampling = sampling
        self.active = sampling.repeat_last_n != 0 and (
            sampling.repeat_penalty != 1
            or sampling.presence_penalty != 0
            or sampling.frequency_penalty != 0
        )
        self._window: deque[int] = deque()
        self._slots: dict[int, int] = {}
        self._tokens = np.zeros(64, np.int64)
        self._counts = np.zeros(64, np.float64)
        if self.active:
            last = sampling.repeat_last_n
            for token in history[-last:] if last > 0 else history:
                self.advance(token)

    def advance(self, token: int) -> None:
        """Take note of a committed token."""
        if not self.active:
            return
        slot = self._slots.get(token)
        if slot is None:
            slot = self._new_slot(token)
        self._counts[slot] += 1
        if self._sampling.repeat_last_n < 0:
            return
        self._window.append(token)
        if len(self._window) > self._sampling.repeat_last_n:
            self._forget(self._window.popleft())

    def _new_slot(self, token: int) -> int:
        slot = self._slots[token] = len(self._slots)
        if slot == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._tokens[slot], self._counts[slot] = token, 0
        return slot

    def _forget(self, token: int) -> None:
        """Count a token once less. The last slot moves to where one becomes free."""
        slot = self._slots[token]
        self._counts[slot] -= 1
        if self._counts[slot]:
            return
        del self._slots[token]
        last = len(self._slots)
        if slot != last:
            moved = int(self._tokens[last])
            self._tokens[slot], self._counts[slot] = moved, self._counts[last]
            self._slots[moved] = slot

    def apply(self, pool: Pool) -> None:
        """Make tokens that occurred less likely, as llama.cpp does."""
        count = len(self._slots)
        if not self.active or not count:
            return
        sampling = self._sampling
        tokens = self._tokens[:count]
        values = pool.values_of(tokens)
        values = np.where(
            values <= 0, values * sampling.repeat_penalty, values / sampling.repeat_penalty
        )
        values -= self._counts[:count] * sampling.frequency_penalty + sampling.presence_penalty
        pool.replace(tokens, values)
        # Multiplying a logit multiplies what moves it.
        pool.slack *= max(sampling.repeat_penalty, 1 / sampling.repeat_penalty)
