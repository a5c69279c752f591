"""Which tokens followed each n-gram of 1 to 4 tokens, and how often."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

LONGEST = 4
"""Tokens in the longest n-gram, as in llama.cpp (build 11434, `common/ngram-cache.h`)."""

RIVALS = 64
"""Of an n-gram's followers only so many are weighed by evidence, those seen first, so that a guess
costs the same in a long text."""

EVIDENCE = 100
"""How much more a follower weighs, for each time that the evidence has seen it, than one that the
evidence doesn't know; llama.cpp's figure."""

_BITS = 32
_MASK = (1 << _BITS) - 1


class Threshold(NamedTuple):
    """How sure a guess must be: sightings of the n-gram, and the guess's share of them."""

    samples: int
    percent: int


class Followers:
    """The different tokens that followed one n-gram."""

    __slots__ = ("best", "counts", "total")

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts = counts
        self.total = sum(counts.values())
        self.best = max(counts, key=counts.__getitem__)

    def add(self, token: int) -> None:
        """Count one more; the best is the first that got to the highest count."""
        count = self.counts[token] = self.counts.get(token, 0) + 1
        self.total += 1
        if count > self.counts[self.best]:
            self.best = token


Seen = int | Followers
"""What followed one n-gram. Most have one follower, and for those a number is enough: the token,
and above its 32 bits how often it was seen again."""


def extended(keys: list[int], token: int) -> list[int]:
    """The keys of the n-grams that end at a token, shortest first.

    A key holds the n-gram's tokens, in 32 bits each and raised by 1 so that lengths differ.

    Args:
        keys: those of the n-grams that end right before it; none at a text's beginning.
        token: the token.
    """
    last = token + 1
    return [last, *[key << _BITS | last for key in keys[: LONGEST - 1]]]


def key_of(ngram: Iterable[int]) -> int:
    """The key of an n-gram; see `extended`."""
    key = 0
    for token in ngram:
        key = key << _BITS | token + 1
    return key


def ngram_of(key: int) -> list[int]:
    """The tokens of a key."""
    tokens = []
    while key:
        tokens.append((key & _MASK) - 1)
        key >>= _BITS
    return tokens[::-1]


def counts_of(seen: Seen) -> Mapping[int, int]:
    """Each follower and how often it was seen."""
    if isinstance(seen, int):
        return {seen & _MASK: 1 + (seen >> _BITS)}
    return seen.counts


def likely(seen: Seen, evidence: Seen | None, threshold: Threshold) -> int | None:
    """The follower to expect; None if it isn't likely enough.

    Args:
        seen: what followed the n-gram.
        evidence: what followed in other texts; a follower that is known there is preferred.
        threshold: what the guess must reach, in `seen` alone.
    """
    if isinstance(seen, int):
        return seen & _MASK if 1 + (seen >> _BITS) >= threshold.samples else None
    enough = threshold.percent * seen.total
    token = seen.best
    if seen.total < threshold.samples or 100 * seen.counts[token] < enough:
        return None
    if evidence is not None:
        token = _weighed(seen, counts_of(evidence))
    return token if 100 * seen.counts[token] >= enough else None


def _weighed(seen: Followers, evidence: Mapping[int, int]) -> int:
    """The follower with the highest count times evidence; the best one, or the first, if equal."""
    rivals = [(seen.best, seen.counts[seen.best]), *islice(seen.counts.items(), RIVALS)]
    return max(rivals, key=lambda rival: rival[1] * (EVIDENCE * evidence.get(rival[0], 0) or 1))[0]


class NgramCounts:
    """Counts of followers; takes in texts token by token, at the same cost for each."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}

    def __len__(self) -> int:
        """How many n-grams are known."""
        return len(self._seen)

    def __iter__(self) -> Iterator[tuple[int, Mapping[int, int]]]:
        """The key of each n-gram, and its followers' counts."""
        return ((key, counts_of(seen)) for key, seen in self._seen.items())

    def get(self, key: int) -> Seen | None:
        """What followed an n-gram; None if it isn't known."""
        return self._seen.get(key)

    def add(self, keys: Iterable[int], token: int) -> None:
        """Count a token behind each of the n-grams that end right before it."""
        seen = self._seen
        for key in keys:
            known = seen.get(key)
            if known is None:
                seen[key] = token
            elif not isinstance(known, int):
                known.add(token)
            elif known & _MASK == token:
                seen[key] = known + (1 << _BITS)
            else:
                seen[key] = Followers({**counts_of(known), token: 1})

    def put(self, key: int, counts: dict[int, int]) -> None:
        """Set the followers of an n-gram that isn't known yet; of one that is, nothing changes."""
        if key not in self._seen:
            self._seen[key] = _seen(counts)

    def prune(self, most: int) -> None:
        """Halve all counts until no more than `most` n-grams are left; what comes to 0 goes."""
        while len(self) > most:
            self._seen = {
                key: halved
                for key, seen in self._seen.items()
                if (halved := _halved(seen)) is not None
            }


def _halved(seen: Seen) -> Seen | None:
    if isinstance(seen, int):
        again = seen >> _BITS
        return seen & _MASK | (again - 1 >> 1) << _BITS if again else None
    counts = {token: count // 2 for token, count in seen.counts.items() if count > 1}
    return _seen(counts) if counts else None


def _seen(counts: dict[int, int]) -> Seen:
    if len(counts) > 1:
        return Followers(counts)
    ((token, count),) = counts.items()
    return token | count - 1 << _BITS
