"""Watching a text for a tag that may lie across tokens, or end inside one."""

from collections.abc import Iterable
from collections.abc import Sequence as Series
from typing import NamedTuple

from surefoot.constraints.vocabulary import Vocabulary


class Found(NamedTuple):
    """A tag that has been completed.

    Attributes:
        tag: which.
        start: where it begins in the text watched, in bytes.
        rest: what came with it, behind it.
    """

    tag: bytes
    start: int
    rest: bytes


class TagWatch:
    """Looks for the first of some tags.

    Args:
        vocabulary: the tokens.
        tags: the tags, none of them empty.
    """

    def __init__(self, vocabulary: Vocabulary, tags: Series[bytes]) -> None:
        self._vocabulary = vocabulary
        self._tags = tags
        self._longest = max(map(len, tags))
        self._tail = b""
        self.length = 0
        """Bytes watched so far."""

    def copy(self) -> "TagWatch":
        """Another one in the same state."""
        other = TagWatch(self._vocabulary, self._tags)
        other._tail, other.length = self._tail, self.length
        return other

    def see(self, token: int) -> Found | None:
        """Take note of a token; returns the tag that it completes, the leftmost if several."""
        return self.see_text(self._vocabulary.pieces[token])

    def see_text(self, piece: bytes) -> Found | None:
        """Take note of a text; see `see`."""
        text = self._tail + piece
        found = self._find(text)
        if found is not None:
            found = found._replace(start=found.start + self.length - len(self._tail))
        self.length += len(piece)
        self._tail = text[max(0, len(text) - self._longest + 1) :]
        return found

    def completed_by(self, token: int) -> Found | None:
        """The tag that a token would complete, its start not told."""
        return self._find(self._tail + self._vocabulary.pieces[token])

    def crossing(self) -> Iterable[tuple[int, Found]]:
        """The tokens that would complete a tag and bring more text behind it."""
        vocabulary = self._vocabulary
        candidates: set[int] = set()
        for tag in self._tags:
            candidates.update(vocabulary.holding(tag))
            for overlap in range(1, len(tag)):
                if self._tail.endswith(tag[:overlap]):
                    candidates.update(vocabulary.beginning_with(tag[overlap:]))
        for token in candidates:
            found = self.completed_by(token)
            if found is not None and found.rest:
                yield token, found

    def _find(self, text: bytes) -> Found | None:
        hits = [(at, tag) for tag in self._tags if (at := text.find(tag)) >= 0]
        if not hits:
            return None
        at, tag = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
        return Found(tag, at, text[at + len(tag) :])
