"""Writing a grammar down in llguidance's Lark."""

from surefoot.constraints.gbnf.checking import read
from surefoot.constraints.gbnf.lexemes import chosen
from surefoot.constraints.gbnf.nodes import Node, Reference, Rules, Token, below
from surefoot.constraints.gbnf.parts import Lexeme, Parsed, Part
from surefoot.constraints.gbnf.reading import ROOT, TokenNamed
from surefoot.constraints.gbnf.regular import regex, times, written_out


def lark_from_gbnf(source: str, token_named: TokenNamed, tokens: int) -> str:
    """A GBNF grammar in llguidance's Lark.

    Args:
        source: the grammar.
        token_named: knows the model's tokens by their text.
        tokens: how many there are.

    Raises:
        GrammarError: it is no GBNF, or llama.cpp would refuse it; the text says where.
    """
    regular, rules = written_out(read(source, token_named, tokens))
    if ROOT in regular:
        rules = {ROOT: regular[ROOT]}
    return _Writer(_reachable(rules)).text


def _reachable(rules: Rules) -> Rules:
    found, waiting = {ROOT}, [ROOT]
    while waiting:
        for node in below(rules[waiting.pop()]):
            if isinstance(node, Reference) and node.name not in found:
                found.add(node.name)
                waiting.append(node.name)
    return {name: node for name, node in rules.items() if name in found}


DEEPEST = 8
"""So many groups are written inside each other; llguidance takes no more than some thirty."""


class _Writer:
    """Names rules and lexemes, and puts them on lines."""

    def __init__(self, rules: Rules) -> None:
        grammar = chosen(rules)
        self._rules = {name: f"rule_{number}" for number, name in enumerate(grammar)}
        self._lexemes: dict[Node, str] = {}
        self._groups: list[str] = []
        lines = [f"start: {self._rules[ROOT]}"]
        lines += [f"{self._rules[name]}: {self._said(part)}" for name, part in grammar.items()]
        lines += [f"group_{number}: {group}" for number, group in enumerate(self._groups)]
        lines += [f"{name}: /{regex(node)}/" for node, name in self._lexemes.items()]
        self.text = "\n".join(lines) + "\n"

    def _said(self, part: Part, depth: int = 0) -> str:
        match part:
            case Lexeme(node):
                return self._lexemes.setdefault(node, f"LEXEME_{len(self._lexemes)}")
            case Reference(name):
                return self._rules[name]
            case Token(token, negated):
                return f"<[{'^' if negated else ''}{token}]>"
            case Parsed(parts, either, least, most):
                if not parts or most == 0:
                    return '""'
                if depth == DEEPEST:
                    self._groups.append(self._said(part))
                    return f"group_{len(self._groups) - 1}"
                inner = (" | " if either else " ").join(self._said(p, depth + 1) for p in parts)
                suffix = "" if least == most == 1 else times(least, most)
                return f"({inner}){suffix}"
