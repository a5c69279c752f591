"""A drafter that knows the text, and spoils it now and then."""

import random
from collections.abc import Sequence as Series

from surefoot.decoding import Draft, Sequence


class MostlyRight:
    """Drafts a known text, spoilt now and then from some token on.

    Where the sequence has left the known text, it goes on after the last place where the same two
    tokens stand in it.

    Args:
        text: the tokens that are expected to be generated.
        seed: of the spoiling.
        wrong: share of drafts that are spoilt.

    Attributes:
        partial: drafts of which some tokens were accepted, and some not.
    """

    name = "mostly right"

    def __init__(self, text: Series[int], seed: int, wrong: float = 0.7) -> None:
        self._text = list(text)
        self._random = random.Random(seed)
        self._wrong = wrong
        self.partial = 0

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        return [Draft(self._draft(sequence, depth), self.name) for sequence, depth in wanted]

    def _draft(self, sequence: Sequence, depth: int) -> list[int]:
        generated = sequence.committed[sequence.prompt_length :]
        start = self._place(generated)
        tokens = self._text[start : start + self._random.randint(1, depth)]
        if tokens and self._random.random() < self._wrong:
            spoilt = self._random.randrange(len(tokens))
            tokens[spoilt] = (tokens[spoilt] + 1) % 128
        return tokens

    def _place(self, generated: list[int]) -> int:
        if generated == self._text[: len(generated)]:
            return len(generated)
        for start in range(len(self._text) - 1, 1, -1):
            if self._text[start - 2 : start] == generated[-2:]:
                return start
        return len(self._text)

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:  # noqa: ARG002
        self.partial += 0 < accepted < len(draft.tokens)

    def forget(self, sequence: Sequence) -> None: ...
