"""What drafting asks of a multi-token-prediction (MTP) head, and of the target that feeds it.

A head is a layer or two trained to go on from the target's last hidden state: from the row that
the target has at position p and the token at p + 1 it tells the token at p + 2. Its memory holds
one entry for each such pair. A row of its own takes the place of the target's further on.
"""

from collections.abc import Callable
from collections.abc import Sequence as Series
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.target import Feed

Rows = NDArray[np.float32]
"""Hidden rows, shape (tokens, row size)."""

RowWatcher = Callable[[Series[Feed], Series[Rows]], None]
"""Gets each pass of a target: its feeds, and for each of them a row for each token. The rows are
good until the target's next pass, and not to be written to. It must not raise."""


class HeadFeed(NamedTuple):
    """One sequence's part of a pass through a head.

    Attributes:
        sequence: the target's id of the sequence.
        tokens: token ids, at least one.
        rows: shape (len(tokens), row size); each is the row of the position before its token.
        start: how many entries the head's memory holds of the sequence.
        output: whether the last token wants logits and a row.
    """

    sequence: int
    tokens: Series[int]
    rows: Rows
    start: int
    output: bool


class HeadOutput(NamedTuple):
    """What a head says after a token.

    Both are views into the model's own buffers: good until the next pass, not to be written to.

    Attributes:
        logits: of the token that follows, shape (vocabulary,).
        row: the head's own row at that token, shape (row size,).
    """

    logits: NDArray[np.float32]
    row: NDArray[np.float32]


class Head(Protocol):
    """One trained head, or several for one draft token each, with memory for several sequences.

    Each of several heads has a memory of its own; they are numbered from 0.
    """

    @property
    def heads(self) -> int:
        """How many trained heads there are. A single one can be fed its own rows, again and again;
        of several each is for one draft token, in their order.
        """

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are; logits have this length."""

    @property
    def batch_size(self) -> int:
        """Most tokens in one pass."""

    @property
    def room(self) -> int:
        """Most entries of a sequence."""

    def watch(self, watcher: RowWatcher) -> None:
        """Let someone have the target's rows from now on."""

    def unwatch(self, watcher: RowWatcher) -> None:
        """Have done with it."""

    def decode(self, feeds: Series[HeadFeed], head: int = 0) -> list[HeadOutput | None]:
        """Run one pass through one of the heads.

        Args:
            feeds: at least one, of different sequences.
            head: the head's number.

        Returns:
            For each feed its output; None if it wants none.

        Raises:
            DecodeError: the pass failed; the head's memory of the sequences in it is unknown.
        """

    def cut(self, sequence: int, length: int, head: int = 0) -> None:
        """Forget all but the first `length` entries of a sequence; there may be fewer.

        Raises:
            RollbackRefusedError: the memory did not go back, and must be taken as unknown.
        """


@runtime_checkable
class KeepingHead(Protocol):
    """A `Head` whose entries can be shared with the target's kept forks, and saved.

    The target's ids of kept forks are known to it as well as those of its slots.
    """

    def fork(self, source: int, copy: int, length: int, head: int = 0) -> None:
        """Let a sequence begin with the first entries of another one, in place of its own.

        Raises:
            SurefootError: that is not possible.
        """

    def save(self, sequence: int, head: int = 0) -> bytes:
        """All entries of a sequence.

        Raises:
            SurefootError: they can't be told.
        """

    def load(self, sequence: int, entries: bytes, head: int = 0) -> None:
        """Put saved entries back in place of what a sequence holds.

        Raises:
            SurefootError: they are not taken. The sequence has none then.
        """
