"""What controls, penalties and parsers have to know of a vocabulary."""

from collections.abc import Callable

from surefoot.constraints import Controls
from surefoot.decoding import NO_BREAKERS, Breakers, Sampling
from surefoot.runtime.base import Runtime, Tokenizer


def controls_for(runtime: Runtime) -> Controls:
    """What makes controls for a model's tokens.

    Raises:
        TokenizerMissingError: the model file has no tokenizer.
    """
    tokenizer = runtime.tokenizer
    tokenizer.encode("")  # there is none without a tokenizer
    pieces = [tokenizer.piece(token) for token in range(runtime.vocabulary_size)]
    special = frozenset(token for token, piece in enumerate(pieces) if not piece)
    shown = [piece or tokenizer.text_of(token).encode() for token, piece in enumerate(pieces)]
    return Controls(shown, special, tokenizer.end_of_generation, tokenizer.encode)


def breakers_for(tokenizer: Tokenizer, vocabulary_size: int, sampling: Sampling) -> Breakers:
    """The sequence breakers of DRY as tokens; none while it is off."""
    if sampling.dry_multiplier == 0:
        return NO_BREAKERS
    pieces = [tokenizer.piece(token) for token in range(vocabulary_size)]
    return Breakers.of(
        sampling.dry_sequence_breakers,
        pieces,
        lambda text: tokenizer.encode(text, special=False),
    )


def piece_for(tokenizer: Tokenizer, markup: frozenset[int]) -> Callable[[int], bytes]:
    """A token's text as bytes, that of some special tokens included."""
    if not markup:
        return tokenizer.piece
    texts = {token: tokenizer.text_of(token).encode() for token in markup}

    def piece(token: int) -> bytes:
        return texts[token] if token in texts else tokenizer.piece(token)

    return piece
