"""Nodes that need no parser: their size, their texts but the empty one, their regular expression.

A node is regular if there is no token in it, and no rule that could lead back to itself.
"""

from typing import NamedTuple

from surefoot.constraints.gbnf.checking import can_be_empty
from surefoot.constraints.gbnf.nodes import (
    Chain,
    Characters,
    Either,
    Node,
    Reference,
    Repeat,
    Rules,
    Token,
    below,
    children,
)

LARGEST = 1000
"""Nodes that a rule may have with all its rules written out; a larger one stays a rule."""

DEEPEST = 150
"""Levels of nodes that such a rule may have."""


def is_regular(node: Node) -> bool:
    """Whether there is neither rule nor token in a node."""
    return not any(isinstance(found, Reference | Token) for found in below(node))


def written_out(rules: Rules) -> tuple[Rules, Rules]:
    """Put regular rules in the place of their names.

    Returns:
        The regular rules, and the others; neither name any of the former.
    """
    named = {name: _names(node) for name, node in rules.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, others in named.items():
        for other in others:
            users[other].append(name)
    missing = {name: len(others) for name, others in named.items()}
    ready = [name for name, count in missing.items() if count == 0]
    regular: Rules = {}
    extents: dict[str, _Extent] = {}
    while ready:
        name = ready.pop()
        extent = _extent(rules[name], extents)
        tokens = any(isinstance(found, Token) for found in below(rules[name]))
        if tokens or extent.nodes > LARGEST or extent.levels > DEEPEST:
            continue
        regular[name] = replaced(rules[name], regular)
        extents[name] = extent
        for user in users[name]:
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    rest = {name: replaced(node, regular) for name, node in rules.items() if name not in regular}
    return regular, rest


class _Extent(NamedTuple):
    """How large a node is with its rules written out."""

    nodes: int
    levels: int


def _names(node: Node) -> set[str]:
    return {found.name for found in below(node) if isinstance(found, Reference)}


def _extent(node: Node, rules: dict[str, _Extent]) -> _Extent:
    if isinstance(node, Reference):
        return rules[node.name]
    inner = [_extent(child, rules) for child in children(node)]
    nodes = 1 + sum(extent.nodes for extent in inner)
    return _Extent(nodes, 1 + max((extent.levels for extent in inner), default=0))


def replaced(node: Node, rules: Rules) -> Node:
    """A node with rules in the place of their names, as far as they are given."""
    match node:
        case Reference(name):
            return rules.get(name, node)
        case Chain(parts):
            return Chain(tuple(replaced(part, rules) for part in parts))
        case Either(options):
            return Either(tuple(replaced(option, rules) for option in options))
        case Repeat(part, least, most):
            return Repeat(replaced(part, rules), least, most)
    return node


def not_empty(node: Node) -> Node | None:
    """What has the texts of a regular node but the empty one; None if it has no other."""
    if not can_be_empty(node, set()):
        return node
    match node:
        case Either(options):
            found = [rest for option in options if (rest := not_empty(option)) is not None]
            return Either(tuple(found)) if found else None
        case Repeat(part, _, most):
            rest = not_empty(part)
            return None if rest is None or most == 0 else Repeat(rest, 1, most)
        case Chain(parts):
            found = []
            for index, part in enumerate(parts):
                head = not_empty(part)
                if head is not None:
                    found.append(Chain((head, *parts[index + 1 :])))
            return Either(tuple(found)) if found else None
    raise AssertionError(f"{node} can't be empty")


def regex(node: Node) -> str:
    """The regular expression of a regular node, in Rust's dialect, without slashes."""
    match node:
        case Characters(ranges):
            inside = "".join(
                f"\\x{{{low:X}}}" if low == high else f"\\x{{{low:X}}}-\\x{{{high:X}}}"
                for low, high in ranges
            )
            return f"[{inside}]" if ranges else "[^\\x{0}-\\x{10FFFF}]"
        case Chain(parts):
            return "".join(map(regex, parts))
        case Either(options):
            return "(?:" + "|".join(map(regex, options)) + ")"
        case Repeat(part, least, most):
            return f"(?:{regex(part)}){times(least, most)}"
    raise AssertionError(f"{node} is not regular")


def times(least: int, most: int | None) -> str:
    """A repetition's suffix, in regular expressions and in Lark."""
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
    return f"{{{least},{'' if most is None else most}}}"
