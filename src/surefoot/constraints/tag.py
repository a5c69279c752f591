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
        piece = self._vocabulary.pieces[token]
        text = self._tail + piece
        before = self.length - len(self._tail)
        self.length += len(piece)
        hits = [(at, tag) for tag in self._tags if (at := text.find(tag)) >= 0]
        if hits:
            at, tag = min(hits, key=lambda hit: (hit[0], -len(hit[1])))
            return Found(tag, before + at, text[at + len(tag) :])
        self._tail = text[max(0, len(text) - self._longest + 1) :] if self._longest > 1 else b""
        return None

    def crossing(self) -> Iterable[tuple[int, bytes, bytes]]:
        """Tokens that would complete a tag and bring more text: token, tag, the text behind it."""
        for tag in self._tags:
            for overlap in range(len(tag)):
                if overlap and not self._tail.endswith(tag[:overlap]):
                    continue
                for token, rest in _crossing(self._vocabulary, tag[overlap:], inside=not overlap):
                    yield token, tag, rest


def _crossing(vocabulary: Vocabulary, text: bytes, *, inside: bool) -> list[tuple[int, bytes]]:
    """Tokens that begin with a text, or have it anywhere inside, and go on behind it."""
    key = (text, inside)
    if key not in vocabulary.crossings:
        found = []
        for token, piece in enumerate(vocabulary.pieces):
            at = piece.find(text) if inside else (0 if piece.startswith(text) else -1)
            if at >= 0 and len(piece) > at + len(text) and token not in vocabulary.special:
                found.append((token, piece[at + len(text) :]))
        vocabulary.crossings[key] = found
    return vocabulary.crossings[key]
