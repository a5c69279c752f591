"""Exhaustive exploration: run a play once for each way in which its choices can fall."""

from collections.abc import Iterator


class Choices:
    """The choices of one play: those of the path it was given, then always the first."""

    def __init__(self, path: list[int]) -> None:
        self._path = path
        self._sizes: list[int] = []

    def pick(self, count: int) -> int:
        """One of `count` alternatives, numbered from 0."""
        at = len(self._sizes)
        self._sizes.append(count)
        if at == len(self._path):
            self._path.append(0)
        return self._path[at]

    def next_path(self) -> list[int] | None:
        """The path that comes next; None if this was the last."""
        path = self._path[: len(self._sizes)]
        while path and path[-1] + 1 == self._sizes[len(path) - 1]:
            path.pop()
        return [*path[:-1], path[-1] + 1] if path else None


def explore() -> Iterator[Choices]:
    """Choices for one play after the other, until every path has been taken.

    A play must be a function of its choices alone.
    """
    path: list[int] | None = []
    while path is not None:
        choices = Choices(path)
        yield choices
        path = choices.next_path()
