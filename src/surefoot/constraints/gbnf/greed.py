"""Finding the lexemes that go on where another could have ended.

All lexemes are taken as one automaton whose states are the character sets in them. Two states
that the same text can lead to tell of a conflict if one ends its lexeme, the other goes on, and
what it goes on with may also follow the first one's lexeme. That is cautious: whether the parser
would ever wait for both lexemes at once is not asked.
"""

from itertools import combinations_with_replacement
from typing import NamedTuple

from surefoot.constraints.gbnf.alphabet import Alphabet
from surefoot.constraints.gbnf.following import following
from surefoot.constraints.gbnf.nodes import Chain, Characters, Either, Node, Repeat
from surefoot.constraints.gbnf.parts import Grammar, lexemes_of

COPIES = 4
"""A repetition is written out so often; a longer one is taken for one without a limit."""

MOST_PAIRS = 100_000
"""Above so many pairs of states every lexeme counts as greedy."""


def greedy(grammar: Grammar) -> set[Node]:
    """The nodes of lexemes that must be split; none of them is a single character."""
    found = list(
        dict.fromkeys(lexeme.node for part in grammar.values() for lexeme in lexemes_of(part))
    )
    alphabet = Alphabet(found)
    automaton = _Automaton(alphabet)
    firsts = [automaton.add(node) for node in found]
    follow = following(
        grammar, {node: automaton.letters(first) for node, first in zip(found, firsts, strict=True)}
    )
    pairs = automaton.pairs([state for first in firsts for state in first])
    if pairs is None:
        return {node for node in found if not isinstance(node, Characters)}
    conflicts = set()
    for one, other in pairs:
        for ended, going in ((one, other), (other, one)):
            if ended in automaton.last:
                behind = follow[found[automaton.owner[ended]]]
                if behind & automaton.letters(automaton.next[going]):
                    conflicts.add(found[automaton.owner[going]])
    return conflicts


class _Span(NamedTuple):
    """A node's part of the automaton."""

    empty: bool
    first: frozenset[int]
    last: frozenset[int]


class _Automaton:
    """A state for each character set of each lexeme: the text so far ended with that one."""

    def __init__(self, alphabet: Alphabet) -> None:
        self._alphabet = alphabet
        self._lexemes = 0
        self.mask: list[int] = []
        self.next: list[set[int]] = []
        self.owner: list[int] = []
        self.last: set[int] = set()

    def add(self, lexeme: Node) -> frozenset[int]:
        """Add a lexeme; returns the states that it may begin with."""
        span = self._span(lexeme)
        self.last |= span.last
        self._lexemes += 1
        return span.first

    def letters(self, states: frozenset[int] | set[int]) -> int:
        """What leads to any of some states."""
        found = 0
        for state in states:
            found |= self.mask[state]
        return found

    def pairs(self, first: list[int]) -> set[tuple[int, int]] | None:
        """Pairs of states that one text leads to; None if they are too many."""
        if len(first) ** 2 > 2 * MOST_PAIRS:
            return None
        waiting = self._meeting(set(combinations_with_replacement(sorted(first), 2)))
        seen = set(waiting)
        while waiting:
            if len(seen) > MOST_PAIRS:
                return None
            one, other = waiting.pop()
            further = {
                (min(a, b), max(a, b)) for a in self.next[one] for b in self.next[other]
            } - seen
            met = self._meeting(further)
            seen |= met
            waiting |= met
        return seen

    def _meeting(self, pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
        return {(a, b) for a, b in pairs if self.mask[a] & self.mask[b]}

    def _state(self, node: Characters) -> int:
        self.mask.append(self._alphabet.letters(node))
        self.next.append(set())
        self.owner.append(self._lexemes)
        return len(self.mask) - 1

    def _span(self, node: Node) -> _Span:
        match node:
            case Characters():
                state = frozenset({self._state(node)})
                return _Span(False, state, state)
            case Either(options):
                spans = [self._span(option) for option in options]
                return _Span(
                    any(span.empty for span in spans),
                    frozenset().union(*(span.first for span in spans)),
                    frozenset().union(*(span.last for span in spans)),
                )
            case Chain(parts):
                return self._chained([self._span(part) for part in parts])
            case Repeat(part, least, most):
                return self._repeated(part, least, most)
        raise AssertionError(f"{node} is not regular")

    def _repeated(self, part: Node, least: int, most: int | None) -> _Span:
        if most is not None and most <= COPIES:
            spans = [self._span(part) for _ in range(most)]
            spans = [
                span if index < least else span._replace(empty=True)
                for index, span in enumerate(spans)
            ]
            return self._chained(spans)
        span = self._span(part)
        for state in span.last:
            self.next[state] |= span.first
        return span._replace(empty=span.empty or least == 0)

    def _chained(self, spans: list[_Span]) -> _Span:
        whole = _Span(True, frozenset(), frozenset())
        for span in spans:
            for state in whole.last:
                self.next[state] |= span.first
            whole = _Span(
                whole.empty and span.empty,
                whole.first | span.first if whole.empty else whole.first,
                whole.last | span.last if span.empty else span.last,
            )
        return whole
