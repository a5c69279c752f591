"""What is wrong with GBNF rules as a whole: a missing root or rule, left recursion."""

from surefoot.constraints.errors import GrammarError
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
)
from surefoot.constraints.gbnf.reading import ROOT, Reader, TokenNamed

MOST_RULES = 1000
"""A grammar with more rules would take too long to check."""


def read(source: str, token_named: TokenNamed, tokens: int) -> Rules:
    """The rules of a grammar that can be used.

    Args:
        source: the grammar.
        token_named: knows the model's tokens by their text.
        tokens: how many there are.

    Raises:
        GrammarError: it is no GBNF, or llama.cpp would refuse it; the text says where.
    """
    reader = Reader(source, token_named, tokens)
    rules = reader.rules()
    if len(rules) > MOST_RULES:
        raise GrammarError("grammar", f"has {len(rules)} rules, of which {MOST_RULES} may be")
    if ROOT not in rules:
        raise GrammarError("grammar", f'has no rule named "{ROOT}", at which it would begin')
    for node in rules.values():
        for found in below(node):
            if isinstance(found, Reference) and found.name not in rules:
                raise reader.error(reader.places[found.name], f'no rule is named "{found.name}"')
    name = _left_recursive(rules)
    if name is not None:
        raise reader.error(
            reader.places[name],
            f'the rule "{name}" begins with itself (left recursion); '
            "write it as a repetition, or with what is repeated in front",
        )
    ending = _ending(rules)
    endless = [name for name in rules if name not in ending]
    if endless:
        raise reader.error(
            reader.places[endless[0]],
            f'the rule "{endless[0]}" goes on for ever; give it a way to end',
        )
    return rules


def nullable(rules: Rules) -> set[str]:
    """The rules that the empty text satisfies."""
    found: set[str] = set()
    grown = True
    while grown:
        grown = False
        for name in reversed(rules):  # rules mostly come before those that they name
            if name not in found and can_be_empty(rules[name], found):
                found.add(name)
                grown = True
    return found


def can_be_empty(node: Node, empty_rules: set[str]) -> bool:
    """Whether the empty text satisfies a node, given the rules that it satisfies."""
    match node:
        case Characters() | Token():
            return False
        case Reference(name):
            return name in empty_rules
        case Chain(parts):
            return all(can_be_empty(part, empty_rules) for part in parts)
        case Either(options):
            return any(can_be_empty(option, empty_rules) for option in options)
        case Repeat(part, least):
            return least == 0 or can_be_empty(part, empty_rules)


def _ending(rules: Rules) -> set[str]:
    """The rules that some text satisfies."""
    found: set[str] = set()
    grown = True
    while grown:
        grown = False
        for name in reversed(rules):
            if name not in found and _can_end(rules[name], found):
                found.add(name)
                grown = True
    return found


def _can_end(node: Node, ending: set[str]) -> bool:
    match node:
        case Characters() | Token():
            return True
        case Reference(name):
            return name in ending
        case Chain(parts):
            return all(_can_end(part, ending) for part in parts)
        case Either(options):
            return any(_can_end(option, ending) for option in options)
        case Repeat(part, least):
            return least == 0 or _can_end(part, ending)


def _left_recursive(rules: Rules) -> str | None:
    empty_rules = nullable(rules)
    first = {name: _beginning(node, empty_rules) for name, node in rules.items()}
    for name in rules:
        seen: set[str] = set()
        waiting = list(first[name])
        while waiting:
            other = waiting.pop()
            if other == name:
                return name
            if other not in seen:
                seen.add(other)
                waiting.extend(first[other])
    return None


def _beginning(node: Node, empty_rules: set[str]) -> set[str]:
    """The rules with which a node may begin."""
    match node:
        case Characters() | Token():
            return set()
        case Reference(name):
            return {name}
        case Chain(parts):
            found: set[str] = set()
            for part in parts:
                found |= _beginning(part, empty_rules)
                if not can_be_empty(part, empty_rules):
                    break
            return found
        case Either(options):
            return set().union(*(_beginning(option, empty_rules) for option in options))
        case Repeat(part):
            # A part that can be empty, again and again, begins with itself, in its own way.
            return _beginning(part, empty_rules)
