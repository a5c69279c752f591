"""What a draft of a model must at least be: so long, and of tokens so probable."""

from collections.abc import Sequence as Series
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import NO_DRAFT, Draft, Sequence


@dataclass(frozen=True, slots=True)
class Minima:
    """A drafter's minima; what a request wishes comes first.

    Attributes:
        n_min: a shorter draft is not used.
        p_min: a draft ends before the first less probable token.
    """

    n_min: int
    p_min: float

    def length(self, sequence: Sequence) -> int:
        """The shortest draft that is used."""
        wish = sequence.wishes.n_min
        return self.n_min if wish is None else wish

    def draft(self, sequence: Sequence, tokens: Series[int], drafter: str) -> Draft:
        """The tokens as a draft; none if they are too few."""
        return (
            Draft(tokens, drafter) if tokens and len(tokens) >= self.length(sequence) else NO_DRAFT
        )

    def forbid(self, sequence: Sequence, logits: NDArray[np.float32], token: int) -> bool:
        """Whether a token is too improbable to be drafted."""
        wish = sequence.wishes.p_min
        p_min = self.p_min if wish is None else wish
        return p_min > 0 and probability(logits, token) < p_min


def probability(logits: NDArray[np.float32], token: int) -> float:
    """A token's probability at temperature 1, among all tokens.

    Args:
        logits: shape (vocabulary,).
        token: the token.
    """
    weights = np.exp(logits - logits.max())
    return float(weights[token] / weights.sum())
