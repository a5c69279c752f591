"""A trail: what is known of the text in one of the target's slots, and how far heads followed it.

It goes by the tokens themselves. Whatever happens to the slot (a rejected draft, another request,
a cancelled one, a target that has to begin again), what the new text begins with is kept, and all
that hangs on other tokens is forgotten.
"""

from bisect import bisect_left
from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed, Rows, Sequence

Row = NDArray[np.float32]
"""One hidden row, shape (row size,)."""

_UNKNOWN = -1


class Trail:
    """The text in a slot, rows of it that heads still need, and the entries that they hold.

    An entry is a token together with the row of the position before it. Heads number their entries
    from 0 without gaps; here they go by the token's position in the text. The first token has no
    row before it, and an entry whose row nobody saw is left out for good.

    Args:
        slot: the target's id of the sequence.
        heads: how many trained heads there are.

    Attributes:
        slot: the same.
        entries: for each head the positions of its entries, in order.
        held: for each head how many entries its memory holds; more than it should, if drafts or
            a text that is gone are still to be cut off.
        sequence: whose text it is; None if that is not known yet.
        failures: failed passes in a row while drafting for that sequence.
    """

    def __init__(self, slot: int, heads: int) -> None:
        self.slot = slot
        self.entries: list[list[int]] = [[] for _ in range(heads)]
        self.held = [0] * heads
        self.sequence: Sequence | None = None
        self.failures = 0
        self._tokens: list[int] = []
        self._rows: dict[int, Row] = {}
        self._end = 0  # position behind the last pass's tokens
        self._agreed = 0  # so many tokens are known to be the sequence's

    def see(self, feed: Feed, rows: Rows) -> None:
        """Take note of a pass of the target: from its start on the text is this.

        Args:
            feed: the slot's part of the pass.
            rows: the row of each of its tokens; `keep` must follow while they are good.
        """
        start, end = feed.start, feed.start + len(feed.tokens)
        if start > len(self._tokens):
            self._tokens += [_UNKNOWN] * (start - len(self._tokens))
        differing = first_difference(self._tokens, feed.tokens, start)
        if differing < min(end, len(self._tokens)):
            self._forget_from(differing)
        self._tokens += feed.tokens[len(self._tokens) - start :]
        self._rows.update(zip(range(start, end), rows, strict=True))
        self._end = end

    def keep(self) -> None:
        """Copy rows of the last pass that heads still need, and its last one in any case.

        That one is needed if the next text differs from this one right behind it.
        """
        needed = min(entries[-1] if entries else 0 for entries in self.entries)
        self._rows = {
            position: row if row.base is None else row.copy()
            for position, row in self._rows.items()
            if position >= needed or position == self._end - 1
        }

    def follow(self, sequence: Sequence) -> None:
        """Forget what is not in a sequence; the text is its committed tokens from now on.

        For the same sequence as before only what is new is compared.
        """
        if sequence is not self.sequence:
            self.sequence = sequence
            self.failures = self._agreed = 0
        committed = sequence.committed
        self._fill_in(committed)
        differing = first_difference(self._tokens, committed, 0, known=self._agreed)
        if differing < len(self._tokens):
            self._forget_from(differing)
        self._tokens += committed[len(self._tokens) :]
        self._agreed = len(committed)

    def leave(self) -> None:
        """The sequence has ended; its text stays for who comes next with the same."""
        self.sequence = None

    def owed(self, head: int, end: int) -> list[int]:
        """The positions in front of `end` of entries that a head lacks and whose rows are here."""
        entries = self.entries[head]
        first = entries[-1] + 1 if entries else 1
        return [position for position in range(first, end) if position - 1 in self._rows]

    def backlog(self, end: int) -> int:
        """How many entries in front of `end` the head that lags most lacks."""
        return max(len(self.owed(head, end)) for head in range(len(self.entries)))

    def ready(self, end: int) -> bool:
        """Whether the row is here with which the entry in front of `end` is made, or made anew."""
        if end - 2 not in self._rows:
            return False
        for entries in self.entries:
            if entries and entries[-1] == end - 1:
                entries.pop()
        return True

    def tokens_at(self, positions: Series[int]) -> list[int]:
        """The tokens of some entries."""
        return [self._tokens[position] for position in positions]

    def rows_before(self, positions: Series[int]) -> list[Row]:
        """The rows of some entries whose rows are here."""
        return [self._rows[position - 1] for position in positions]

    def absorbed(self, head: int, positions: Series[int]) -> None:
        """Take note of a pass in which a head absorbed entries, and nothing else."""
        self.entries[head] += positions
        self.held[head] = len(self.entries[head])

    def lose(self, head: int) -> None:
        """A head's memory is gone."""
        self.entries[head].clear()
        self.held[head] = 0

    def copy_to(self, slot: int, length: int) -> "Trail":
        """What is known of the first tokens, for another sequence whose text begins with them."""
        copy = Trail(slot, len(self.entries))
        copy.entries = [entries[: bisect_left(entries, length)] for entries in self.entries]
        copy.held = [len(entries) for entries in copy.entries]
        copy._tokens = self._tokens[:length]
        copy._rows = {p: row for p, row in self._rows.items() if p < length}
        copy._end = len(copy._tokens)
        return copy

    @property
    def rows(self) -> dict[int, Row]:
        """The rows that heads still need, by position, and the last one."""
        return dict(self._rows)

    def put_back(self, tokens: Series[int], entries: list[list[int]], rows: dict[int, Row]) -> None:
        """Know what another trail knew of a text, whose entries the heads hold."""
        self.entries = entries
        self.held = [len(positions) for positions in entries]
        self._tokens = list(tokens)
        self._rows = rows
        self._end = len(self._tokens)

    def _forget_from(self, position: int) -> None:
        """Forget all that hangs on the tokens from a position on."""
        for entries in self.entries:
            del entries[bisect_left(entries, position) :]
        self._rows = {p: row for p, row in self._rows.items() if p < position}
        del self._tokens[position:]
        self._agreed = min(self._agreed, position)

    def _fill_in(self, committed: list[int]) -> None:
        """Learn tokens that were in the target's memory before anybody looked."""
        if _UNKNOWN in self._tokens[self._agreed :]:
            self._tokens = [
                committed[position] if token == _UNKNOWN and position < len(committed) else token
                for position, token in enumerate(self._tokens)
            ]


def first_difference(text: list[int], other: Series[int], start: int, known: int = 0) -> int:
    """The first position at which a text differs from another one, or one of them ends.

    Args:
        text: the text.
        other: the other one's tokens.
        start: the position in the text of the other one's first token.
        known: so many of the other one's tokens are known to be the same.
    """
    mine = text[start + known : start + len(other)]
    theirs = list(other[known : known + len(mine)])
    if mine == theirs:
        return start + known + len(mine)
    differing = (i for i, (one, two) in enumerate(zip(mine, theirs, strict=True)) if one != two)
    return start + known + next(differing)
