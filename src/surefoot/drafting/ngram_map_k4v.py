"""`ngram-map-k4v`: what followed the last n tokens most often, if clearly so.

The meaning is that of llama-server's drafter of this name (build 11434, `common/ngram-map.cpp`,
`docs/speculative.md`): for each n-gram (the key) up to four different m-grams that followed it
(the values), and how often. The most frequent value is the draft if it occurred at least twice as
often as the others together. Each value remembers how many of its tokens were accepted last time;
its next draft is no longer, and one none of whose tokens was accepted is not used any more.

llama-server does not do quite what its documentation says; here the documentation counts:

- Every occurrence of a key counts, once. There values are counted during lookups, up to the key's
  first known occurrence, some of them twice, and later ones may never be.
- The draft is the most frequent value. There its tokens come from behind the first known
  occurrence, whichever value was chosen.
- `min_hits` is about occurrences of the key with m tokens behind them, not about lookups.
- A draft that was accepted in full, and was short only since few tokens were asked for, doesn't
  hold the next one back.
"""

from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Sequence
from surefoot.drafting.ngram_limits import Limits
from surefoot.drafting.ngrams import ngram_hash, ngram_hashes

MOST_VALUES = 4
CLEARLY = 2
"""How many times as often as all others a value must have occurred."""


class NgramMapK4V:
    """Drafts from the sequence's own text what is most likely to follow.

    Args:
        size_n: tokens in a key.
        size_m: tokens in a value, and most tokens in a draft.
        min_hits: how often the key must have occurred before.
    """

    name = "ngram-map-k4v"

    def __init__(self, size_n: int = 12, size_m: int = 48, min_hits: int = 1) -> None:
        self._size_n = size_n
        self.longest_draft = size_m
        self._min_hits = min_hits
        self._pasts: dict[Sequence, _Past] = {}

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """The most frequent value of each sequence's key, as far as it was right before."""
        return [self._draft(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Remember for the value of the last draft how many tokens were accepted."""
        past = self._pasts.get(sequence)
        if past is not None:
            past.limits.learn(len(draft.tokens), accepted)

    def forget(self, sequence: Sequence) -> None:
        """Drop the sequence's keys and values."""
        self._pasts.pop(sequence, None)

    def _draft(self, sequence: Sequence, most: int) -> Draft:
        past = self._pasts.get(sequence)
        if past is None:
            past = self._pasts[sequence] = _Past(self._size_n, self.longest_draft)
        past.read_on(sequence.committed)
        start = past.find(sequence.committed, self._min_hits)
        if start is None:
            return NO_DRAFT
        length = past.limits.length(start, min(most, self.longest_draft))
        if length == 0:
            return NO_DRAFT
        return Draft(sequence.committed[start : start + length], self.name)


class _Past:
    """Keys and values of one sequence; a value is known by where it first occurred.

    Reading on costs the same for every token, however long the text is.
    """

    __slots__ = ("_read", "_size", "_size_m", "_values", "limits")

    def __init__(self, size_n: int, size_m: int) -> None:
        self._size = size_n
        self._size_m = size_m
        self._read = 0  # keys read; also where the next one begins
        self._values: dict[int, int | dict[int, int]] = {}
        """Hash of a key -> where its value begins, or for several occurrences: where each value
        first began -> how often it occurred. Most keys occur once, and a number is small."""
        self.limits = Limits()

    def read_on(self, committed: list[int]) -> None:
        """Take in the keys that have got m tokens behind them since the last time."""
        new = committed[self._read : max(0, len(committed) - self._size_m)]
        for start, key in enumerate(ngram_hashes(new, self._size), self._read + self._size):
            known = self._values.setdefault(key, start)
            if isinstance(known, int):
                if known == start:
                    continue
                known = self._values[key] = {known: 1}
            self._count(known, committed, start)
        self._read = max(self._read, len(committed) - self._size - self._size_m + 1)

    def _count(self, values: dict[int, int], committed: list[int], start: int) -> None:
        value = committed[start : start + self._size_m]
        for first in values:
            if committed[first : first + self._size_m] == value:
                values[first] += 1
                return
        if len(values) < MOST_VALUES:
            values[start] = 1

    def find(self, committed: list[int], min_hits: int) -> int | None:
        """Where the value begins that is clearly the most frequent one after the last tokens."""
        ngram = committed[-self._size :]
        known = self._values.get(ngram_hash(ngram))
        if known is None:
            return None
        values = {known: 1} if isinstance(known, int) else known
        start = max(values, key=values.__getitem__)
        hits = sum(values.values())
        if hits < min_hits or values[start] < CLEARLY * (hits - values[start]):
            return None
        return start if committed[start - self._size : start] == ngram else None
