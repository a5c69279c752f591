"""Log-probabilities as OpenAI and llama-server write them."""

import codecs
import math
from collections.abc import Callable, Iterable
from typing import Any

from surefoot.decoding import Scores
from surefoot.engine import Entry

LEAST = -9999.0
"""Stands for minus infinity, which JSON does not have."""

Piece = Callable[[int], bytes]


def content(entries: Iterable[Entry], piece: Piece, *, post_sampling: bool) -> list[dict[str, Any]]:
    """One object for each token: OpenAI's chat format, with llama-server's `id`.

    Args:
        entries: the tokens; those without scores are told without.
        piece: the bytes of a token's text.
        post_sampling: whether probabilities are told in the place of log-probabilities.
    """
    found = []
    for entry in entries:
        scores = entry.scores or Scores(-math.inf)
        top = [_told(token, piece(token), value, post_sampling) for token, value in scores.top]
        own = _told(entry.token, entry.piece, scores.logprob, post_sampling)
        found.append(own | {"top_probs" if post_sampling else "top_logprobs": top})
    return found


def _told(token: int, text: bytes, logprob: float, post_sampling: bool) -> dict[str, Any]:
    value = {"prob": math.exp(logprob)} if post_sampling else {"logprob": finite(logprob)}
    shown = text.decode(errors="replace")
    return {"id": token, "token": shown, "bytes": list(text), **value}


class Offsets:
    """Counts the characters of tokens' texts, which may be parts of characters.

    Attributes:
        characters: how many there are so far, unfinished ones left out.
    """

    def __init__(self) -> None:
        self.characters = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def add(self, piece: bytes) -> None:
        """Count on."""
        self.characters += len(self._decoder.decode(piece))


def legacy(entries: Iterable[Entry], piece: Piece, offsets: Offsets) -> dict[str, Any]:
    """OpenAI's format for completions: a list for each kind of fact.

    Args:
        entries: the tokens; one without scores, a prompt's first, has null.
        piece: the bytes of a token's text.
        offsets: counts the tokens' characters; those in front of these have been counted.
    """
    tokens, values, tops, starts = [], [], [], []
    for entry in entries:
        tokens.append(entry.piece.decode(errors="replace"))
        starts.append(offsets.characters)
        offsets.add(entry.piece)
        scores = entry.scores
        values.append(None if scores is None else finite(scores.logprob))
        tops.append(None if scores is None else _by_text(entry, scores, piece))
    return {
        "tokens": tokens,
        "token_logprobs": values,
        "top_logprobs": tops,
        "text_offset": starts,
    }


def _by_text(entry: Entry, scores: Scores, piece: Piece) -> dict[str, float]:
    """The likeliest tokens by their texts; of tokens with one text the likeliest counts."""
    found: dict[str, float] = {}
    for token, value in scores.top:
        found.setdefault(piece(token).decode(errors="replace"), finite(value))
    found.setdefault(entry.piece.decode(errors="replace"), finite(scores.logprob))
    return found


def finite(logprob: float) -> float:
    """A log-probability that JSON can hold."""
    return max(logprob, LEAST)
