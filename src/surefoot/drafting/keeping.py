"""Drafters whose memory of a text is kept, saved and put back together with the target's.

Most need nothing of the kind: n-grams are read from the tokens, and a draft model absorbs a text
that comes back by itself. A head that is fed the target's rows can't, since rows are seen once.
"""

from collections.abc import Sequence as Series
from typing import Protocol, runtime_checkable


@runtime_checkable
class KeepsStates(Protocol):
    """A drafter that takes part when the target's memory is forked, saved or put back.

    Sequences go by the target's ids, those of kept forks included. What fails is given up: the
    drafter then begins anew, and nothing is raised.
    """

    @property
    def name(self) -> str:
        """The drafter's name."""

    def keep(self, source: int, copy: int, length: int) -> None:
        """Let a sequence know all that is known of the first tokens of another one."""

    def save(self, sequence: int) -> bytes:
        """All that is known of a sequence; empty if that can't be told."""

    def load(self, sequence: int, tokens: Series[int], state: bytes) -> None:
        """Know what was saved; of an empty state nothing.

        Args:
            sequence: the target's id.
            tokens: the text that the target's memory holds there now.
            state: from `save`.
        """


@runtime_checkable
class _Group(Protocol):
    @property
    def members(self) -> Series[object]:
        """The drafters that a drafter is made of."""


def keepers_in(drafter: object) -> list[KeepsStates]:
    """Those who keep states, in a drafter and in what it is made of."""
    if isinstance(drafter, _Group):
        return [keeper for member in drafter.members for keeper in keepers_in(member)]
    return [drafter] if isinstance(drafter, KeepsStates) else []
