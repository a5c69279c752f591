"""What the simulated memories have in common, and the one that is made of two.

`attention.py` and `recurrent.py` hold the two elementary kinds.
"""

from collections.abc import Hashable
from collections.abc import Sequence as Series
from typing import Any, Literal, NamedTuple, Protocol

MemoryKind = Literal["attention", "windowed", "recurrent", "hybrid"]


class MisuseError(Exception):
    """The caller broke the runtime's rules; libllama would abort the process or corrupt text.

    Not a `SurefootError`, so that nothing recovers from it by mistake.
    """


class Reading(NamedTuple):
    """What the model sees in a sequence's memory after one more token.

    Attributes:
        digest: a number that depends on every token in sight and its place.
        recent: the last token but one and the last token, as the memory has them.
        layout: a number that depends on the cells in which the sequence lies.
    """

    digest: int
    recent: tuple[int, int]
    layout: int


class Addresses:
    """Hands out the cells of one kind of device memory: never the same twice."""

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """A cell's address."""
        self._next += 1
        return self._next


class SimulatedMemory(Protocol):
    """The memory of all sequences of one context."""

    def length(self, sequence: int) -> int:
        """How many tokens a sequence has absorbed."""

    def absorb(self, sequence: int, tokens: Series[int], outputs: int) -> list[Reading]:
        """Take in one pass's tokens; a reading for each of the last `outputs`."""

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """As `Target.fork`."""

    def cut(self, sequence: int, length: int) -> bool:
        """As `Target.cut`."""

    def drop(self, sequence: int) -> None:
        """As `Target.drop`."""

    def state(self, sequence: int) -> Hashable:
        """All that later logits depend on; equal states give equal logits."""

    def scramble(self, sequence: int, garbage: int) -> None:
        """Leave the sequence as a failed pass may: neither old nor new nor right."""

    def dump(self, sequence: int) -> list[Any]:
        """All that the sequence holds, in numbers and lists.

        Raises:
            StateError: a cut has to be followed by a pass first.
        """

    def restore(self, sequence: int, dumped: list[Any]) -> None:
        """Let an empty sequence hold what was dumped, in cells of its own."""

    @property
    def cells(self) -> int:
        """How many attention cells are in use."""


class HybridMemory:
    """Attention in some layers, recurrence in others: a tail is cut in both or in neither."""

    def __init__(self, attention: SimulatedMemory, recurrent: SimulatedMemory) -> None:
        self._attention = attention
        self._recurrent = recurrent

    def length(self, sequence: int) -> int:
        """The length that both parts agree on."""
        lengths = self._attention.length(sequence), self._recurrent.length(sequence)
        if lengths[0] != lengths[1]:
            raise MisuseError(
                f"sequence {sequence}: attention holds {lengths[0]} tokens, the recurrent state "
                f"{lengths[1]}"
            )
        return lengths[0]

    def absorb(self, sequence: int, tokens: Series[int], outputs: int) -> list[Reading]:
        """Both parts absorb; the readings depend on both."""
        attention = self._attention.absorb(sequence, tokens, outputs)
        recurrent = self._recurrent.absorb(sequence, tokens, outputs)
        return [
            Reading(
                digest=hash((a.digest, r.digest)),
                recent=(a.recent[0], r.recent[1]),
                layout=hash((a.layout, r.layout)),
            )
            for a, r in zip(attention, recurrent, strict=True)
        ]

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """Share a range of cells, and the recurrent state as it is."""
        self._attention.fork(source, copy, start, end)
        self._recurrent.fork(source, copy, start, end)

    def cut(self, sequence: int, length: int) -> bool:
        """Cut both or, if the recurrent part refuses, neither."""
        return self._recurrent.cut(sequence, length) and self._attention.cut(sequence, length)

    def drop(self, sequence: int) -> None:
        """Drop both parts."""
        self._attention.drop(sequence)
        self._recurrent.drop(sequence)

    def state(self, sequence: int) -> Hashable:
        """Both states."""
        return self._attention.state(sequence), self._recurrent.state(sequence)

    def scramble(self, sequence: int, garbage: int) -> None:
        """Scramble both parts, each in its own way."""
        self._attention.scramble(sequence, garbage)
        self._recurrent.scramble(sequence, garbage + 1)

    def dump(self, sequence: int) -> list[Any]:
        """Both parts."""
        return [self._attention.dump(sequence), self._recurrent.dump(sequence)]

    def restore(self, sequence: int, dumped: list[Any]) -> None:
        """Both parts."""
        self._attention.restore(sequence, dumped[0])
        self._recurrent.restore(sequence, dumped[1])

    @property
    def cells(self) -> int:
        """Those of the attention part."""
        return self._attention.cells
