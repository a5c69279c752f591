"""Sequence breakers of DRY: texts that no repeat reaches across, as sequences of tokens."""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass, field

LONGEST_BREAKER = 40
MOST_TAIL = 20
"""llama.cpp's limits, in characters and tokens."""


@dataclass(frozen=True, slots=True)
class Breakers:
    """The tokens that begin a breaker, and what has to follow each of them.

    Attributes:
        tails: for each head the sequences that complete a breaker; an empty one if the head does.
    """

    tails: Mapping[int, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        strings: Iterable[str],
        pieces: Series[bytes],
        encode: Callable[[str], list[int]],
    ) -> "Breakers":
        """Find the tokens for some texts: those that contain one, and those that end with the
        beginning of one, together with the tokens of the rest.

        Args:
            strings: the texts; empty ones are left out, long ones cut.
            pieces: the text of every token.
            encode: turns a text into tokens, special tokens not recognised.
        """
        tails: dict[int, dict[tuple[int, ...], None]] = {}
        for string in strings:
            wanted = string.encode()[:LONGEST_BREAKER]
            if not wanted:
                continue
            rests: dict[bytes, tuple[int, ...]] = {}
            for token, piece in enumerate(pieces):
                if wanted[:1] not in piece:
                    continue
                if wanted in piece:
                    tails.setdefault(token, {})[()] = None
                    continue
                for start in range(len(piece)):
                    head = piece[start:]
                    if not wanted.startswith(head):
                        continue
                    rest = wanted[len(head) :]
                    if rest not in rests:
                        text = rest.decode(errors="replace")
                        rests[rest] = tuple(encode(text))[:MOST_TAIL]
                    tails.setdefault(token, {})[rests[rest]] = None
        return cls({token: tuple(found) for token, found in tails.items()})


NO_BREAKERS = Breakers()
