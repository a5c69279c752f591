"""Targets whose logits somebody else picks; the memory behind them is a simulated one."""

from collections.abc import Callable
from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed, Rollback, Widths
from surefoot.runtime.simulated import SimulatedRuntime

Pick = Callable[[Feed, int], int]
"""The token that shall lead after the feed's token at an index; asked in order, at every pass."""


class AdversarialTarget:
    """Runs a simulated runtime for its memory and its checks, and makes up the logits.

    Args:
        runtime: holds the memory.
        pick: says which token leads in each row.
    """

    def __init__(self, runtime: SimulatedRuntime, pick: Pick) -> None:
        self.runtime = runtime
        self.pick = pick

    @property
    def rollback(self) -> Rollback:
        return self.runtime.rollback

    @property
    def logit_noise(self) -> float:
        return 0.0

    @property
    def widths(self) -> Widths | None:
        return self.runtime.widths

    @property
    def vocabulary_size(self) -> int:
        return self.runtime.vocabulary_size

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        self.runtime.decode(feeds)
        return [self._rows(feed) for feed in feeds]

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        self.runtime.fork(source, copy, start, end)

    def cut(self, sequence: int, length: int) -> bool:
        return self.runtime.cut(sequence, length)

    def drop(self, sequence: int) -> None:
        self.runtime.drop(sequence)

    def _rows(self, feed: Feed) -> NDArray[np.float32]:
        rows = np.zeros((feed.outputs, self.vocabulary_size), dtype=np.float32)
        first = len(feed.tokens) - feed.outputs
        for offset in range(feed.outputs):
            rows[offset, self.pick(feed, first + offset)] = 1.0
        return rows


def scripted(text: Series[int]) -> Pick:
    """Say a text by position, whatever came before; past its end, its last token."""
    return lambda feed, index: text[min(feed.start + index + 1, len(text) - 1)]


def agreeing_up_to(feed: Feed, index: int, picked: Series[int]) -> bool:
    """Whether the draft agreed so far, so that the row at `index` can matter.

    Args:
        feed: the pass's feed.
        index: which of its tokens the row follows.
        picked: what was picked for the feed's rows before.
    """
    first = len(feed.tokens) - feed.outputs
    return list(feed.tokens[first + 1 : index + 1]) == list(picked)
