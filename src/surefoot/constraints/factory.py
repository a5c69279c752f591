"""Making controls of what requests ask for; grammars are compiled once and kept for a while."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Series

from llguidance import LLMatcher

from surefoot.constraints.calls import CallsControl
from surefoot.constraints.compiling import LIMITS, compiled, problem
from surefoot.constraints.errors import GrammarError
from surefoot.constraints.grammar_control import GrammarControl
from surefoot.constraints.reasoning import Answer, ReasoningControl
from surefoot.constraints.spec import ControlSpec, Grammar
from surefoot.constraints.vocabulary import Vocabulary
from surefoot.decoding import Control

MOST_KEPT = 64
"""So many compiled grammars are kept."""


class Controls:
    """Makes controls for one model's vocabulary. Safe to be used by several threads.

    Args:
        pieces: the text of every token, special ones included.
        special: the special tokens.
        end_tokens: the tokens that end a text.
        encode: turns a text into tokens, special ones recognised.
    """

    def __init__(
        self,
        pieces: Series[bytes],
        special: frozenset[int],
        end_tokens: frozenset[int],
        encode: Callable[[str], list[int]],
    ) -> None:
        self._vocabulary = Vocabulary(pieces, special, end_tokens, encode)
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Grammar, bool], LLMatcher] = OrderedDict()

    def check(self, spec: ControlSpec) -> list[str]:
        """Compile what a request asks for; returns warnings.

        Raises:
            GrammarError: it is no grammar; the text says where it is wrong.
        """
        warnings: list[str] = []
        for grammar, padded in _grammars(spec):
            warnings += self._matcher(grammar, padded=padded).get_grammar_warnings()
        return warnings

    def control(self, spec: ControlSpec) -> Control:
        """A control for a new text.

        Raises:
            GrammarError: as `check`.
        """
        vocabulary = self._vocabulary
        answer: Answer | None = None
        if spec.grammar is not None:
            answer = self._fresh(spec.grammar, padded=spec.reasoning is not None)
        elif spec.calls is not None:
            calls = spec.calls
            answer = CallsControl(
                vocabulary,
                [trigger.encode() for trigger in calls.triggers],
                lambda: self._fresh(calls.grammar, padded=False),
                required=calls.required,
                parallel=calls.parallel,
            )
        if spec.reasoning is None:
            if answer is None:
                raise GrammarError("control", "asks for nothing")
            return answer
        bound = spec.grammar is not None or (spec.calls is not None and spec.calls.required)
        return ReasoningControl(vocabulary, spec.reasoning, answer, bound=bound)

    def _fresh(self, grammar: Grammar, *, padded: bool) -> GrammarControl:
        return GrammarControl(self._vocabulary, self._matcher(grammar, padded=padded).deep_copy())

    def _matcher(self, grammar: Grammar, *, padded: bool) -> LLMatcher:
        """The compiled grammar, in its initial state.

        Raises:
            GrammarError: it is no grammar.
        """
        key = (grammar, padded)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        if padded:  # its errors are those of the grammar that the user has written
            self._matcher(grammar, padded=False)
        name = "grammar" if grammar.kind in ("gbnf", "lark") else grammar.kind
        try:
            text = compiled(grammar, padded=padded)
        except ValueError as error:
            if isinstance(error, GrammarError):
                raise
            raise problem(name, str(error)) from error
        matcher = LLMatcher(self._vocabulary.tokenizer, text, log_level=0, limits=LIMITS)
        if matcher.is_error():
            raise problem(name, matcher.get_error())
        if not any(matcher.compute_bitmask()) or matcher.is_error():
            raise problem(name, "no text at all satisfies it")
        with self._lock:
            self._kept[key] = matcher
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return matcher


def _grammars(spec: ControlSpec) -> list[tuple[Grammar, bool]]:
    found = []
    if spec.grammar is not None:
        found.append((spec.grammar, spec.reasoning is not None))
    if spec.calls is not None:
        found.append((spec.calls.grammar, False))
    return found
