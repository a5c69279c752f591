"""Sequence breakers of DRY: texts that no repeat reaches across, as sequences of tokens."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass, field

LONGEST_BREAKER = 40
MOST_TAIL = 20
"""llama.cpp's limits, in bytes and tokens."""

_MOST_KEPT = 64

Tails = Mapping[int, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, slots=True)
class Breakers:
    """The tokens that begin a breaker, and what has to follow each of them.

    Attributes:
        tails: for each head the sequences that complete a breaker; an empty one if the head does.
        longest: the number of tokens in the longest tail; -1 if there are no breakers.
        single: the tokens that are a breaker by themselves.
    """

    tails: Tails = field(default_factory=dict)
    longest: int = field(init=False, default=-1)
    single: frozenset[int] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        """Work out once what is asked at every token."""
        lengths = (len(tail) for some in self.tails.values() for tail in some)
        object.__setattr__(self, "longest", max(lengths, default=-1))
        single = frozenset(token for token, some in self.tails.items() if () in some)
        object.__setattr__(self, "single", single)

    @classmethod
    def of(
        cls,
        strings: Iterable[str],
        pieces: Series[bytes],
        encode: Callable[[str], list[int]],
    ) -> "Breakers":
        """Find the tokens for some texts; see `BreakerFinder`."""
        return BreakerFinder(pieces, encode).find(strings)


class BreakerFinder:
    """Finds breakers in one vocabulary, and remembers what it found: it reads all pieces.

    Args:
        pieces: the text of every token.
        encode: turns a text into tokens, special tokens not recognised.
    """

    def __init__(self, pieces: Series[bytes], encode: Callable[[str], list[int]]) -> None:
        self._pieces = pieces
        self._encode = encode
        self._known: dict[tuple[str, ...], Breakers] = {}

    def find(self, strings: Iterable[str]) -> Breakers:
        """The tokens that contain one of some texts, and those that end with the beginning of one,
        together with the tokens of the rest.

        Args:
            strings: the texts; empty ones are left out, long ones cut.
        """
        key = tuple(strings)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            found = self._known[key] = self._find(key)
        return found

    def _find(self, strings: tuple[str, ...]) -> Breakers:
        tails: dict[int, dict[tuple[int, ...], None]] = {}
        for string in strings:
            wanted = string.encode(errors="replace")[:LONGEST_BREAKER]
            if wanted:
                for token, tail in self._overlaps(wanted):
                    tails.setdefault(token, {})[tail] = None
        return Breakers({token: tuple(found) for token, found in tails.items()})

    def _overlaps(self, wanted: bytes) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Pairs of a head and a tail that make up a breaker."""
        rests: dict[bytes, tuple[int, ...]] = {}
        first = wanted[:1]
        for token, piece in enumerate(self._pieces):
            if first not in piece:
                continue
            if wanted in piece:
                yield token, ()
                continue
            for start in range(len(piece)):
                head = piece[start:]
                if not wanted.startswith(head):
                    continue
                rest = wanted[len(head) :]
                if rest not in rests:
                    text = rest.decode(errors="replace")
                    rests[rest] = tuple(self._encode(text))[:MOST_TAIL]
                yield token, rests[rest]


NO_BREAKERS = Breakers()
