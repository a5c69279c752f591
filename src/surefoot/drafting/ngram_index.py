"""An index of one text: where each n-gram was followed by another token."""

from collections import Counter
from itertools import count

from surefoot.drafting.ngrams import ngram_hash, ngram_hashes


class NgramIndex:
    """Knows for each n-gram its last occurrence, or its first, that has a token behind it.

    Reading on costs the same for every token, however long the text is.

    Args:
        size: tokens in an n-gram.
        first: whether to keep the first occurrence rather than the last.
        counting: whether to count occurrences, too.
    """

    __slots__ = ("_first", "_following", "_hits", "_read", "_size")

    def __init__(self, size: int, *, first: bool = False, counting: bool = False) -> None:
        self._size = size
        self._first = first
        self._read = 0  # n-grams read; also where the next one begins
        self._following: dict[int, int] = {}  # hash -> position of the token that followed
        self._hits: Counter[int] | None = Counter() if counting else None

    def read_on(self, committed: list[int]) -> None:
        """Take in the n-grams that have got a token behind them since the last time."""
        new = committed[self._read : -1]
        positions = count(self._read + self._size)
        pairs = zip(ngram_hashes(new, self._size), positions, strict=False)
        if self._first:
            for key, position in pairs:
                self._following.setdefault(key, position)
        else:
            self._following.update(pairs)
        if self._hits is not None:
            self._hits.update(ngram_hashes(new, self._size))
        self._read = max(self._read, len(committed) - self._size)

    def find(self, committed: list[int], min_hits: int) -> int | None:
        """Position of the token behind an earlier occurrence of what are now the last tokens.

        Args:
            committed: the text.
            min_hits: how often they must have occurred before; above 1 it takes `counting`.
        """
        ngram = committed[-self._size :]
        key = ngram_hash(ngram)
        start = self._following.get(key)
        if start is None or committed[start - self._size : start] != ngram:
            return None
        if self._hits is not None and self._hits[key] < min_hits:
            return None
        return start
