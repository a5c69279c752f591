"""What may come behind each lexeme, as letters."""

from collections.abc import Mapping
from typing import NamedTuple

from surefoot.constraints.gbnf.nodes import Node, Reference, Token
from surefoot.constraints.gbnf.parts import Grammar, Lexeme, Parsed, Part


def following(grammar: Grammar, first: Mapping[Node, int]) -> dict[Node, int]:
    """The letters that may come right behind each lexeme.

    Args:
        grammar: all rules.
        first: the letters that each lexeme may begin with.
    """
    beginnings = _beginnings(grammar, first)
    behind_rule = dict.fromkeys(grammar, 0)
    behind = dict.fromkeys(first, 0)

    def spread(part: Part, after: int) -> None:
        match part:
            case Lexeme(node):
                behind[node] |= after
            case Reference(name):
                behind_rule[name] |= after
            case Parsed(parts, either, _, most):
                if most != 1:
                    after |= _beginning(part, beginnings, first).letters
                for inner in reversed(parts):
                    spread(inner, after)
                    if not either:
                        begun = _beginning(inner, beginnings, first)
                        after = begun.letters | (after if begun.empty else 0)

    known: list[int] = []
    while known != (now := [*behind_rule.values(), *behind.values()]):
        known = now
        for name, part in grammar.items():
            spread(part, behind_rule[name])
    return behind


class _Beginning(NamedTuple):
    """How a part may begin: with which letters, or not at all, since it may be empty."""

    letters: int
    empty: bool


def _beginnings(grammar: Grammar, first: Mapping[Node, int]) -> dict[str, _Beginning]:
    found = dict.fromkeys(grammar, _Beginning(0, False))
    grown = True
    while grown:
        grown = False
        for name in reversed(grammar):  # rules mostly come before those that they name
            more = _beginning(grammar[name], found, first)
            grown = grown or more != found[name]
            found[name] = more
    return found


def _beginning(
    part: Part, rules: Mapping[str, _Beginning], first: Mapping[Node, int]
) -> _Beginning:
    match part:
        case Lexeme(node):
            return _Beginning(first[node], False)
        case Reference(name):
            return rules[name]
        case Token():
            return _Beginning(0, False)
        case Parsed(parts, either, least):
            inner = [_beginning(found, rules, first) for found in parts]
            if either:
                letters, empty = 0, any(begun.empty for begun in inner)
                for begun in inner:
                    letters |= begun.letters
            else:
                letters, empty = 0, True
                for begun in inner:
                    letters |= begun.letters
                    if not begun.empty:
                        empty = False
                        break
            return _Beginning(letters, empty or least == 0)
