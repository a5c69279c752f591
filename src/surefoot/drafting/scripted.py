"""A drafter that says what it was told to say, round by round; for tests and study."""

from collections.abc import Iterable
from collections.abc import Sequence as Series

from surefoot.decoding import NO_DRAFT, Draft, Sequence


class ScriptedDrafter:
    """Proposes a fixed list in each round, to each sequence from the script's beginning.

    When the script is over it drafts nothing. A list longer than wanted is cut.

    Args:
        script: one list of tokens for each round; an empty one for no draft.
        repeat: whether to begin again when the script is over.

    Attributes:
        heard: what `learn` was told: each draft, and how many of its tokens were committed.
    """

    name = "scripted"

    def __init__(self, script: Iterable[Series[int]], *, repeat: bool = False) -> None:
        self._script = [tuple(tokens) for tokens in script]
        self._repeat = repeat
        self._rounds: dict[Sequence, int] = {}
        self.heard: list[tuple[Draft, int]] = []

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """The script's next list for each sequence."""
        return [self._next(sequence, most) for sequence, most in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:  # noqa: ARG002
        """Note it in `heard`."""
        self.heard.append((draft, accepted))

    def forget(self, sequence: Sequence) -> None:
        """Let the script begin again for the sequence."""
        self._rounds.pop(sequence, None)

    def _next(self, sequence: Sequence, most: int) -> Draft:
        played = self._rounds.get(sequence, 0)
        self._rounds[sequence] = played + 1
        if self._repeat and self._script:
            played %= len(self._script)
        if played >= len(self._script):
            return NO_DRAFT
        return Draft(self._script[played][:most], self.name)
