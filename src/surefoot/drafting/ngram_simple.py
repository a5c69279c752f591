"""`ngram-simple`: what followed the last n tokens when they last occurred will follow again.

The meaning is that of llama-server's drafter of this name (build 11434, `common/ngram-map.cpp`):
the last earlier occurrence of the current n-gram, and up to m tokens behind it. It scans the
history for each draft; here an index grows with the text. Further differences, each of which
finds drafts that llama-server misses or keeps a promise of its options:

- A draft may be shorter than n, the text shorter than n + m + 2 tokens, and the occurrence may be
  the very first n-gram or end one token before the current one. llama-server gives up on these.
- Where the tokens behind the occurrence reach the end of the text, the text is periodic there,
  and the draft goes on with the period.
- `min_hits` counts. llama-server takes the option for this drafter and never reads it.
"""

from collections import Counter
from collections.abc import Sequence as Series
from itertools import count, cycle, islice

from surefoot.decoding import NO_DRAFT, Draft, Sequence
from surefoot.drafting.ngrams import ngram_hash, ngram_hashes


class NgramSimple:
    """Drafts from the sequence's own text.

    Args:
        size_n: tokens in the n-gram that is looked up.
        size_m: most tokens in a draft.
        min_hits: how often the n-gram must have occurred before.
    """

    name = "ngram-simple"

    def __init__(self, size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> None:
        self._size_n = size_n
        self._size_m = size_m
        self._min_hits = min_hits
        self._pasts: dict[Sequence, _Past] = {}

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """What followed the last occurrence in each sequence."""
        return [self._draft(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Nothing: the text itself is all there is to learn from."""

    def forget(self, sequence: Sequence) -> None:
        """Drop the sequence's index."""
        self._pasts.pop(sequence, None)

    def _draft(self, sequence: Sequence, most: int) -> Draft:
        past = self._pasts.get(sequence)
        if past is None:
            past = self._pasts[sequence] = _Past(self._size_n, counting=self._min_hits > 1)
        committed = sequence.committed
        past.read_on(committed)
        start = past.find(committed, self._min_hits)
        if start is None:
            return NO_DRAFT
        length = min(most, self._size_m)
        following = committed[start : start + length]
        return Draft(list(islice(cycle(following), length)), self.name)


class _Past:
    """Where each n-gram of one sequence was last followed by another token.

    Reading on costs the same for every token, however long the text is.
    """

    __slots__ = ("_following", "_hits", "_read", "_size")

    def __init__(self, size: int, *, counting: bool) -> None:
        self._size = size
        self._read = 0  # n-grams read; also where the next one begins
        self._following: dict[int, int] = {}  # hash -> position of the token that followed
        self._hits: Counter[int] | None = Counter() if counting else None

    def read_on(self, committed: list[int]) -> None:
        """Take in the n-grams that have got a token behind them since the last time."""
        new = committed[self._read : -1]
        positions = count(self._read + self._size)
        self._following.update(zip(ngram_hashes(new, self._size), positions, strict=False))
        if self._hits is not None:
            self._hits.update(ngram_hashes(new, self._size))
        self._read = max(self._read, len(committed) - self._size)

    def find(self, committed: list[int], min_hits: int) -> int | None:
        """Position of the token that last followed what are now the last tokens."""
        ngram = committed[-self._size :]
        key = ngram_hash(ngram)
        start = self._following.get(key)
        if start is None or committed[start - self._size : start] != ngram:
            return None
        if self._hits is not None and self._hits[key] < min_hits:
            return None
        return start
