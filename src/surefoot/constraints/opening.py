"""The beginning of a text, as long as reasoning may still begin there."""

from collections.abc import Sequence as Series
from typing import NamedTuple

from surefoot.constraints.vocabulary import Vocabulary


class _Step(NamedTuple):
    """Where a further piece of text leads: what may be part of a tag, what came behind a start
    tag, and whether a stray tag went by."""

    said: bytes
    rest: bytes | None
    passed: bool


class Opening:
    """Follows a text that may begin with a start tag, with whitespace in front of it.

    Args:
        vocabulary: the tokens.
        starts: the start tags.
        strays: tags that mean nothing in front of a start tag; they count for whitespace.
    """

    def __init__(
        self, vocabulary: Vocabulary, starts: Series[bytes], strays: Series[bytes] = ()
    ) -> None:
        self._vocabulary = vocabulary
        self._starts = starts
        self._strays = strays
        self._said = b""

    def copy(self) -> "Opening":
        """Another one in the same state."""
        other = Opening(self._vocabulary, self._starts, self._strays)
        other._said = self._said
        return other

    @property
    def possible(self) -> bool:
        """Whether a start tag may still come."""
        return self._possible(self._said)

    def tokens(self) -> set[int]:
        """The tokens that bring a tag nearer."""
        found: set[int] = set()
        for tag in (*self._starts, *self._strays):
            if tag.startswith(self._said):
                missing = tag[len(self._said) :]
                found.update(self._vocabulary.heads_of(missing))
                found.update(self._vocabulary.beginning_with(missing))
                if not self._said:
                    found.update(self._vocabulary.holding(missing[:1]))
        return {token for token in found if self.goes_on_with(token)}

    def goes_on_with(self, token: int) -> bool:
        """Whether a token brings a tag nearer; whitespace alone does not."""
        step = self._after(self._vocabulary.pieces[token])
        if step.rest is not None:
            return True
        return (step.passed or step.said != self._said) and self._possible(step.said)

    def advance(self, text: bytes) -> bytes | None:
        """Take a text; returns what came behind a start tag once it is there."""
        step = self._after(text)
        self._said = step.said
        return step.rest

    def _possible(self, said: bytes) -> bool:
        return any(tag.startswith(said) for tag in (*self._starts, *self._strays))

    def _after(self, text: bytes) -> _Step:
        said, passed = (self._said + text).lstrip(), False
        while True:
            start = _first_of(self._starts, said)
            if start is not None:
                return _Step(said, said[len(start) :], passed)
            stray = _first_of(self._strays, said)
            if stray is None:
                return _Step(said, None, passed)
            said, passed = said[len(stray) :].lstrip(), True


def _first_of(tags: Series[bytes], text: bytes) -> bytes | None:
    """The tag that a text begins with."""
    return next((tag for tag in tags if text.startswith(tag)), None)
