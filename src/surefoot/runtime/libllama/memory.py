"""The memory of a context's sequences: forks, cuts, and what they may be trusted with.

libllama's own answers are not enough for that. A cut by way of a snapshot is granted although the
snapshot belongs to another pass, or to a state that two sequences share; a fork forgets that such
a cut is still to be done. Both give wrong logits without a word, so both are refused here.
"""

from collections.abc import Iterable

from surefoot.decoding import Rollback, RollbackRefusedError
from surefoot.runtime.libllama import binding

_ALL = -1


class SequenceMemory:
    """What sequences have absorbed, by id.

    Args:
        handle: libllama's memory.
        sequences: ids are below this number.
        snapshots: recurrent states kept of each sequence.
        window: tokens that sliding-window attention looks back, itself included; 0 if there is
            none, or if cells stay after it has passed.

    Attributes:
        rollback: what the context can do; None while it is being found out, when everything is
            tried that is asked for.
    """

    def __init__(self, handle: int, sequences: int, snapshots: int, window: int) -> None:
        self._handle = handle
        self._sequences = sequences
        self._snapshots = snapshots
        self._window = window
        self._reach: dict[int, int] = {}
        self._owing: set[int] = set()
        self._sharing: dict[int, set[int]] = {}
        self.rollback: Rollback | None = None

    def length(self, sequence: int) -> int:
        """How many tokens a sequence has absorbed."""
        return binding.llama_memory_seq_pos_max(self._handle, sequence) + 1

    def absorbed(self, sequences: Iterable[int], reach: dict[int, int]) -> None:
        """Take note of a pass, in which sequences that owed it took part.

        Args:
            sequences: all that were in it.
            reach: for each sequence whose snapshots are good, the width that it had; snapshots
                go no further back than the first token of the last pass.
        """
        if self._snapshots:
            self._reach = reach
            self._owing.difference_update(sequences)

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """Let `copy` share what `source` absorbed at [start, end); see `Target.fork`.

        Raises:
            RollbackRefusedError: one of them was cut by way of a snapshot and has not been
                decoded since, the source is not as long as that, or the copy should be empty and
                is not.
        """
        self._check_ids(source, copy)
        if source == copy or start >= end:
            return
        if not self._owing.isdisjoint((source, copy)):
            raise RollbackRefusedError(
                f"sequence {source} can't be forked to {copy}: one of them was cut by way of a "
                "snapshot, and must be in a pass before it can take part in a fork"
            )
        if end > self.length(source):
            raise RollbackRefusedError(
                f"sequence {source} can't be forked up to token {end}: it holds "
                f"{self.length(source)}"
            )
        if start == 0 and self.length(copy) > 0:
            # What is left there would mix with what it is to share, without a word.
            raise RollbackRefusedError(
                f"sequence {source} can't be forked to {copy}, which has not been forgotten"
            )
        # They share a state from now on, and a cut by way of a snapshot would move both.
        self._reach.pop(source, None)
        self._reach.pop(copy, None)
        binding.llama_memory_seq_cp(self._handle, source, copy, start, end)
        together = self._sharing.get(source, {source}) | self._sharing.get(copy, {copy})
        self._sharing.update(dict.fromkeys(together, together))

    def cut(self, sequence: int, length: int) -> bool:
        """Forget all but the first `length` tokens; False, and nothing changed, if it can't.

        Raises:
            RollbackRefusedError: libllama said that it had done so, and has not.
        """
        self._check_ids(sequence)
        if length <= 0:
            self.drop(sequence)
            return True
        held = self.length(sequence)
        if length > held or (length < held and not self._reaches(sequence, length, held)):
            return False
        # Equal lengths are no empty cut: after a fork has replaced the recurrent state, which
        # then decides about the length, attention cells behind it remain.
        if not binding.llama_memory_seq_rm(self._handle, sequence, length, _ALL):
            return False
        if self.length(sequence) != length:
            raise RollbackRefusedError(
                f"sequence {sequence}: libllama cut it to {self.length(sequence)} tokens and not, "
                f"as it was told and said, to {length}"
            )
        if self._snapshots and length < held:
            self._reach.pop(sequence, None)
            self._owing.add(sequence)
        return True

    def loaded(self, sequence: int) -> None:
        """Take note that a sequence's state was replaced by a saved one."""
        self._reach.pop(sequence, None)
        self._owing.discard(sequence)

    def whole(self, sequence: int) -> bool:
        """Whether a sequence's state is what it should be: not one of which a cut, by way of a
        snapshot, has still to be carried out by the next pass."""
        self._check_ids(sequence)
        return sequence not in self._owing

    def shift(self, sequence: int, keep: int, discard: int) -> bool:
        """Forget tokens in the middle, and move those behind down; see `Runtime.shift`.

        libllama moves cells, whosesoever they are. So it is refused for a sequence that has shared
        cells with another one, unless that has been dropped since.
        """
        self._check_ids(sequence)
        end = keep + discard
        if len(self._sharing.get(sequence, ())) > 1:
            return False
        if not binding.llama_memory_seq_rm(self._handle, sequence, keep, end):
            return False
        binding.llama_memory_seq_add(self._handle, sequence, end, _ALL, -discard)
        return True

    def drop(self, sequence: int) -> None:
        """Forget a sequence altogether.

        If libllama does not, even when told again, neither passes nor forks that take it for empty
        are made any more.
        """
        self._check_ids(sequence)
        self._sharing.pop(sequence, set()).discard(sequence)
        if not binding.llama_memory_seq_rm(self._handle, sequence, _ALL, _ALL):
            binding.llama_memory_seq_rm(self._handle, sequence, _ALL, _ALL)
        self._reach.pop(sequence, None)
        self._owing.discard(sequence)

    def _reaches(self, sequence: int, length: int, held: int) -> bool:
        """Whether a cut to fewer tokens leaves all that the next token needs."""
        if self.rollback is not None and self.rollback.cut is not None:
            undone = held - length
            return undone <= self.rollback.cut and undone < self._reach.get(sequence, 0)
        if self._window:
            # The token at position `length` sees itself and window - 1 tokens before it.
            oldest_needed = max(0, length - self._window + 1)
            return binding.llama_memory_seq_pos_min(self._handle, sequence) <= oldest_needed
        return True

    def _check_ids(self, *ids: int) -> None:
        for sequence in ids:
            if not 0 <= sequence < self._sequences:
                raise ValueError(f"there is no sequence {sequence}: {self._sequences} in all")
