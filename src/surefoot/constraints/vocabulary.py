"""The vocabulary as grammars see it: texts of tokens, and llguidance's tokenizer for them."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Series
from functools import cached_property

import numpy as np
from llguidance import LLTokenizer, TokenizerWrapper

from surefoot.decoding import ControlError, TokenMask


class Vocabulary:
    """What is known of a model's tokens. All of it but their texts is found out when needed.

    Args:
        pieces: the text of every token, special ones included.
        special: the special tokens, whose text a grammar does not take for text.
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
        self.pieces = pieces
        self.special = special
        self.end_tokens = end_tokens
        self._encode = encode
        self._lock = threading.Lock()
        self._tokenizer: LLTokenizer | None = None
        self._holding: dict[bytes, list[int]] = {}

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self.pieces)

    @property
    def tokenizer(self) -> LLTokenizer:
        """llguidance's tokenizer; making it takes a moment where tokens are many."""
        with self._lock:
            if self._tokenizer is None:
                ends = sorted(self.end_tokens) or [0]
                wrapper = TokenizerWrapper(_Plain(self, ends[0]))
                self._tokenizer = LLTokenizer(wrapper, n_vocab=self.size, eos_token=ends)
            return self._tokenizer

    # Texts into tokens

    def encode(self, text: str) -> list[int]:
        """Tokens with exactly that text, special ones recognised.

        Tokenizers that put a blank in front of a text are not believed.
        """
        tokens = list(self._encode(text))
        if self._text_of(tokens) == text.encode():
            return tokens
        return self._longest_pieces(text.encode())

    def tokens_of(self, text: bytes) -> list[int]:
        """Some tokens with that text, none of them special.

        Raises:
            ControlError: the vocabulary has no tokens for it.
        """
        try:
            words = text.decode()
        except UnicodeDecodeError:
            return self._longest_pieces(text)
        tokens = list(self._encode(words))
        if self.special.isdisjoint(tokens) and self._text_of(tokens) == text:
            return tokens
        return self._longest_pieces(text)

    def single(self, text: str) -> int | None:
        """The token that has a text all for itself, special or not."""
        tokens = self._encode(text)
        return tokens[0] if len(tokens) == 1 else None

    def _text_of(self, tokens: Iterable[int]) -> bytes:
        return b"".join(self.pieces[token] for token in tokens)

    def _longest_pieces(self, text: bytes) -> list[int]:
        known, longest = self._tokens_by_text
        tokens, at = [], 0
        while at < len(text):
            for length in range(min(longest, len(text) - at), 0, -1):
                token = known.get(text[at : at + length])
                if token is not None:
                    tokens.append(token)
                    at += length
                    break
            else:
                raise ControlError(f"the model has no token that begins with byte {text[at]}")
        return tokens

    @cached_property
    def _tokens_by_text(self) -> tuple[dict[bytes, int], int]:
        known: dict[bytes, int] = {}
        for token, piece in enumerate(self.pieces):
            if piece and token not in self.special:
                known.setdefault(piece, token)
        return known, max(map(len, known), default=0)

    # Tokens by their text

    def beginning_with(self, text: bytes) -> list[int]:
        """The tokens whose text begins with that one, or is it."""
        pieces, tokens = self._sorted
        found = []
        at = bisect_left(pieces, text)
        while at < len(pieces) and pieces[at].startswith(text):
            found.append(tokens[at])
            at += 1
        return found

    def heads_of(self, text: bytes) -> list[int]:
        """The tokens that a text begins with."""
        pieces, tokens = self._sorted
        found = []
        for length in range(1, len(text) + 1):
            at = bisect_left(pieces, text[:length])
            while at < len(pieces) and pieces[at] == text[:length]:
                found.append(tokens[at])
                at += 1
        return found

    def holding(self, text: bytes) -> list[int]:
        """The tokens with that text anywhere in theirs."""
        if text not in self._holding:
            self._holding[text] = [t for t, piece in enumerate(self.pieces) if text in piece]
        return self._holding[text]

    @cached_property
    def _sorted(self) -> tuple[list[bytes], list[int]]:
        order = sorted(range(self.size), key=self.pieces.__getitem__)
        return [self.pieces[token] for token in order], order

    @cached_property
    def blanks(self) -> list[int]:
        """The tokens that are whitespace and nothing else, shortest first."""
        found = [t for t, piece in enumerate(self.pieces) if piece and not piece.strip(b" \t\r\n")]
        return sorted(found, key=lambda token: len(self.pieces[token]))

    # Masks

    def mask(self, tokens: Iterable[int]) -> TokenMask:
        """A set of tokens as a mask."""
        words = np.zeros(-(-self.size // 32), np.uint32)
        for token in tokens:
            words[token // 32] |= np.uint32(1 << (token % 32))
        return words

    def text_token_in(self, mask: TokenMask) -> int | None:
        """One of a mask's tokens that does not end the text; None if there is none."""
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=self.size)
        return next((int(t) for t in np.flatnonzero(bits) if int(t) not in self.end_tokens), None)

    def all_but(self, tokens: Iterable[int]) -> TokenMask:
        """The mask of all tokens but some."""
        return self.everything & ~self.mask(tokens)

    @cached_property
    def everything(self) -> TokenMask:
        """The mask of all tokens."""
        bits = np.zeros(-(-self.size // 32) * 32, np.uint8)
        bits[: self.size] = 1
        return np.packbits(bits, bitorder="little").view(np.uint32)


class _Plain:
    """The vocabulary in the shape that llguidance asks for."""

    def __init__(self, vocabulary: Vocabulary, end: int) -> None:
        self.eos_token_id = end
        self.bos_token_id = None
        self.special_token_ids = sorted(vocabulary.special)
        # A token without a text could be put anywhere; llguidance wants one, and 0xff marks it.
        self.tokens = [
            piece or b"\xff<|token_%d|>" % token for token, piece in enumerate(vocabulary.pieces)
        ]
        self._tokens_of = vocabulary.tokens_of

    def __call__(self, text: bytes) -> list[int]:
        """Tokenize a text; what looks like a special token in a grammar is text all the same."""
        try:
            return self._tokens_of(text)
        except ControlError:
            return []  # nothing is forced then
