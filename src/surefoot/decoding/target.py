"""What decoding asks of whatever runs the model.

Two things: one forward pass over tokens of several sequences, and ways to take a sequence's
memory back. `surefoot.runtime` builds on these protocols; nothing here knows a library.
"""

from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.widths import Widths

RollbackKind = Literal["cut", "snapshots", "fork", "none"]


class Feed(NamedTuple):
    """One sequence's part of a forward pass.

    Attributes:
        sequence: the sequence's id in the model's memory.
        tokens: token ids, at least one.
        start: position of the first token; the memory holds exactly `start` tokens before it.
        outputs: how many of the last tokens want logits; 0 for tokens that are only absorbed.
        tentative: how many of the last tokens are not committed and may be undone.
    """

    sequence: int
    tokens: Series[int]
    start: int
    outputs: int
    tentative: int = 0


@dataclass(frozen=True, slots=True)
class Rollback:
    """What a loaded context can do to undo rejected tokens, found out by trying it.

    Attributes:
        cut: how many tokens of the last pass can be cut off; None for any number, 0 for none.
        fork: whether a sequence's memory can be forked copy-on-write.
    """

    cut: int | None
    fork: bool

    @property
    def kind(self) -> RollbackKind:
        """The way that will be used. Snapshots need forks beside them, for longer drafts."""
        if self.cut is None:
            return "cut"
        if not self.fork:
            return "none"
        return "snapshots" if self.cut > 0 else "fork"


class Target(Protocol):
    """A model with memory for several sequences."""

    @property
    def rollback(self) -> Rollback:
        """What can be done to undo rejected tokens."""

    @property
    def logit_noise(self) -> float:
        """Largest difference that batch width and memory layout make to a logit."""

    @property
    def widths(self) -> Widths | None:
        """The widths to which every pass is held, by strict decoding; None for any width."""

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are; logits have this length."""

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        """Run one forward pass.

        Args:
            feeds: at least one, of different sequences.

        Returns:
            For each feed its logits, shape (outputs, vocabulary). They may be views into the
            model's own buffer: good until the next call, not to be written to.

        Raises:
            DecodeError: the pass failed; the memory of the sequences in it is unknown.
        """

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """Let `copy` share what `source` absorbed at positions [start, end), copy-on-write.

        A recurrent state is shared as it is now, whatever the range; the range saves walking
        over attention cells that both share already.
        """

    def cut(self, sequence: int, length: int) -> bool:
        """Forget all but the first `length` tokens; False, and nothing changed, if it can't."""

    def drop(self, sequence: int) -> None:
        """Forget the sequence altogether."""
