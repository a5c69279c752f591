"""Attention memory: one cell for each token, which sequences can share; all of it or a window."""

from collections.abc import Hashable
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Any

from surefoot.runtime.simulated.memory import Addresses, Reading


@dataclass(slots=True, eq=False)
class Cell:
    """A token's key and value.

    Attributes:
        address: where in the device's memory it lies.
        position: the token's position.
        token: the token.
        value: what attention reads there.
        owners: how many sequences hold it.
    """

    address: int
    position: int
    token: int
    value: int
    owners: int = 1


@dataclass(slots=True)
class Strip:
    """The cells of one sequence.

    Attributes:
        cells: by position; more than one at a position if the caller left a stale one behind.
        first: no cell lies below this position.
        end: the position behind the last cell.
        digest: sum of the cells' values.
        layout: sum of the hashes of the cells' addresses.
    """

    cells: dict[int, tuple[Cell, ...]] = field(default_factory=dict)
    first: int = 0
    end: int = 0
    digest: int = 0
    layout: int = 0

    def add(self, cell: Cell) -> None:
        """Hold one more cell."""
        position = cell.position
        others = self.cells.get(position)
        self.cells[position] = (cell,) if others is None else (*others, cell)
        self.digest += cell.value
        self.layout += hash((cell.address,))
        self.first = min(self.first, position)
        self.end = max(self.end, position + 1)

    def remove(self, position: int) -> None:
        """Let go of the cells at a position."""
        for cell in self.cells.pop(position, ()):
            cell.owners -= 1
            self.digest -= cell.value
            self.layout -= hash((cell.address,))


class AttentionMemory:
    """Any tail can be cut, as long as the window before it is still there.

    Args:
        window: how many tokens back the model sees; None for all.
        reserve: how many cells behind the window stay until they vanish; a cell that another
            sequence shares stays longer, as in llama.cpp's unified cache.
    """

    def __init__(self, window: int | None = None, reserve: int = 0) -> None:
        self._addresses = Addresses()
        self._window = window
        self._reserve = reserve
        self._strips: dict[int, Strip] = {}

    def length(self, sequence: int) -> int:
        """The position behind the last cell; holes go unnoticed, as in llama.cpp."""
        strip = self._strips.get(sequence)
        return 0 if strip is None else strip.end

    def absorb(self, sequence: int, tokens: Series[int], outputs: int) -> list[Reading]:
        """Give each token a cell behind the others."""
        strip = self._strips.setdefault(sequence, Strip())
        silent = len(tokens) - outputs
        readings = []
        for offset, token in enumerate(tokens):
            position = strip.end
            strip.add(Cell(self._addresses.take(), position, token, hash((token, position))))
            if offset >= silent:
                readings.append(self._read(strip))
        self._expire(strip)
        return readings

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """Let the copy hold the source's cells at positions [start, end), if it doesn't yet."""
        if (lender := self._strips.get(source)) is None:
            return
        strip = self._strips.setdefault(copy, Strip(first=start))
        for position in range(max(start, lender.first), min(end, lender.end)):
            held = strip.cells.get(position, ())
            for cell in lender.cells.get(position, ()):
                if cell not in held:
                    strip.add(cell)
                    cell.owners += 1
        # Whatever is written from here on lies elsewhere.
        self._addresses.take()

    def cut(self, sequence: int, length: int) -> bool:
        """Remove the cells from a position on; refuse if the window before it has vanished."""
        strip = self._strips.get(sequence)
        if strip is None or length >= strip.end:
            return True
        if self._window is not None and length > 0:
            needed = range(max(0, length - self._window + 1), length)
            if any(position not in strip.cells for position in needed):
                return False
        for position in range(length, strip.end):
            strip.remove(position)
        strip.end = length
        self._addresses.take()
        return True

    def shift(self, sequence: int, keep: int, discard: int) -> bool:
        """Remove cells in the middle, and move those behind; not if others share any of them."""
        strip = self._strips.setdefault(sequence, Strip())
        moved = range(keep + discard, strip.end)
        if any(cell.owners > 1 for at in moved for cell in strip.cells.get(at, ())):
            return False
        for position in range(keep, keep + discard):
            strip.remove(position)
        cells = [cell for at in moved for cell in strip.cells.get(at, ())]
        for position in moved:
            strip.remove(position)
        strip.end = keep
        for cell in cells:
            position = cell.position - discard
            strip.add(Cell(cell.address, position, cell.token, hash((cell.token, position))))
        return True

    def drop(self, sequence: int) -> None:
        """Remove all cells."""
        if (strip := self._strips.pop(sequence, None)) is not None:
            for position in list(strip.cells):
                strip.remove(position)
        self._addresses.take()

    def state(self, sequence: int) -> Hashable:
        """The tokens in sight of the next one, with their positions."""
        strip = self._strips.get(sequence, Strip())
        start = 0 if self._window is None else max(0, strip.end - self._window + 1)
        return tuple(
            (position, cell.token)
            for position in range(start, strip.end)
            for cell in strip.cells.get(position, ())
        )

    def scramble(self, sequence: int, garbage: int) -> None:
        """Spoil the values, and in half of the cases lose the last cell."""
        strip = self._strips.setdefault(sequence, Strip())
        for cells in strip.cells.values():
            for cell in cells:
                if cell.owners == 1:
                    strip.digest -= cell.value
                    cell.value = hash((cell.value, garbage))
                    cell.token ^= 1
                    strip.digest += cell.value
        if garbage % 2 and strip.end:
            strip.remove(strip.end - 1)
            strip.end -= 1

    def dump(self, sequence: int) -> list[Any]:
        """The cells, by position, and where the next one goes."""
        strip = self._strips.get(sequence, Strip())
        cells = [[c.position, c.token, c.value] for held in strip.cells.values() for c in held]
        return [strip.first, strip.end, cells]

    def restore(self, sequence: int, dumped: list[Any]) -> None:
        """New cells with the same in them."""
        first, end, cells = dumped
        strip = self._strips[sequence] = Strip(first=first)
        for position, token, value in cells:
            strip.add(Cell(self._addresses.take(), position, token, value))
        strip.end = end

    @property
    def cells(self) -> int:
        """Cells that somebody holds, each counted once."""
        strips = self._strips.values()
        return len({id(c) for s in strips for held in s.cells.values() for c in held})

    def _read(self, strip: Strip) -> Reading:
        """What the token behind which `strip` ends can see."""
        last = strip.end - 1
        recent = _token(strip, last - 1), _token(strip, last)
        if self._window is None:
            return Reading(strip.digest, recent, strip.layout)
        seen = [
            cell
            for position in range(max(0, strip.end - self._window), strip.end)
            for cell in strip.cells.get(position, ())
        ]
        layout = sum(hash((cell.address,)) for cell in seen)
        return Reading(sum(cell.value for cell in seen), recent, layout)

    def _expire(self, strip: Strip) -> None:
        """Let cells vanish that have fallen out of the window and that nobody shares."""
        if self._window is None:
            return
        while strip.first < strip.end - self._window - self._reserve:
            if any(cell.owners > 1 for cell in strip.cells.get(strip.first, ())):
                break
            strip.remove(strip.first)
            strip.first += 1


def _token(strip: Strip, position: int) -> int:
    """The token at a position: the last one written there; -1 if there is none."""
    cells = strip.cells.get(position)
    return cells[-1].token if cells else -1
