"""What a GBNF grammar consists of. Nodes are values: equal ones mean the same."""

from collections.abc import Iterator
from dataclasses import dataclass

LAST_CHARACTER = 0x10FFFF

Range = tuple[int, int]
"""Code points from the first to the last, both included."""


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of a set.

    Attributes:
        ranges: the set, in ascending order, without overlaps; empty for a set that has none.
    """

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the model, whatever its text is.

    Attributes:
        token: its id.
        negated: whether any token but that one is meant.
    """

    token: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Reference:
    """A rule by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Parts that follow each other; none for the empty text."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One out of several."""

    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part several times.

    Attributes:
        part: the part.
        least: how often at least.
        most: how often at most; None for no limit.
    """

    part: "Node"
    least: int
    most: int | None


Node = Characters | Token | Reference | Chain | Either | Repeat
Rules = dict[str, Node]


def characters(ranges: list[Range], *, negated: bool = False) -> Characters:
    """A set of characters from ranges in any order; the halves of surrogate pairs are none.

    What is not in some ranges leaves out NUL, too: llama.cpp never lets it through.
    """
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        elif low <= high:
            merged.append((low, high))
    if negated:
        starts = [1, *(high + 1 for _, high in merged)]
        ends = [*(low - 1 for low, _ in merged), LAST_CHARACTER]
        merged = [(low, high) for low, high in zip(starts, ends, strict=True) if low <= high]
    cut = []
    for low, high in merged:
        cut += [(low, min(high, 0xD7FF)), (max(low, 0xE000), high)]
    return Characters(tuple((low, high) for low, high in cut if low <= high))


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below one."""
    match node:
        case Chain(parts):
            return parts
        case Either(options):
            return options
        case Repeat(part):
            return (part,)
    return ()


def below(node: Node) -> Iterator[Node]:
    """A node and all below it."""
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting.extend(children(found))
