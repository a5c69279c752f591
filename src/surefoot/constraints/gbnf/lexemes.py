"""Choosing lexemes that a greedy lexer can't get wrong.

A greedy lexer goes on with a lexeme as long as it can. That is wrong where the lexeme might have
ended, and what may follow it begins with the same character. Such lexemes are split, down to
single characters if need be, which leaves the decision to the parser.
"""

from collections.abc import Container

from surefoot.constraints.gbnf.checking import can_be_empty
from surefoot.constraints.gbnf.greed import greedy
from surefoot.constraints.gbnf.nodes import (
    Chain,
    Characters,
    Either,
    Node,
    Reference,
    Repeat,
    Token,
)
from surefoot.constraints.gbnf.parts import Grammar, Lexeme, Parsed, Part
from surefoot.constraints.gbnf.regular import is_regular, not_empty

MOST_ROUNDS = 20
"""After so many rounds of splitting, all that is left is split into characters."""


def chosen(rules: dict[str, Node]) -> Grammar:
    """The rules with their lexemes.

    Args:
        rules: all rules; those that are regular are written out where others name them.
    """
    if len(rules) == 1 and all(map(is_regular, rules.values())):
        return {name: _part(node, set()) for name, node in rules.items()}
    split: set[Node] = set()
    for _ in range(MOST_ROUNDS):
        grammar = {name: _part(node, split) for name, node in rules.items()}
        more = greedy(grammar)
        if not more:
            return grammar
        split |= more
    return {name: _part(node, _Everything()) for name, node in rules.items()}


class _Everything(Container[Node]):
    """All nodes."""

    def __contains__(self, node: object) -> bool:
        return True


def _part(node: Node, split: Container[Node]) -> Part:
    if is_regular(node):
        return _regular(node, split)
    match node:
        case Chain(parts):
            return Parsed(tuple(_part(part, split) for part in _joined(parts, Chain, split)))
        case Either(options):
            joined = _joined(options, Either, split)
            return Parsed(tuple(_part(option, split) for option in joined), either=True)
        case Repeat(part, least, most):
            return Parsed((_part(part, split),), least=least, most=most)
        case Reference() | Token():
            return node
    raise AssertionError(f"{node} is regular")


def _joined(
    parts: tuple[Node, ...], kind: type[Chain] | type[Either], split: Container[Node]
) -> list[Node]:
    """Regular parts that stand side by side as one."""
    found: list[Node] = []
    side: list[Node] = []
    for part in (*parts, None):
        if part is not None and is_regular(part):
            side.append(part)
            continue
        whole = kind(tuple(side))
        if len(side) > 1 and not_empty(whole) not in split:
            found.append(whole)
        else:
            found.extend(side)
        side = []
        if part is not None:
            found.append(part)
    return found


def _regular(node: Node, split: Container[Node]) -> Part:
    lexeme = not_empty(node)
    if lexeme is None:
        return Parsed(())
    if isinstance(lexeme, Characters) or lexeme not in split:
        whole = Lexeme(lexeme)
        return Parsed((whole,), least=0) if can_be_empty(node, set()) else whole
    match node:
        case Chain(parts):
            return Parsed(tuple(_regular(part, split) for part in parts))
        case Either(options):
            return Parsed(tuple(_regular(option, split) for option in options), either=True)
        case Repeat(part, least, most):
            return Parsed((_regular(part, split),), least=least, most=most)
        case Characters():
            return Lexeme(node)
    raise AssertionError(f"{node} is not regular")
