"""A grammar cut into what the lexer recognises and what the parser puts together."""

from collections.abc import Iterable
from dataclasses import dataclass

from surefoot.constraints.gbnf.nodes import Node, Reference, Token


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A regular node that the lexer recognises in one go; it has no empty text."""

    node: Node


@dataclass(frozen=True, slots=True)
class Parsed:
    """What the parser puts together.

    Attributes:
        parts: what follows each other, or the options.
        either: whether they are options.
        least: how often it comes at least.
        most: how often it comes at most; None for no limit.
    """

    parts: tuple["Part", ...]
    either: bool = False
    least: int = 1
    most: int | None = 1


Part = Lexeme | Parsed | Reference | Token
Grammar = dict[str, Part]


def lexemes_of(part: Part) -> Iterable[Lexeme]:
    """The lexemes in a part."""
    match part:
        case Lexeme():
            yield part
        case Parsed(parts):
            for inner in parts:
                yield from lexemes_of(inner)
