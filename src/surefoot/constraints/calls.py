"""Tool calls within free text: from a trigger on a grammar holds, until the call has ended."""

from collections.abc import Callable
from collections.abc import Sequence as Series

from surefoot.constraints.grammar_control import GrammarControl
from surefoot.constraints.tag import Found, TagWatch
from surefoot.constraints.vocabulary import Vocabulary
from surefoot.decoding import ControlError, TokenMask

END_OF_CALL = "end of the tool call"

MOST_BLANKS = 4
"""So many bytes of whitespace may stand in front of a call that must come."""


class CallsControl:
    """Holds the calls in a text to their grammar; see `Control`.

    Where a call could end, or go on, and others may follow, what does not go on with it is free
    text again.

    Args:
        vocabulary: the tokens.
        triggers: texts that begin a call.
        fresh: makes a control for one call, from its trigger on.
        required: whether the text must be a call, with nothing but whitespace in front of it.
        parallel: whether others may follow the first.
    """

    reasoning_tokens = 0

    def __init__(
        self,
        vocabulary: Vocabulary,
        triggers: Series[bytes],
        fresh: Callable[[], GrammarControl],
        *,
        required: bool,
        parallel: bool,
    ) -> None:
        self._vocabulary = vocabulary
        self._triggers = triggers
        self._fresh = fresh
        self._parallel = parallel
        self._call: GrammarControl | None = fresh() if required else None
        self._blanks = MOST_BLANKS if required else 0
        self._watch = TagWatch(vocabulary, triggers)
        self._taken: dict[bytes, bool] = {}
        self.finished: str | None = None

    def copy(self) -> "CallsControl":
        """Another one in the same state."""
        other = CallsControl(
            self._vocabulary, self._triggers, self._fresh, required=False, parallel=self._parallel
        )
        other._call = None if self._call is None else self._call.copy()
        other._blanks, other._watch = self._blanks, self._watch.copy()
        other._taken, other.finished = self._taken, self.finished
        return other

    def allowed(self) -> TokenMask | None:
        """The tokens that may come next; see `Control`."""
        if self._call is None:
            refused = self._refused()
            return self._vocabulary.all_but(refused) if refused else None
        mask = self._call.allowed()
        if self._may_leave:
            mask = mask | self._vocabulary.all_but(self._refused())
        elif self._blanks:
            mask = mask | self._vocabulary.mask(filter(self._is_blank, self._vocabulary.blanks))
        return mask

    def forced(self) -> Series[int]:
        """The tokens that come next anyway; see `Control`."""
        return () if self._call is None or self._blanks else self._call.forced()

    def permitted(self, draft: Series[int]) -> int:
        """How much of a draft is allowed; see `Control`."""
        if self.finished:
            return 0
        if self._call is not None and not self._blanks:
            length = self._call.permitted(draft)
            if length == len(draft) or not self._parallel:
                return length
        trial = self.copy()
        for index, token in enumerate(draft):
            if not trial._takes_token(token):
                return index
            trial.advance(token)
        return len(draft)

    def takes(self, text: bytes) -> bool:
        """Whether a text could come next."""
        try:
            tokens = self._vocabulary.tokens_of(text)
        except ControlError:
            return False
        return self.permitted(tokens) == len(tokens)

    def feed(self, text: bytes) -> None:
        """Take a text that came with a token which is not the answer's alone."""
        for token in self._vocabulary.tokens_of(text):
            self.advance(token)

    def advance(self, token: int) -> None:
        """Take a token; see `Control`."""
        if self.finished:
            raise ControlError(f"token {token} comes after the {END_OF_CALL}")
        if self._call is not None and not self._goes_on(token):
            if self._is_blank(token):
                self._blanks -= len(self._vocabulary.pieces[token])
                return
            if self._may_leave:
                self._leave()
        if self._call is None:
            found = self._watch.see(token)
            if found is not None:
                self._begin(found, token)
        else:
            self._blanks = 0
            self._call.advance(token)
        if self._call is not None and self._call.finished:
            self._leave()
            if not self._parallel:
                self.finished = END_OF_CALL

    def _begin(self, found: Found, token: int) -> None:
        self._call = self._fresh()
        # What follows the call is watched for by itself: the trigger's tail is no part of it.
        self._watch = TagWatch(self._vocabulary, self._triggers)
        if token in self._vocabulary.special:
            self._call.advance(token)
        else:
            self._call.feed(found.tag + found.rest)

    def _leave(self) -> None:
        self._call = None

    @property
    def _may_leave(self) -> bool:
        """Whether free text may follow what could be a whole call."""
        return self._parallel and self._call is not None and self._call.accepting

    def _goes_on(self, token: int) -> bool:
        return self._call is not None and self._call.permitted([token]) == 1

    def _is_blank(self, token: int) -> bool:
        piece = self._vocabulary.pieces[token]
        return 0 < len(piece) <= self._blanks and not piece.strip(b" \t\r\n")

    def _refused(self) -> set[int]:
        """The tokens that would begin a call, and go on with it otherwise than its grammar."""
        return {
            token
            for token, found in self._watch.crossing()
            if token not in self._vocabulary.special and not self._begins(found)
        }

    def _takes_token(self, token: int) -> bool:
        if self.finished:
            return False
        if self._call is not None:
            if self._goes_on(token) or self._is_blank(token):
                return True
            if not self._may_leave:
                return False
        found = self._watch.completed_by(token)
        return found is None or not found.rest or self._begins(found)

    def _begins(self, found: Found) -> bool:
        text = found.tag + found.rest
        if text not in self._taken:
            self._taken[text] = self._fresh().takes(text)
        return self._taken[text]
