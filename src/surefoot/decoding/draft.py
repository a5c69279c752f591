"""A draft, and the protocol of what proposes it."""

from collections.abc import Sequence as Series
from typing import NamedTuple, Protocol

from surefoot.decoding.sampling import Distribution
from surefoot.decoding.sequence import Sequence


class Draft(NamedTuple):
    """Proposed next tokens of one sequence; none if the drafter has nothing to say.

    Attributes:
        tokens: the tokens.
        drafter: the name of the drafter that made them.
        distributions: for each token the distribution that it was drawn from, where the sequence's
            verification rule wants to know; empty if the drafter has none.
    """

    tokens: Series[int] = ()
    drafter: str = ""
    distributions: Series[Distribution] = ()

    def head(self, length: int) -> "Draft":
        """Its first tokens."""
        if length >= len(self.tokens):
            return self
        return self._replace(tokens=self.tokens[:length], distributions=self.distributions[:length])


NO_DRAFT = Draft()


class Drafter(Protocol):
    """Guesses what comes next. Wrong guesses cost time and never change the text.

    One drafter serves all sequences. What it keeps of a sequence it keeps under that object, and
    reads what is new from `sequence.committed`, which only grows.
    """

    @property
    def name(self) -> str:
        """The drafter's name, as `--spec-type` takes it."""

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """Draft for each sequence at most so many tokens (at least 1); all in one go."""

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Hear how many tokens of a draft were committed."""

    def forget(self, sequence: Sequence) -> None:
        """Let go of all that was kept of a sequence; it has ended."""
