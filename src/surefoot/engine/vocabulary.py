"""What controls, penalties and parsers have to know of a vocabulary."""

from collections.abc import Callable
from typing import Protocol

from surefoot.constraints import Controls
from surefoot.decoding.sampling import BreakerFinder
from surefoot.runtime.base import Runtime, Tokenizer


class Vocabulary(Protocol):
    """What has a vocabulary: a runtime, or a file of which nothing else was loaded."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are."""


def controls_for(model: Vocabulary) -> Controls:
    """What makes controls for a model's tokens.

    Raises:
        TokenizerMissingError: the model file has no tokenizer.
    """
    tokenizer = model.tokenizer
    tokenizer.encode("")  # there is none without a tokenizer
    pieces = [tokenizer.piece(token) for token in range(model.vocabulary_size)]
    special = frozenset(token for token, piece in enumerate(pieces) if not piece)
    shown = [piece or tokenizer.text_of(token).encode() for token, piece in enumerate(pieces)]
    return Controls(shown, special, tokenizer.end_of_generation, tokenizer.encode)


def breaker_finder(runtime: Runtime) -> BreakerFinder:
    """What finds DRY's sequence breakers among a model's tokens, and remembers them."""
    tokenizer = runtime.tokenizer
    pieces = [tokenizer.piece(token) for token in range(runtime.vocabulary_size)]
    return BreakerFinder(pieces, lambda text: tokenizer.encode(text, special=False))


def piece_for(tokenizer: Tokenizer, markup: frozenset[int]) -> Callable[[int], bytes]:
    """A token's text as bytes, that of some special tokens included."""
    if not markup:
        return tokenizer.piece
    texts = {token: tokenizer.text_of(token).encode() for token in markup}

    def piece(token: int) -> bytes:
        return texts[token] if token in texts else tokenizer.piece(token)

    return piece
