"""What is thought: the texts up to their end tags, and the budget that may force a tag."""

from collections.abc import Iterable

from surefoot.constraints.spec import Reasoning
from surefoot.constraints.tag import Found, TagWatch
from surefoot.constraints.vocabulary import Vocabulary


class Thought:
    """Follows what the model thinks.

    The end is forced behind exactly as many tokens as the budget has. Where the model has begun to
    write the tag just then, only the rest of it is forced. Thoughts that follow each other share
    the budget, and the message in front of a forced end comes once.

    Args:
        vocabulary: the tokens.
        reasoning: tags and budget.
    """

    def __init__(self, vocabulary: Vocabulary, reasoning: Reasoning) -> None:
        self._vocabulary = vocabulary
        self._reasoning = reasoning
        self._watch = self._new_watch()
        self._recent: list[tuple[int, int]] = []  # tokens that could be the tag's, and their ends
        self._most_recent = len(reasoning.end.encode()) + 1
        self._closing: list[int] | None = None
        self._message = reasoning.message
        self.tokens = 0
        """How many tokens lie inside, as far as is known."""

    def copy(self) -> "Thought":
        """Another one in the same state."""
        other = Thought(self._vocabulary, self._reasoning)
        other._watch, other.tokens = self._watch.copy(), self.tokens
        other._message = self._message
        other._recent = list(self._recent)
        other._closing = None if self._closing is None else list(self._closing)
        return other

    @property
    def closing(self) -> list[int]:
        """The tokens that must come next, since the budget is used up; none if it is not."""
        budget = self._reasoning.budget
        if self._closing is None and budget is not None and self.tokens >= budget:
            self._closing = self._rest_of_tag()
            if not self._closing:
                end, self._message = self._message + self._reasoning.end, ""
                self._closing = self._vocabulary.encode(end)
        return self._closing or []

    def crossing(self) -> Iterable[tuple[int, bytes]]:
        """The tokens that would end it and bring more text, and that text."""
        return ((token, found.rest) for token, found in self._watch.crossing())

    def open_with(self, text: bytes) -> Found | None:
        """Begin, or begin again, with text that came with the start tag."""
        self._watch, self._recent, self._closing = self._new_watch(), [], None
        return self._watch.see_text(text)

    def advance(self, token: int) -> Found | None:
        """Take a token; returns the end tag and what came with it once it is there."""
        if self.closing:
            del self.closing[0]
        else:
            self.tokens += 1
            self._recent.append((token, self._watch.length + len(self._vocabulary.pieces[token])))
            del self._recent[: -self._most_recent]
        found = self._watch.see(token)
        if found is not None:
            self.tokens -= sum(end > found.start for _, end in self._recent)
        return found

    def _new_watch(self) -> TagWatch:
        return TagWatch(self._vocabulary, [self._reasoning.end.encode()])

    def _rest_of_tag(self) -> list[int]:
        tag = self._vocabulary.encode(self._reasoning.end)
        said = [token for token, _ in self._recent]
        for length in range(len(tag) - 1, 0, -1):
            if said[-length:] == tag[:length]:
                return tag[length:]
        return []
