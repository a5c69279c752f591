"""The vocabulary as grammars see it: texts of tokens, and llguidance's tokenizer for them."""

import threading
from collections.abc import Callable
from collections.abc import Sequence as Series
from functools import cached_property

import numpy as np
from llguidance import LLTokenizer, TokenizerWrapper

from surefoot.decoding import TokenMask


class Vocabulary:
    """What is known of a model's tokens.

    Args:
        pieces: the text of every token, special ones included.
        special: the special tokens, whose text a grammar does not take for text.
        end_tokens: the tokens that end a text.
        encode: turns a text into tokens.
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
        self.encode = encode
        self.crossings: dict[tuple[bytes, bool], list[tuple[int, bytes]]] = {}
        """What `tag` has found out about tokens that go on behind a tag."""
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self.pieces)

    @cached_property
    def tokenizer(self) -> LLTokenizer:
        """llguidance's tokenizer; making it takes a moment where tokens are many."""
        with self._lock:
            ends = sorted(self.end_tokens) or [0]
            return LLTokenizer(
                TokenizerWrapper(_Plain(self, ends[0])), n_vocab=self.size, eos_token=ends
            )

    def tokens_of(self, text: bytes) -> list[int]:
        """Some tokens with that text, none of them special."""
        tokens: list[int] = self.tokenizer.tokenize_bytes(text)
        return tokens

    def mask(self, tokens: frozenset[int] | set[int]) -> TokenMask:
        """A set of tokens as a mask."""
        words = np.zeros(-(-self.size // 32), np.uint32)
        for token in tokens:
            words[token // 32] |= np.uint32(1 << (token % 32))
        return words

    @cached_property
    def everything(self) -> TokenMask:
        """The mask of all tokens."""
        bits = np.zeros(-(-self.size // 32) * 32, np.uint8)
        bits[: self.size] = 1
        return np.packbits(bits, bitorder="little").view(np.uint32)

    @cached_property
    def ends(self) -> TokenMask:
        """The mask of the end tokens."""
        return self.mask(self.end_tokens)


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
        self._encode = vocabulary.encode

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokenize a text."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", errors="replace")
        return self._encode(text)
