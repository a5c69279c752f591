"""What a round did for one sequence, as told to those who watch rounds."""

from collections.abc import Callable
from collections.abc import Sequence as Series
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.draft import Draft
from surefoot.decoding.sequence import Sequence


class Played(NamedTuple):
    """One sequence's part in a round, told between its last commit and settling.

    Attributes:
        sequence: the sequence, with everything committed that the round has decided.
        draft: its draft, as it was verified.
        accepted: how many of the committed tokens, from the first on, were draft tokens.
        tokens: the tokens committed.
        pending: committed tokens that the pass absorbed.
        fillers: tokens of the pass that only pad it to a width of its class.
        rows: logits behind the last pending token and behind each draft token, shape (draft + 1,
            vocabulary); a view into the model's buffer, good during the call alone.
    """

    sequence: Sequence
    draft: Draft
    accepted: int
    tokens: list[int]
    pending: int
    fillers: int
    rows: NDArray[np.float32]

    @property
    def start(self) -> int:
        """The position of the first token committed."""
        return len(self.sequence.committed) - len(self.tokens)

    def gaps(self) -> list[float]:
        """For each token that the model was asked for, how far its two largest logits lie apart.

        They are the model's own, before any sampling parameter. Tokens that came without the model
        being asked, at the end, have none.
        """
        judged = min(len(self.tokens), self.accepted + 1)
        return [_gap(row) for row in self.rows[:judged]]


Observe = Callable[[Series[Played]], None]
"""Hears of a round; see `Round.play`."""


def _gap(row: NDArray[np.float32]) -> float:
    top = int(row.argmax())
    # Twice the maximum is far cheaper than a partition of a large vocabulary.
    rest = [part.max() for part in (row[:top], row[top + 1 :]) if len(part)]
    return float(row[top] - max(rest))
