"""Verification rules: how the token at one position is decided, and whether a draft's stands.

A rule sees one position at a time, from the left, everything before it being committed. So what
was decided is never decided again, and whatever moves on with the text moves once a token.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.draft import Draft
from surefoot.decoding.sampling import Choice
from surefoot.decoding.sequence import Sequence


class Judgement(NamedTuple):
    """What a rule decides at one position.

    Attributes:
        choice: the token to commit.
        accepted: whether it is the draft's, so that the next row of logits holds, too.
    """

    choice: Choice
    accepted: bool


class Rule(Protocol):
    """Decides the next token of a sequence."""

    def __call__(
        self,
        sequence: Sequence,
        draft: Draft,
        offset: int,
        logits: NDArray[np.float32],
        tolerance: float,
    ) -> Judgement:
        """Decide one token; it is not committed yet.

        Args:
            sequence: with all that comes before committed, the first `offset` draft tokens, too.
            draft: k tokens, perhaps none.
            offset: which draft token is judged; k for the token behind a wholly accepted draft.
            logits: shape (vocabulary,), after all that is committed.
            tolerance: the near-tie rule's tolerance.
        """


def coupled(
    sequence: Sequence,
    draft: Draft,
    offset: int,
    logits: NDArray[np.float32],
    tolerance: float,
) -> Judgement:
    """Accept what equals the target's own choice, which positional noise has made; see `Rule`."""
    choice = sequence.choose(logits, tolerance)
    return Judgement(choice, offset < len(draft.tokens) and choice.token == draft.tokens[offset])
