"""Character sets as bits: characters that no set of a grammar tells apart are one letter."""

from bisect import bisect_left
from collections.abc import Iterable

from surefoot.constraints.gbnf.nodes import Characters, Node, below


class Alphabet:
    """The letters of some nodes.

    Args:
        nodes: all that will be asked about.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        starts = {
            start
            for node in nodes
            for found in below(node)
            if isinstance(found, Characters)
            for low, high in found.ranges
            for start in (low, high + 1)
        }
        self._starts = sorted(starts)
        self._known: dict[Characters, int] = {}

    def letters(self, node: Characters) -> int:
        """A set's letters, as the bits of a number."""
        if node not in self._known:
            found = 0
            for low, high in node.ranges:
                first = bisect_left(self._starts, low)
                behind = bisect_left(self._starts, high + 1)
                found |= (1 << behind) - (1 << first)
            self._known[node] = found
        return self._known[node]
