"""Text to tokens and back, by libllama's tokenizer for the model file's vocabulary."""

import ctypes
from functools import cached_property
from typing import TYPE_CHECKING

from surefoot.runtime.base import TokenizerMissingError
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.errors import TokenizingError

if TYPE_CHECKING:
    from surefoot.runtime.libllama.model import Model

_ATTEMPTS = 3
"""One tells how much room is needed, the next has it; libllama may be wrong once."""

_OVERFLOW = -(1 << 31)
"""llama.h: a text of more tokens than it can count."""


class LibllamaTokenizer:
    """The tokenizer of a loaded model.

    A file without one can still be fed token ids: its tokens have no text, and `encode` raises.
    """

    def __init__(self, model: "Model") -> None:
        self._model = model
        kind = binding.llama_vocab_type(model.vocabulary)
        self._exists = kind not in binding.VOCABULARIES_WITHOUT_TOKENIZER
        self._pieces: list[bytes | None] = [None] * model.vocabulary_size

    @cached_property
    def end_of_generation(self) -> frozenset[int]:
        """Tokens with which the model ends its turn."""
        vocabulary = self._vocabulary()
        if not self._exists:
            return frozenset()
        tokens = range(self._model.vocabulary_size)
        return frozenset(t for t in tokens if binding.llama_vocab_is_eog(vocabulary, t))

    def encode(self, text: str, *, special: bool = True, add_special: bool = False) -> list[int]:
        """Tokenize a text.

        Args:
            text: any text; halves of surrogate pairs, which are no characters, become "?".
            special: whether special tokens written out in the text are taken as such.
            add_special: whether to add what the model wants around a text (BOS, for example).

        Raises:
            TokenizerMissingError: the model file has no tokenizer.
            TokenizingError: libllama could not do it.
        """
        vocabulary = self._vocabulary()
        if not self._exists:  # libllama would abort the process
            raise TokenizerMissingError(
                f"the model file {self._model.path.name!r} has no tokenizer, so text can't be "
                "turned into tokens. Feed token ids, or use a file with a tokenizer."
            )
        data = text.encode(errors="replace")
        room = len(data) + 8  # hardly ever more tokens than bytes
        for _ in range(_ATTEMPTS):
            tokens = (ctypes.c_int32 * room)()
            count = binding.llama_tokenize(
                vocabulary, data, len(data), tokens, room, add_special, special
            )
            if count >= 0:
                return tokens[:count]
            if count == _OVERFLOW:
                break
            room = -count
        raise TokenizingError(f"a text of {len(data)} bytes could not be turned into tokens")

    def piece(self, token: int) -> bytes:
        """A token's text as bytes, which may be part of a character; empty for control tokens.

        Tokens that a model's makers defined for use in text, such as <think>, keep their text.
        """
        if not 0 <= token < len(self._pieces):
            raise ValueError(f"token {token} is none of the {len(self._pieces)} tokens")
        piece = self._pieces[token]
        if piece is None:
            piece = self._pieces[token] = self._text(token, special=False)
        return piece

    def text_of(self, token: int) -> str:
        """A special token's text as it is written in prompts; empty if there is no such token."""
        known = 0 <= token < len(self._pieces)
        return self._text(token, special=True).decode(errors="replace") if known else ""

    def _text(self, token: int, *, special: bool) -> bytes:
        vocabulary = self._vocabulary()
        if not self._exists:
            return b""
        room = 64
        for _ in range(_ATTEMPTS):
            text = ctypes.create_string_buffer(room)
            length = binding.llama_token_to_piece(vocabulary, token, text, room, 0, special)
            if length >= 0:
                return text.raw[:length]
            room = -length
        raise TokenizingError(f"libllama does not tell the text of token {token}")

    def _vocabulary(self) -> int:
        """The vocabulary's handle, which goes with the model's; see there for errors."""
        return self._model.vocabulary if self._model.handle else 0
