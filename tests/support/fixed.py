"""A target with fixed logits after each token, fast enough for many draws."""

from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed, Rollback


class FixedTarget:
    """A first-order Markov chain: row `t` of the table is the logits after token `t`.

    Its memory can be cut; of a sequence it keeps the length alone.
    """

    rollback = Rollback(cut=None, fork=False)
    logit_noise = 0.0
    widths = None

    def __init__(self, table: NDArray[np.float32]) -> None:
        self._table = table
        self.vocabulary_size = len(table)
        self._lengths: dict[int, int] = {}

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        logits = []
        for sequence, tokens, start, outputs, _ in feeds:
            assert self._lengths.get(sequence, 0) == start
            self._lengths[sequence] = start + len(tokens)
            logits.append(self._table[list(tokens[len(tokens) - outputs :])])
        return logits

    def fork(self, source: int, copy: int, start: int, end: int) -> None:  # noqa: ARG002
        raise AssertionError("nobody needs to fork what can be cut")

    def cut(self, sequence: int, length: int) -> bool:
        self._lengths[sequence] = length
        return True

    def drop(self, sequence: int) -> None:
        self._lengths.pop(sequence, None)
