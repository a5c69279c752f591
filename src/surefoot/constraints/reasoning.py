"""Reasoning in front of an answer: no rule holds inside but the budget."""

from collections.abc import Sequence as Series
from enum import Enum

from surefoot.constraints.calls import CallsControl
from surefoot.constraints.grammar_control import GrammarControl
from surefoot.constraints.opening import Opening
from surefoot.constraints.spec import Reasoning
from surefoot.constraints.tag import Found
from surefoot.constraints.thought import Thought
from surefoot.constraints.vocabulary import Vocabulary
from surefoot.decoding import ControlError, TokenMask

Answer = GrammarControl | CallsControl


class _Place(Enum):
    BEFORE = "before"
    INSIDE = "inside"
    BEHIND = "behind"


class ReasoningControl:
    """Lets the model think, and holds its answer to rules from the end tag on; see `Control`.

    An answer that begins without the start tag has no reasoning. Reasoning ends at its first end
    tag. A start tag right behind it, with nothing but whitespace and stray end tags between, opens
    it again, unless the answer is bound: then its rules hold from the first end tag on. Inside, the
    text may not end if the answer is bound, which would then be missing. The parsers of
    `surefoot.chat.formats` go by the same rule.

    Args:
        vocabulary: the tokens.
        reasoning: tags and budget.
        answer: the rules for the answer; None for none.
        bound: whether the answer must not be missing.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        reasoning: Reasoning,
        answer: Answer | None,
        *,
        bound: bool,
    ) -> None:
        self._vocabulary = vocabulary
        self._reasoning = reasoning
        self._answer = answer
        self._bound = bound
        self._place = _Place.INSIDE if reasoning.opened else _Place.BEFORE
        self._thought = Thought(vocabulary, reasoning)
        self._opening = self._new_opening()
        # In case the text is no reasoning, a second answer follows it from its first token on.
        early = None if answer is None or reasoning.opened else answer.copy()
        self._early: Answer | None = early

    def _new_opening(self) -> Opening:
        reasoning = self._reasoning
        starts = [reasoning.start.encode()]
        if self._bound:
            return Opening(self._vocabulary, starts)
        starts += [reasoning.again.encode()] if reasoning.again else []
        return Opening(self._vocabulary, starts, [reasoning.end.encode()])

    def copy(self) -> "ReasoningControl":
        """Another one in the same state."""
        answer = None if self._answer is None else self._answer.copy()
        other = ReasoningControl(self._vocabulary, self._reasoning, answer, bound=self._bound)
        other._place, other._thought = self._place, self._thought.copy()
        other._opening = self._opening.copy()
        other._early = None if self._early is None else self._early.copy()
        return other

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens lie inside the reasoning; see `Control`."""
        return self._thought.tokens

    @property
    def finished(self) -> str | None:
        """Why nothing may follow; see `Control`."""
        if self._place is _Place.BEHIND and self._answer is not None:
            return self._answer.finished
        return None

    def allowed(self) -> TokenMask | None:
        """The tokens that may come next; see `Control`."""
        match self._place:
            case _Place.BEHIND:
                return None if self._answer is None else self._answer.allowed()
            case _Place.INSIDE:
                if self._thought.closing:
                    return self._vocabulary.mask(self._thought.closing[:1])
                if self._answer is None and not self._bound:
                    return None
                crossing = self._thought.crossing()
                refused = {token for token, rest in crossing if not self._takes(rest)}
                if self._bound:
                    refused |= self._vocabulary.end_tokens
                return self._vocabulary.all_but(refused) if refused else None
            case _Place.BEFORE:
                if self._answer is None:
                    return None
                opening = self._vocabulary.mask(self._opening.tokens())
                if self._early is None:
                    return opening
                if self._early.finished:
                    return opening | self._vocabulary.mask(self._vocabulary.end_tokens)
                early = self._early.allowed()
                return None if early is None else early | opening

    def forced(self) -> Series[int]:
        """The tokens that come next anyway: an end tag when the budget is used up."""
        if self._place is _Place.BEHIND:
            return () if self._answer is None else self._answer.forced()
        return self._thought.closing if self._place is _Place.INSIDE else ()

    def permitted(self, draft: Series[int]) -> int:
        """How much of a draft is allowed; see `Control`."""
        match self._place:
            case _Place.BEHIND:
                return len(draft) if self._answer is None else self._answer.permitted(draft)
            case _Place.INSIDE:
                return self._permitted_inside(draft)
            case _Place.BEFORE:
                return self._permitted_before(draft)

    def advance(self, token: int) -> None:
        """Take a token; see `Control`."""
        match self._place:
            case _Place.BEHIND:
                if self._answer is not None:
                    self._answer.advance(token)
            case _Place.INSIDE:
                if self._thought.closing and token != self._thought.closing[0]:
                    raise ControlError("the budget for reasoning is used up, but it did not end")
                if self._bound and token in self._vocabulary.end_tokens:
                    raise ControlError("the text ended inside the reasoning, before its answer")
                self._end(self._thought.advance(token))
            case _Place.BEFORE:
                self._begin(token)

    # Before

    def _permitted_before(self, draft: Series[int]) -> int:
        trial = self.copy()
        for index, token in enumerate(draft):
            if trial._place is not _Place.BEFORE:
                return index + trial.permitted(draft[index:])
            if not trial._may_begin(token):
                return index
            trial.advance(token)
        return len(draft)

    def _may_begin(self, token: int) -> bool:
        if self._answer is None or self._opening.goes_on_with(token):
            return True
        if self._early is None:
            return False
        if self._early.finished:
            return token in self._vocabulary.end_tokens
        return self._early.permitted([token]) == 1

    def _begin(self, token: int) -> None:
        opened = self._opening.goes_on_with(token)
        if not opened and self._answer is not None and self._early is None:
            raise ControlError(f"token {token} breaks off the start of the reasoning")
        rest = self._opening.advance(self._vocabulary.pieces[token])
        if rest is not None:
            self._enter(rest)
            return
        if self._early is not None and not self._early.finished:
            if opened and self._early.permitted([token]) == 0:
                self._early = None
            else:
                self._early.advance(token)
        elif opened:
            self._early = None
        if not self._opening.possible:
            self._place, self._answer = _Place.BEHIND, self._early

    # Inside

    def _permitted_inside(self, draft: Series[int]) -> int:
        thought = self._thought.copy()
        for index, token in enumerate(draft):
            if thought.closing and token != thought.closing[0]:
                return index
            if self._bound and token in self._vocabulary.end_tokens:
                return index
            found = thought.advance(token)
            if found is None:
                continue
            if found.rest and not self._takes(found.rest):
                return index
            trial = self.copy()
            for known in draft[: index + 1]:
                trial.advance(known)
            return index + 1 + trial.permitted(draft[index + 1 :])
        return len(draft)

    def _takes(self, rest: bytes) -> bool:
        return self._answer is None or self._answer.takes(rest)

    def _enter(self, text: bytes) -> None:
        """Begin to think, with text that came with the start tag."""
        self._place, self._early = _Place.INSIDE, None
        self._end(self._thought.open_with(text))

    def _end(self, found: Found | None) -> None:
        """Go on behind the end tag, if it has been found."""
        if found is None:
            return
        if self._bound:
            self._place = _Place.BEHIND
            if found.rest and self._answer is not None:
                self._answer.feed(found.rest)
            return
        self._place, self._opening = _Place.BEFORE, self._new_opening()
        self._early = None if self._answer is None else self._answer.copy()
        if self._early is not None and found.rest:
            self._early.feed(found.rest)
        rest = self._opening.advance(found.rest)
        if rest is not None:
            self._enter(rest)
        elif not self._opening.possible:
            self._place, self._answer = _Place.BEHIND, self._early
