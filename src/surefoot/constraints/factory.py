"""Making controls of what requests ask for; grammars are compiled once and kept for a while."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Series

from llguidance import LLMatcher

from surefoot.constraints.calls import CallsControl
from surefoot.constraints.compiling import LIMITS, compiled, compiled_schema
from surefoot.constraints.complaints import NO_TEXT, grammar_error, parameter
from surefoot.constraints.errors import GrammarError
from surefoot.constraints.grammar_control import GrammarControl
from surefoot.constraints.reasoning import Answer, ReasoningControl
from surefoot.constraints.schemas import Schema, at_fault, never_ends, schema_of, warnings
from surefoot.constraints.spec import Calls, ControlSpec, Grammar
from surefoot.constraints.vocabulary import Vocabulary
from surefoot.decoding import Control, ControlError

MOST_KEPT = 64
"""So many compiled grammars are kept."""

WALKED = 3
"""A new grammar is tried with so many tokens."""


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
        found: list[str] = []
        if spec.grammar is not None:
            found += self._warnings(spec.grammar, padded=spec.reasoning is not None)
        if spec.calls is not None:
            found += self._warnings(spec.calls.grammar, padded=False)
            self._check_triggers(spec.calls)
        if spec.reasoning is not None and not (spec.reasoning.start and spec.reasoning.end):
            raise GrammarError("reasoning", "needs a tag that begins it and one that ends it")
        if spec != ControlSpec():
            self.control(spec).allowed()  # what is found out about the tokens is found out here
        return found

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

    def _warnings(self, grammar: Grammar, *, padded: bool) -> list[str]:
        found = list(self._matcher(grammar, padded=padded).get_grammar_warnings())
        if grammar.kind == "json_schema":
            found += warnings(schema_of(grammar.source))
        return found

    def _check_triggers(self, calls: Calls) -> None:
        if not calls.triggers or not all(calls.triggers):
            raise GrammarError("tools", "calls need triggers, and none of them may be empty")
        for trigger in calls.triggers:
            call = self._fresh(calls.grammar, padded=False)
            token = self._vocabulary.single(trigger)
            if token in self._vocabulary.special:
                fits = call.permitted([token]) == 1
            else:
                fits = call.takes(trigger.encode())
            if not fits:
                raise GrammarError("tools", f"the grammar of calls can't begin with {trigger!r}")

    def _fresh(self, grammar: Grammar, *, padded: bool) -> GrammarControl:
        return GrammarControl(self._vocabulary, self._matcher(grammar, padded=padded).deep_copy())

    def _matcher(self, grammar: Grammar, *, padded: bool) -> LLMatcher:
        """The compiled grammar, in its initial state.

        Raises:
            GrammarError: it is no grammar.
        """
        key = (grammar, padded and grammar.kind in ("json_object", "json_schema"))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        if key[1]:  # its errors are those of the grammar that the user has written
            self._matcher(grammar, padded=False)
        matcher = self._compile(grammar, padded=key[1])
        with self._lock:
            self._kept[key] = matcher
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return matcher

    def _compile(self, grammar: Grammar, *, padded: bool) -> LLMatcher:
        matcher = self._new(compiled(grammar, self._vocabulary, padded=padded))
        satisfiable = not matcher.is_error() and any(matcher.compute_bitmask())
        if matcher.is_error():  # the first mask is part of the trial
            raise self._error(grammar, matcher.get_error())
        if not satisfiable:
            raise GrammarError(parameter(grammar.kind), NO_TEXT)
        if grammar.kind == "json_schema" and never_ends(schema_of(grammar.source)):
            raise GrammarError("json_schema", "a part demands itself, so no text would ever end")
        try:
            self._walk(GrammarControl(self._vocabulary, matcher.deep_copy()))
        except ControlError as error:
            raise GrammarError(parameter(grammar.kind), str(error)) from error
        return matcher

    def _walk(self, control: GrammarControl) -> None:
        """Go a few tokens into a text: most grammars that cost too much fail there."""
        for _ in range(WALKED):
            mask, forced = control.allowed(), control.forced()
            token = forced[0] if forced else self._vocabulary.text_token_in(mask)
            if token is None or token in self._vocabulary.end_tokens:
                return
            control.advance(token)
            if control.finished:
                return

    def _new(self, text: str) -> LLMatcher:
        return LLMatcher(self._vocabulary.tokenizer, text, log_level=0, limits=LIMITS)

    def _error(self, grammar: Grammar, complaint: str) -> GrammarError:
        def complaint_about(part: Schema) -> str:
            return self._new(compiled_schema(part)).get_error()

        part = ""
        if grammar.kind == "json_schema":
            part = at_fault(schema_of(grammar.source), complaint, complaint_about)
        return grammar_error(grammar.kind, complaint, part)
