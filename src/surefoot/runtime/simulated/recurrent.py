"""Recurrent memory: one state that all absorbed tokens went into; it can be shared, not cut."""

from collections.abc import Hashable
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from surefoot.runtime.base import StateError
from surefoot.runtime.simulated.memory import Addresses, Reading


class State(NamedTuple):
    """A recurrent layer's state; never changed in place, so that sharing it is holding it.

    Attributes:
        length: how many tokens went into it.
        digest: the recurrence itself.
        convolution: the short convolution's buffer: the last token but one and the last token.
    """

    length: int = 0
    digest: int = 0
    convolution: tuple[int, int] = (-1, -1)

    def after(self, token: int) -> "State":
        """The state with one more token in it."""
        return State(self.length + 1, hash((self.digest, token)), (self.convolution[1], token))


EMPTY = State()
"""Nothing absorbed yet."""


@dataclass(slots=True)
class Track:
    """One sequence's state and where it lies.

    Attributes:
        state: the state now.
        address: the cell it lies in.
        moves: whether the next write goes to a new cell: others share this one, or it was restored.
        snapshots: the states within the last pass, the present one last.
        uncut: after a cut and before the next pass, the state from before the cut, which a fork
            would take; so it is with libllama.
    """

    address: int
    state: State = EMPTY
    moves: bool = False
    snapshots: list[State] = field(default_factory=list)
    uncut: State | None = None


class RecurrentMemory:
    """Forks are free; of a tail only the last `snapshots` tokens of the last pass can be cut.

    Args:
        snapshots: how many tokens of the last pass can be cut; 0 for none.
    """

    def __init__(self, snapshots: int = 0) -> None:
        self._addresses = Addresses()
        self._snapshots = snapshots
        self._tracks: dict[int, Track] = {}

    def length(self, sequence: int) -> int:
        """How many tokens went into the state."""
        track = self._tracks.get(sequence)
        return 0 if track is None else track.state.length

    def absorb(self, sequence: int, tokens: Series[int], outputs: int) -> list[Reading]:
        """Let the state evolve; it moves to a cell of its own if it was shared."""
        track = self._track(sequence)
        if track.moves:
            track.address = self._addresses.take()
            track.moves = False
        state = track.state
        silent = len(tokens) - outputs
        states, readings = [], []
        for offset, token in enumerate(tokens):
            state = state.after(token)
            states.append(state)
            if offset >= silent:
                readings.append(Reading(state.digest, state.convolution, track.address))
        track.state = state
        track.snapshots = states[-self._snapshots - 1 :]
        track.uncut = None
        return readings

    def fork(self, source: int, copy: int, start: int, end: int) -> None:  # noqa: ARG002
        """Let the copy have the source's state as it is now, whatever the range.

        Right after a cut that is the state from before it; see `Track`.
        """
        if (lender := self._tracks.get(source)) is None:
            return
        lender.moves = True
        state = lender.state if lender.uncut is None else lender.uncut
        self._tracks[copy] = Track(lender.address, state, moves=True)

    def cut(self, sequence: int, length: int) -> bool:
        """Go back to a snapshot of the last pass; refuse where there is none."""
        track = self._track(sequence)
        undone = track.state.length - length
        if undone <= 0:
            return True
        if length == 0:
            self.drop(sequence)
            return True
        if undone >= len(track.snapshots):
            return False
        track.uncut = track.state
        track.state = track.snapshots[-1 - undone]
        track.snapshots = []
        track.moves = True
        return True

    def drop(self, sequence: int) -> None:
        """Forget the state."""
        self._tracks.pop(sequence, None)

    def state(self, sequence: int) -> Hashable:
        """The state itself."""
        track = self._tracks.get(sequence)
        return EMPTY if track is None else track.state

    def scramble(self, sequence: int, garbage: int) -> None:
        """Spoil the state, and in half of the cases its length."""
        track = self._track(sequence)
        length, digest, convolution = track.state
        track.state = State(length + garbage % 2, hash((digest, garbage)), convolution)
        track.snapshots = []

    def dump(self, sequence: int) -> list[Any]:
        """The state."""
        track = self._tracks.get(sequence)
        if track is not None and track.uncut is not None:
            raise StateError(f"sequence {sequence} was cut, and must be in a pass first")
        state = EMPTY if track is None else track.state
        return [state.length, state.digest, list(state.convolution)]

    def restore(self, sequence: int, dumped: list[Any]) -> None:
        """The state, in a cell of its own."""
        length, digest, (before, last) = dumped
        self._tracks[sequence] = Track(
            self._addresses.take(), State(length, digest, (before, last))
        )

    @property
    def cells(self) -> int:
        """None: there is no attention."""
        return 0

    def _track(self, sequence: int) -> Track:
        track = self._tracks.get(sequence)
        if track is None:
            track = self._tracks[sequence] = Track(self._addresses.take())
        return track
