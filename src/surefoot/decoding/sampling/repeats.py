"""How long a stretch at the end of a text stood there before, and what came next.

Kept up token by token: the time for one grows with how often that token occurred, not with how long
the repeats are. It knows nothing of penalties.
"""

from array import array
from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]

_MANY = 500
"""From so many on a table of the vocabulary is quicker than a dictionary."""


class Repeats:
    """A text, and for each place how far the text up to there is like the text's end.

    Args:
        text: the tokens to begin with.
    """

    def __init__(self, text: Series[int] = ()) -> None:
        self._length = len(text)
        room = max(256, 2 * len(text))
        self._tokens = np.zeros(room, np.int64)
        self._tokens[: len(text)] = text
        # Of the text up to and with place k at index k + 1, so that nothing comes before it.
        self._alike = np.zeros(room + 1, np.int32)
        self._alike[1 : len(text)] = alike_with_the_end(text)
        self._places: dict[int, array[int]] = {}
        for place, token in enumerate(text):
            self._places.setdefault(token, array("q")).append(place)
        self._like = self._places_of(text[-1])[:-1] if text else np.empty(0, np.int64)

    def __len__(self) -> int:
        """The number of tokens."""
        return self._length

    @property
    def tokens(self) -> Tokens:
        """The text, shape (length,)."""
        return self._tokens[: self._length]

    def append(self, token: int) -> None:
        """Add a token to the text."""
        if self._length == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
            self._alike = np.concatenate([self._alike, np.zeros(self._length, np.int32)])
        like = self._places_of(token)
        longer = self._alike[like] + 1
        self._alike[self._like + 1] = 0
        self._alike[like + 1] = longer
        self._like = like
        self._tokens[self._length] = token
        self._places.setdefault(token, array("q")).append(self._length)
        self._length += 1

    def _places_of(self, token: int) -> Tokens:
        """Where a token stands, rising."""
        places = self._places.get(token)
        return np.empty(0, np.int64) if places is None else np.array(places, np.int64)

    def continued(self, start: int, limit: int, least: int) -> tuple[Tokens, Tokens]:
        """What came next where the text's end stood before, and the greatest length for each.

        Args:
            start: the text in front of that place plays no part.
            limit: longer stretches count as that long.
            least: shorter stretches do not count; with 0, every token counts that stood behind
                another.

        Returns:
            tokens, each once, and lengths; shape (n,) both.
        """
        like = self._like[np.searchsorted(self._like, start) :]
        lengths = np.minimum(self._alike[like + 1], np.minimum(like - start + 1, limit))
        enough = lengths >= least
        tokens, lengths = self._tokens[like[enough] + 1], lengths[enough]
        if least == 0:
            others = np.unique(self.tokens[start + 1 :])
            tokens = np.concatenate([tokens, others])
            lengths = np.concatenate([lengths, np.zeros_like(others)])
        return _greatest(tokens, lengths)


def _greatest(tokens: Tokens, lengths: Tokens) -> tuple[Tokens, Tokens]:
    """The tokens, each once, with the greatest of its lengths."""
    if len(tokens) < _MANY:
        best: dict[int, int] = {}
        for token, length in zip(tokens.tolist(), lengths.tolist(), strict=True):
            best[token] = max(length, best.get(token, 0))
        return np.array(list(best), np.int64), np.array(list(best.values()), np.int64)
    table = np.full(int(tokens.max()) + 1, -1, np.int64)
    np.maximum.at(table, tokens, lengths)
    found = np.flatnonzero(table >= 0)
    return found, table[found]


def alike_with_the_end(text: Series[int]) -> list[int]:
    """For each place but the last, how many tokens up to it are those at the text's end.

    The Z algorithm from the right: time grows with the length of the text only.
    """
    turned = list(text)[::-1]
    size = len(turned)
    alike = [0] * size
    left = right = 0  # the stretch known to be like the beginning that reaches furthest
    for place in range(1, size):
        length = min(right - place, alike[place - left]) if place < right else 0
        while place + length < size and turned[length] == turned[place + length]:
            length += 1
        alike[place] = length
        if place + length > right:
            left, right = place, place + length
    return alike[:0:-1]
