"""The beginning of a text, as long as it may still be a start tag."""

from surefoot.constraints.vocabulary import Vocabulary


class Opening:
    """Follows a text that may begin with a tag, with whitespace in front of it.

    Args:
        vocabulary: the tokens.
        tag: the tag.
    """

    def __init__(self, vocabulary: Vocabulary, tag: bytes) -> None:
        self._vocabulary = vocabulary
        self._tag = tag
        self._said = b""

    def copy(self) -> "Opening":
        """Another one in the same state."""
        other = Opening(self._vocabulary, self._tag)
        other._said = self._said
        return other

    @property
    def possible(self) -> bool:
        """Whether the tag may still come."""
        return self._tag.startswith(self._said)

    def tokens(self) -> set[int]:
        """The tokens that bring the tag nearer."""
        missing = self._tag[len(self._said) :]
        found = {*self._vocabulary.heads_of(missing), *self._vocabulary.beginning_with(missing)}
        if not self._said:
            first = self._vocabulary.holding(missing[:1])
            found.update(token for token in first if self.goes_on_with(token))
        return found

    def goes_on_with(self, token: int) -> bool:
        """Whether a token brings the tag nearer; whitespace alone does not."""
        text = self._with(token)
        return text != self._said and (self._tag.startswith(text) or text.startswith(self._tag))

    def advance(self, token: int) -> bytes | None:
        """Take a token; returns what came behind the tag once it is there."""
        self._said = self._with(token)
        if self._said.startswith(self._tag):
            return self._said[len(self._tag) :]
        return None

    def _with(self, token: int) -> bytes:
        return (self._said + self._vocabulary.pieces[token]).lstrip()
