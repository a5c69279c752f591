"""Tool calls within free text: from a trigger on a grammar holds, until the call has ended."""

from collections.abc import Callable
from collections.abc import Sequence as Series

from surefoot.constraints.grammar_control import GrammarControl
from surefoot.constraints.tag import Found, TagWatch
from surefoot.constraints.vocabulary import Vocabulary
from surefoot.decoding import TokenMask

END_OF_CALL = "end of the tool call"


class CallsControl:
    """Holds the calls in a text to their grammar; see `Control`.

    Args:
        vocabulary: the tokens.
        triggers: texts that begin a call.
        fresh: makes a control for one call, from its trigger on.
        required: whether the text must be a call, with nothing in front of it.
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
        self._watch = TagWatch(vocabulary, triggers)
        self._taken: dict[bytes, bool] = {}
        self.finished: str | None = None

    def copy(self) -> "CallsControl":
        """Another one in the same state."""
        other = CallsControl(
            self._vocabulary, self._triggers, self._fresh, required=False, parallel=self._parallel
        )
        other._call = None if self._call is None else self._call.copy()
        other._watch = self._watch.copy()
        other._taken, other.finished = self._taken, self.finished
        return other

    def allowed(self) -> TokenMask | None:
        """The tokens that may come next; see `Control`."""
        if self._call is not None:
            return self._call.allowed()
        refused = {
            token for token, tag, rest in self._watch.crossing() if not self._takes(tag + rest)
        }
        return self._vocabulary.everything & ~self._vocabulary.mask(refused) if refused else None

    def forced(self) -> Series[int]:
        """The tokens that come next anyway; see `Control`."""
        return () if self._call is None else self._call.forced()

    def permitted(self, draft: Series[int]) -> int:
        """How much of a draft is allowed; see `Control`."""
        if self._call is not None:
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
        return self._call is None or self._call.takes(text)

    def feed(self, text: bytes) -> None:
        """Take a text that came with a token which is not the answer's alone."""
        for token in self._vocabulary.tokens_of(text):
            self.advance(token)

    def advance(self, token: int) -> None:
        """Take a token; see `Control`."""
        if self._call is None:
            found = self._watch.see(token)
            if found is not None:
                self._begin(found, token)
        else:
            self._call.advance(token)
        if self._call is not None and self._call.finished:
            self._call = None
            self._watch = TagWatch(self._vocabulary, self._triggers)
            if not self._parallel:
                self.finished = END_OF_CALL

    def _begin(self, found: Found, token: int) -> None:
        self._call = self._fresh()
        if token in self._vocabulary.special:
            self._call.advance(token)
        else:
            self._call.feed(found.tag + found.rest)

    def _takes_token(self, token: int) -> bool:
        if self.finished:
            return False
        if self._call is not None:
            return self._call.permitted([token]) == 1
        found = self._watch.copy().see(token)
        return found is None or not found.rest or self._takes(found.tag + found.rest)

    def _takes(self, text: bytes) -> bool:
        if text not in self._taken:
            self._taken[text] = self._fresh().takes(text)
        return self._taken[text]
