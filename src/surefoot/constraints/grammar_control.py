"""A grammar as a control: llguidance's matcher, moved on once for each committed token."""

from collections.abc import Sequence as Series

import numpy as np
from llguidance import LLMatcher

from surefoot.constraints.vocabulary import Vocabulary
from surefoot.decoding import ControlError, TokenMask

END = "end of the grammar"


class GrammarControl:
    """Holds a text to a grammar; see `Control`.

    Args:
        vocabulary: the tokens.
        matcher: in its initial state, and used by nobody else.
    """

    reasoning_tokens = 0

    def __init__(self, vocabulary: Vocabulary, matcher: LLMatcher) -> None:
        self._vocabulary = vocabulary
        self._matcher = matcher
        self._words = np.empty(-(-vocabulary.size // 32), np.uint32)
        self._mask: TokenMask | None = None
        self._forced: Series[int] | None = None
        self._ended = False
        self.consumed = 0
        """How many tokens have been taken."""

    def copy(self) -> "GrammarControl":
        """Another one in the same state."""
        other = GrammarControl(self._vocabulary, self._matcher.deep_copy())
        other._ended, other.consumed = self._ended, self.consumed
        return other

    def allowed(self) -> TokenMask:
        """The tokens that may come next; see `Control`."""
        if self._mask is None:
            self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
            self._check()
            if not self._words.any():
                raise ControlError("the grammar leaves no token that could come next")
            self._mask = self._words
        return self._mask

    def forced(self) -> Series[int]:
        """The tokens that come next anyway; see `Control`."""
        if self._forced is None:
            over = self._ended or self.finished
            self._forced = [] if over else list(self._matcher.compute_ff_tokens())
            self._check()
        return self._forced

    def permitted(self, draft: Series[int]) -> int:
        """How much of a draft the grammar allows; see `Control`."""
        if self._ended or self.finished:
            return 0
        ends = self._vocabulary.end_tokens
        length = next((i for i, token in enumerate(draft) if token in ends), len(draft))
        head = list(draft[:length])
        permitted = max(0, int(self._matcher.validate_tokens(head))) if head else 0
        if permitted < length or length == len(draft):
            return permitted
        behind = self.copy()
        for token in head:
            behind.advance(token)
        return length + (not behind.finished and behind._may_end_with(draft[length]))

    def takes(self, text: bytes) -> bool:
        """Whether a text could come next."""
        try:
            tokens = self._vocabulary.tokens_of(text)
        except ControlError:
            return False
        return self.permitted(tokens) == len(tokens)

    def feed(self, text: bytes) -> None:
        """Take a text that came with a token which is not the grammar's alone.

        Raises:
            ControlError: it is not allowed.
        """
        for token in self._vocabulary.tokens_of(text):
            self.advance(token)

    def advance(self, token: int) -> None:
        """Take a token; see `Control`."""
        if self._ended or self.finished:
            raise ControlError(f"token {token} comes after the {END}")
        if token in self._vocabulary.end_tokens:
            if not self._may_end_with(token):
                raise ControlError("the text ended before the grammar did")
            self._ended, self._forced = True, []
            return
        self._mask = None
        self._matcher.consume_token(token)
        self._check()
        self.consumed += 1
        if self._forced and self._forced[0] == token:
            self._forced = self._forced[1:] or None
        else:
            self._forced = None

    def _may_end_with(self, token: int) -> bool:
        """Whether an end token may come: the text may end, or the grammar names it."""
        if self._matcher.is_accepting():
            return True
        return bool(self.allowed()[token // 32] >> np.uint32(token % 32) & np.uint32(1))

    @property
    def accepting(self) -> bool:
        """Whether the text may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def finished(self) -> str | None:
        """The end of the grammar; None if more may follow."""
        return END if self._matcher.is_stopped() and not self._matcher.is_error() else None

    def _check(self) -> None:
        if self._matcher.is_error():
            said = " ".join(self._matcher.get_error().split())
            raise ControlError(f"the grammar failed: {said[:400]}")
