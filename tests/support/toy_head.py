"""A multi-token-prediction head that is exact when it is fed right, and says nonsense otherwise.

A row of the toy target names the text up to its position. From a row and a token the toy head makes
the text with the token behind it, and asks an oracle what comes next. It looks at its memory, too:
one entry of another text, and what it says is wrong.
"""

import json
from collections.abc import Callable
from collections.abc import Sequence as Series
from typing import Any

import numpy as np

from surefoot.decoding import (
    DecodeError,
    Feed,
    HeadFeed,
    HeadOutput,
    Rows,
    RowWatcher,
    SurefootError,
)
from surefoot.runtime.simulated import SimulatedRuntime
from tests.support.oracle import Oracle

Text = tuple[int, ...]


class Texts:
    """Gives texts numbers, so that a row can name one.

    A row is (number, how many heads it has come through).
    """

    def __init__(self) -> None:
        self._numbers: dict[Text, int] = {}
        self._texts: list[Text] = []

    def row(self, text: Text, heads: int = 0) -> Rows:
        """The row that names a text."""
        if text not in self._numbers:
            self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return np.array([self._numbers[text], heads], np.float32)

    def named(self, row: Rows) -> Text:
        """The text that a row names."""
        return self._texts[int(row[0])]


class WatchedRuntime:
    """A simulated runtime whose passes can be watched; everything else is its own.

    Args:
        runtime: the runtime.
        off_by: how many positions rows are late; 0 is right.
    """

    def __init__(self, runtime: SimulatedRuntime, off_by: int = 0) -> None:
        self._runtime = runtime
        self._off_by = off_by
        self._fed: dict[int, Text] = {}
        self._saved: dict[bytes, Text] = {}
        self.texts = Texts()
        self.watchers: list[RowWatcher] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    @property
    def make_room(self) -> Callable[[], bool] | None:
        return self._runtime.make_room

    @make_room.setter
    def make_room(self, make_room: Callable[[], bool] | None) -> None:
        self._runtime.make_room = make_room

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        self._runtime.fork(source, copy, start, end)
        known = self._fed.get(source, ())[start:end]
        self._fed[copy] = (*self._fed.get(copy, ())[:start], *known)

    def save_state(self, sequence: int) -> bytes:
        state = self._runtime.save_state(sequence)
        self._saved[state] = self._fed[sequence]
        return state

    def load_state(self, sequence: int, state: bytes) -> None:
        self._runtime.load_state(sequence, state)
        self._fed[sequence] = self._saved[state]

    def decode(self, feeds: Series[Feed]) -> Any:
        logits = self._runtime.decode(feeds)
        rows = []
        for feed in feeds:
            text = (*self._fed.get(feed.sequence, ())[: feed.start], *feed.tokens)
            self._fed[feed.sequence] = text
            ends = range(feed.start + 1, len(text) + 1)
            named = [self.texts.row(text[: max(0, end - self._off_by)]) for end in ends]
            rows.append(np.stack(named))
        for watcher in self.watchers:
            watcher(feeds, rows)
        for lent in rows:
            lent.fill(np.nan)  # they are good until here
        return logits


class ToyHead:
    """A `Head` for the toy target.

    Args:
        runtime: the target.
        oracle: of the target.
        heads: how many trained heads; each of several is right for its own draft token only.
        batch_size: most tokens in one pass.
        spoil: changes what it says after a text, in place.
        fails: whether a pass fails, by its number; failed ones count.

    Attributes:
        passes: passes so far, failed ones not counted.
        widths: how many tokens each of them had.
        closed: whether it raises whatever is asked of it.
    """

    def __init__(
        self,
        runtime: WatchedRuntime,
        oracle: Oracle,
        *,
        heads: int = 1,
        batch_size: int = 128,
        spoil: Callable[[Text, Rows], None] = lambda text, logits: None,  # noqa: ARG005
        fails: Callable[[int], bool] = lambda number: False,  # noqa: ARG005
    ) -> None:
        self.heads = heads
        self.batch_size = batch_size
        self.room = runtime.context_length + 64
        self.vocabulary_size = int(runtime.vocabulary_size)
        self.passes = 0
        self.widths: list[int] = []
        self.closed = False
        self._runtime = runtime
        self._oracle = oracle
        self._spoil = spoil
        self._fails = fails
        self._calls = 0
        self._said: dict[Text, Rows] = {}
        self._memory: dict[tuple[int, int], list[Text]] = {}

    def watch(self, watcher: RowWatcher) -> None:
        self._runtime.watchers.append(watcher)

    def unwatch(self, watcher: RowWatcher) -> None:
        self._runtime.watchers.remove(watcher)

    def decode(self, feeds: Series[HeadFeed], head: int = 0) -> list[HeadOutput | None]:
        self._check_open()
        assert feeds
        assert len({feed.sequence for feed in feeds}) == len(feeds)
        assert 0 <= head < self.heads
        width = sum(len(feed.tokens) for feed in feeds)
        assert 0 < width <= self.batch_size
        for feed in feeds:
            assert len(feed.tokens) == len(feed.rows) > 0
            assert feed.start == len(self._entries(feed.sequence, head))
        self._calls += 1
        if self._fails(self._calls - 1):
            for feed in feeds:
                self._entries(feed.sequence, head).append(())  # who knows what is there
            raise DecodeError("the head's pass failed, as planned")
        self.passes += 1
        self.widths.append(width)
        return [self._absorb(feed, head) for feed in feeds]

    def cut(self, sequence: int, length: int, head: int = 0) -> None:
        self._check_open()
        del self._entries(sequence, head)[length:]

    def fork(self, source: int, copy: int, length: int, head: int = 0) -> None:
        self._check_open()
        assert length <= len(self._entries(source, head))
        self._memory[copy, head] = self._entries(source, head)[:length]

    def save(self, sequence: int, head: int = 0) -> bytes:
        self._check_open()
        return json.dumps(self._entries(sequence, head)).encode()

    def load(self, sequence: int, entries: bytes, head: int = 0) -> None:
        self._check_open()
        self._memory[sequence, head] = [tuple(text) for text in json.loads(entries)]

    def _check_open(self) -> None:
        if self.closed:
            raise SurefootError("the head is closed")

    def _entries(self, sequence: int, head: int) -> list[Text]:
        return self._memory.setdefault((sequence, head), [])

    def _absorb(self, feed: HeadFeed, head: int) -> HeadOutput | None:
        entries = self._entries(feed.sequence, head)
        for token, row in zip(feed.tokens, feed.rows, strict=True):
            entries.append((*self._runtime.texts.named(row), token))
        if not feed.output:
            return None
        text = entries[-1]
        logits = self._logits(text)
        right = all(text[: len(entry)] == entry for entry in entries)
        if self.heads > 1:
            right &= int(feed.rows[-1, 1]) == head
        if not right:
            logits = np.roll(logits, 1)
        self._spoil(text, logits)
        return HeadOutput(logits, self._runtime.texts.row(text, head + 1))

    def _logits(self, text: Text) -> Rows:
        if text not in self._said:
            self._said[text] = self._oracle.logits(text)
        return self._said[text].copy()
