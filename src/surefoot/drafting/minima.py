"""What a draft of a model must at least be: so long, and of tokens so probable."""

from collections.abc import Sequence as Series
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import (
    COLDEST,
    NO_DRAFT,
    Distribution,
    Draft,
    Sequence,
    choose,
    distribution_of,
    drawn,
)


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

    def draft(
        self,
        sequence: Sequence,
        tokens: Series[int],
        drafter: str,
        distributions: Series[Distribution] = (),
    ) -> Draft:
        """The tokens as a draft; none if they are too few.

        Under rejection no draft is left out for what its tokens are; see `choice`.
        """
        short = len(tokens) < self.length(sequence) and sequence.rule != "rejection"
        return NO_DRAFT if short or not tokens else Draft(tokens, drafter, distributions)

    def choice(
        self, sequence: Sequence, logits: NDArray[np.float32], position: int, shared: int
    ) -> tuple[int, Distribution | None] | None:
        """A draft's next token, and under rejection what it was drawn from; None to end the draft.

        Under rejection whether a draft ends may not hang on the token that was drawn, which would
        change the law of the text. So the most probable token is looked at in its place, and what
        may not be drafted is left out before it is drawn.

        Args:
            sequence: for which.
            logits: the drafter's, shape (vocabulary,).
            position: index in the sequence of the token.
            shared: token ids from this on are never drafted.
        """
        sampling = sequence.sampling
        if sequence.rule != "rejection" or sampling.temperature < COLDEST:
            token = choose(logits, sampling, position, tolerance=0.0).token
            if token >= shared or self.forbid(sequence, logits, token):
                return None
            return token, None
        if self.forbid(sequence, logits, int(logits.argmax())):
            return None
        tokens, probabilities = distribution_of(logits, sampling, position)
        there = tokens < shared
        if not there.any():
            return None
        share = probabilities[there]
        source = Distribution(tokens[there], share / share.sum())
        return drawn(source, sampling.seed, position), source

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
