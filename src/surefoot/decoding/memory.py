"""A sequence's state in the model's memory, and how it gets back over rejected tokens.

The state may lag behind what is committed, never run ahead of it once a round has settled. There
is one class for each way back; which one a context allows is probed by the runtime.
"""

from abc import ABC, abstractmethod

from surefoot.decoding.errors import RollbackRefusedError
from surefoot.decoding.target import Target


class Memory(ABC):
    """The memory of one live sequence.

    Attributes:
        id: the sequence's id in the model's memory.
        length: how many tokens it has absorbed.
    """

    def __init__(self, target: Target, sequence_id: int) -> None:
        self._target = target
        self.id = sequence_id
        self.length = 0

    @property
    def longest_draft(self) -> int:
        """Most draft tokens that could be undone now at a price that a draft is worth."""
        return 1 << 30

    @property
    def forkable(self) -> tuple[int, int]:
        """The id of a sequence with a state of this text that can be forked or saved now, and how
        many tokens are in it."""
        return self.id, self.length

    def brace(self) -> None:  # noqa: B027 - most kinds need nothing
        """Make sure that the present length can be reached again after a draft."""

    def absorbed(self, tokens: int) -> None:
        """Take note that a pass has added that many tokens."""
        self.length += tokens

    def shifted(self, tokens: int) -> None:
        """Take note that so many tokens in the middle have been given up."""
        self.length -= tokens

    def settle(self, length: int) -> bool:
        """Go back to the greatest reachable length that is not above `length`.

        Returns:
            Whether tokens had to be undone. `self.length` says where the memory stands now.

        Raises:
            RollbackRefusedError: the model did not do what it was found able to do.
        """
        if length >= self.length:
            return False
        self._go_back(self.reach(length))
        return True

    def share(self, other: "Memory") -> None:
        """Begin with all that another sequence's memory holds, copy-on-write.

        Raises:
            RollbackRefusedError: the model can't share it as it stands. Nothing is held then.
        """
        self.clear()
        self._target.fork(other.id, self.id, 0, other.length)
        self.length = other.length

    def restored(self, length: int) -> None:
        """Take note that the sequence, which was empty, holds so many tokens of a kept state."""
        self.length = length

    @abstractmethod
    def reach(self, length: int) -> int:
        """The greatest length, not above the given one, that the memory can stand at."""

    def clear(self) -> None:
        """Forget everything."""
        self._target.drop(self.id)
        self.length = 0

    @abstractmethod
    def _go_back(self, length: int) -> None:
        """Go back to a length that `reach` gave, or to a lesser one."""

    def _cut(self, length: int) -> None:
        if not self._target.cut(self.id, length):
            raise RollbackRefusedError(
                f"sequence {self.id}: the model refused to go back from {self.length} tokens "
                f"to {length}"
            )
        self.length = length


class CuttableMemory(Memory):
    """Attention: any tail can be cut off."""

    def reach(self, length: int) -> int:
        """Any length that was absorbed."""
        return min(length, self.length)

    def _go_back(self, length: int) -> None:
        self._cut(length)


class ForkedMemory(Memory):
    """Recurrent or hybrid: a spare sequence follows the live one, and lends its state back.

    The spare shares attention cells with the live sequence and holds on to the recurrent state
    that the live one had at `fork_length`. Both moves touch only the range between two drafts,
    so their cost does not grow with the context.
    """

    def __init__(self, target: Target, sequence_id: int, spare_id: int) -> None:
        super().__init__(target, sequence_id)
        self._spare = spare_id
        self.fork_length = 0

    def brace(self) -> None:
        """Let the spare follow up to the present length."""
        if self.fork_length < self.length:
            self._target.fork(self.id, self._spare, self.fork_length, self.length)
            self.fork_length = self.length

    def clear(self) -> None:
        """Forget both sequences."""
        super().clear()
        self._target.drop(self._spare)
        self.fork_length = 0

    def reach(self, length: int) -> int:
        """The present length, the fork's, or nothing."""
        if length >= self.length:
            return self.length
        return self.fork_length if self.fork_length <= length else 0

    def _go_back(self, length: int) -> None:
        if length == 0:
            self.clear()
            return
        # One cell is enough to point the live sequence at the spare's recurrent state.
        self._target.fork(self._spare, self.id, self.fork_length - 1, self.fork_length)
        self._cut(self.fork_length)


class SnapshotMemory(ForkedMemory):
    """Recurrent with a few snapshots: short tails of the last pass can be cut, others need a fork.

    Snapshots belong to the last pass, so they reach no further back than its first token. After
    such a cut the model's memory is in order again only once a pass has run: until then it can't be
    forked (libllama would fork the state from before the cut), so the next draft must be short.
    """

    def __init__(self, target: Target, sequence_id: int, spare_id: int, snapshots: int) -> None:
        super().__init__(target, sequence_id, spare_id)
        self._snapshots = snapshots
        self._last_pass = 0
        self._just_cut = False

    @property
    def longest_draft(self) -> int:
        """As many tokens as there are snapshots, if it can't be forked now."""
        return self._snapshots if self._just_cut else super().longest_draft

    @property
    def forkable(self) -> tuple[int, int]:
        """The present state or, between a cut and the next pass, the fork's."""
        return (self._spare, self.fork_length) if self._just_cut else super().forkable

    def brace(self) -> None:
        """Fork where that is possible: a snapshot may be refused, and long drafts need it."""
        if not self._just_cut:
            super().brace()

    def absorbed(self, tokens: int) -> None:
        """Take note of the pass, whose tokens are the ones with snapshots."""
        super().absorbed(tokens)
        self._last_pass = tokens
        self._just_cut = False

    def clear(self) -> None:
        """Forget everything, snapshots included."""
        super().clear()
        self._last_pass = 0
        self._just_cut = False

    def reach(self, length: int) -> int:
        """What a snapshot holds, else what the fork does."""
        return length if self._has_snapshot(length) else super().reach(length)

    def _go_back(self, length: int) -> None:
        if self._has_snapshot(length) and self._target.cut(self.id, length):
            self.length = length
            self._just_cut = True
        else:
            self._go_back_to_fork(super().reach(length))
        self._last_pass = 0

    def _go_back_to_fork(self, length: int) -> None:
        if self._just_cut and length > 0:
            # It can't take part in a fork, unless it holds nothing.
            self._target.drop(self.id)
            self._target.fork(self._spare, self.id, 0, length)
            self.length = length
            self._just_cut = False
        else:
            super()._go_back(length)

    def _has_snapshot(self, length: int) -> bool:
        undone = self.length - length
        return 0 < undone <= self._snapshots and undone < self._last_pass


class RigidMemory(Memory):
    """No way back but to the start: good for plain decoding only."""

    longest_draft = 0

    def reach(self, length: int) -> int:
        """The present length or nothing."""
        return self.length if length >= self.length else 0

    def _go_back(self, length: int) -> None:  # noqa: ARG002 - the start is all it can reach
        self.clear()


def memory_for(target: Target, sequence_id: int, spare_id: int) -> Memory:
    """The kind of memory that the target's roll-back calls for.

    Args:
        target: the model.
        sequence_id: id of the live sequence.
        spare_id: id that forks may use; unused where tails can be cut.
    """
    rollback = target.rollback
    match rollback.kind:
        case "cut":
            return CuttableMemory(target, sequence_id)
        case "snapshots":
            return SnapshotMemory(target, sequence_id, spare_id, snapshots=rollback.cut or 0)
        case "fork":
            return ForkedMemory(target, sequence_id, spare_id)
        case "none":
            return RigidMemory(target, sequence_id)
