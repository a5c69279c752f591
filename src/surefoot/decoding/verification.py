"""Verification: a draft token is accepted if it equals the target's own choice.

That is the rule; `Verifier` is the place for another one. The choice at the first position that
differs is the token that the target wants there, so a rejection costs no further draw.
"""

from collections.abc import Sequence as Series
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.draft import Draft
from surefoot.decoding.sampling import Choice, Sampling, choose
from surefoot.decoding.sequence import Sequence


class Verdict(NamedTuple):
    """What a round decided.

    Attributes:
        accepted: how many draft tokens, from the first on, the target agrees with.
        choices: the target's choices, one more than accepted: the last is its own next token.
    """

    accepted: int
    choices: list[Choice]


class Verifier(Protocol):
    """A rule that judges drafts."""

    def __call__(
        self, sequence: Sequence, draft: Draft, logits: NDArray[np.float32], tolerance: float
    ) -> Verdict:
        """Judge one sequence's draft; nothing is committed yet.

        Args:
            sequence: the sequence, as it was when the draft was made.
            draft: k tokens, perhaps none.
            logits: shape (k + 1, vocabulary); row i follows the first i draft tokens.
            tolerance: the near-tie rule's tolerance.
        """


def by_equality(
    sequence: Sequence, draft: Draft, logits: NDArray[np.float32], tolerance: float
) -> Verdict:
    """Accept what equals the target's own choice; see `Verifier`."""
    return verify(draft.tokens, logits, sequence.sampling, len(sequence.committed), tolerance)


def verify(
    draft: Series[int],
    logits: NDArray[np.float32],
    sampling: Sampling,
    position: int,
    tolerance: float,
) -> Verdict:
    """Judge a draft, left to right, up to the first token that the target would not choose.

    Args:
        draft: the proposed tokens, k of them.
        logits: shape (k + 1, vocabulary); row i follows the first i draft tokens.
        sampling: how the target chooses.
        position: index in the sequence of the first draft token.
        tolerance: the near-tie rule's tolerance.
    """
    choices = []
    for offset, row in enumerate(logits):
        choice = choose(row, sampling, position + offset, tolerance)
        choices.append(choice)
        if offset == len(draft) or choice.token != draft[offset]:
            break
    return Verdict(len(choices) - 1, choices)
