"""A table from an n-gram's hash to the token that followed it, in a fixed number of places."""

from array import array
from collections.abc import Iterable

PLACES = 1 << 22
"""As many as llama-server's table has (build 11434, `common/speculative.cpp`): 16 MB."""


class NgramTable:
    """Forgets by being overwritten; of two n-grams in one place the later one is known.

    Args:
        places: how many n-grams it can hold at most.
    """

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._followers = array("i", bytes(array("i").itemsize * self._places))  # token + 1
        self._used = 0

    def update(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Take in pairs of an n-gram's hash and the token that followed it."""
        for key, token in pairs:
            place = key % self._places
            self._used += self._followers[place] == 0
            self._followers[place] = token + 1

    def get(self, key: int) -> int | None:
        """The token that followed an n-gram of this hash, or of one with the same place."""
        follower = self._followers[key % self._places]
        return follower - 1 if follower else None

    @property
    def occupancy(self) -> float:
        """Share of the places in use."""
        return self._used / self._places
