"""Reasoning in front of an answer: no rule holds inside but the budget."""

from collections.abc import Sequence as Series
from enum import Enum

from surefoot.constraints.calls import CallsControl
from surefoot.constraints.grammar_control import GrammarControl
from surefoot.constraints.spec import Reasoning
from surefoot.constraints.tag import TagWatch
from surefoot.constraints.vocabulary import Vocabulary
from surefoot.decoding import TokenMask

Answer = GrammarControl | CallsControl


class _Place(Enum):
    BEFORE = "before"
    INSIDE = "inside"
    BEHIND = "behind"


class ReasoningControl:
    """Lets the model think, and holds its answer to rules from the end tag on; see `Control`.

    An answer that begins without the start tag has no reasoning. Inside the text may not end if
    there are rules for the answer, which would then be missing.

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
        self._start = reasoning.start.encode()
        self._place = _Place.INSIDE if reasoning.opened else _Place.BEFORE
        self._head = b""
        """What has been said so far, while it may still be the start tag."""
        self._early = answer  # follows the text in case it is no reasoning
        self._watch = TagWatch(vocabulary, [reasoning.end.encode()])
        self._ends: list[int] = []
        self._closing: list[int] | None = None
        self.reasoning_tokens = 0

    def copy(self) -> "ReasoningControl":
        """Another one in the same state."""
        answer = None if self._answer is None else self._answer.copy()
        other = ReasoningControl(self._vocabulary, self._reasoning, answer, bound=self._bound)
        other._place, other._head = self._place, self._head
        other._early = None if self._early is None else self._early.copy()
        other._watch, other._ends = self._watch.copy(), list(self._ends)
        other._closing = None if self._closing is None else list(self._closing)
        other.reasoning_tokens = self.reasoning_tokens
        return other

    def allowed(self) -> TokenMask | None:
        """The tokens that may come next; see `Control`."""
        match self._place:
            case _Place.BEHIND:
                return None if self._answer is None else self._answer.allowed()
            case _Place.INSIDE if self._answer is None and not self._bound:
                return None
            case _Place.INSIDE:
                refused = {t for t, _, rest in self._watch.crossing() if not self._takes(rest)}
                if self._bound:
                    refused |= self._vocabulary.end_tokens
                if not refused:
                    return None
                return self._vocabulary.everything & ~self._vocabulary.mask(refused)
            case _Place.BEFORE:
                if self._answer is None:
                    return None
                early = self._early.allowed() if self._early is not None else None
                if self._early is not None and early is None:
                    return None
                opening = self._vocabulary.mask(self._openings())
                return opening if early is None else early | opening

    def forced(self) -> Series[int]:
        """The tokens that come next anyway: an end tag when the budget is used up."""
        if self._place is _Place.BEHIND:
            return () if self._answer is None else self._answer.forced()
        if self._place is _Place.INSIDE and self._used_up():
            if self._closing is None:
                text = self._reasoning.message + self._reasoning.end
                self._closing = self._vocabulary.encode(text)
            return self._closing
        return ()

    def permitted(self, draft: Series[int]) -> int:
        """How much of a draft is allowed; see `Control`."""
        if self._place is _Place.BEHIND:
            return len(draft) if self._answer is None else self._answer.permitted(draft)
        trial = self.copy()
        for index, token in enumerate(draft):
            if trial._place is _Place.BEHIND:
                return index + trial.permitted(draft[index:])
            forced = trial.forced()
            if forced:
                if token != forced[0]:
                    return index
            elif not trial._takes_token(token):
                return index
            trial.advance(token)
        return len(draft)

    def advance(self, token: int) -> None:
        """Take a token; see `Control`."""
        match self._place:
            case _Place.BEHIND:
                if self._answer is not None:
                    self._answer.advance(token)
            case _Place.INSIDE:
                self._think(token)
            case _Place.BEFORE:
                self._look_at(token)

    @property
    def finished(self) -> str | None:
        """Why nothing may follow; see `Control`."""
        if self._place is _Place.BEHIND and self._answer is not None:
            return self._answer.finished
        if self._place is _Place.BEFORE and self._early is not None and not self._maybe_opening():
            return self._early.finished
        return None

    # Before

    def _maybe_opening(self) -> bool:
        return self._start.startswith(self._head.lstrip())

    def _openings(self) -> set[int]:
        """Tokens with which the start tag could go on, or be."""
        head = self._head.lstrip()
        found = set()
        for token, piece in enumerate(self._vocabulary.pieces):
            text = head + piece if head else piece.lstrip()
            if piece and text and (self._start.startswith(text) or text.startswith(self._start)):
                found.add(token)
        return found

    def _look_at(self, token: int) -> None:
        self._head += self._vocabulary.pieces[token]
        head = self._head.lstrip()
        if head.startswith(self._start):
            self._place, self._early = _Place.INSIDE, None
            return
        if self._early is not None:
            if self._early.permitted([token]) == 1 or not self._start.startswith(head):
                self._early.advance(token)
            else:
                self._early = None
        if not self._start.startswith(head):
            self._place, self._answer = _Place.BEHIND, self._early

    # Inside

    def _used_up(self) -> bool:
        budget = self._reasoning.budget
        return self._closing is not None or (budget is not None and len(self._ends) >= budget)

    def _think(self, token: int) -> None:
        if self._closing and self._closing[0] == token:
            del self._closing[0]
        elif self._closing is None:
            self._ends.append(self._watch.length + len(self._vocabulary.pieces[token]))
            self.reasoning_tokens = len(self._ends)
        found = self._watch.see(token)
        if found is not None:
            self.reasoning_tokens = sum(end <= found.start for end in self._ends)
            self._place = _Place.BEHIND
            if found.rest and self._answer is not None:
                self._answer.feed(found.rest)

    def _takes(self, rest: bytes) -> bool:
        return self._answer is None or self._answer.takes(rest)

    def _takes_token(self, token: int) -> bool:
        if self._place is _Place.BEFORE:
            early = self._early is None or self._early.permitted([token]) == 1
            return self._answer is None or early or token in self._openings()
        if self._bound and token in self._vocabulary.end_tokens:
            return False
        found = self._watch.copy().see(token)
        return found is None or not found.rest or self._takes(found.rest)
