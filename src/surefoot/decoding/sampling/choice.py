"""What comes out of choosing: a token, and the distribution that it was chosen from."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.scores import Scores


class Choice(NamedTuple):
    """What the target wants at one position.

    The near-tie rule: a choice is a near tie if moving each logit by at most the tolerance could
    change it. The tolerance is the runtime's logit noise: the largest difference that batch width
    and memory layout make to a logit. Only at near ties may speculative and plain text part.

    Attributes:
        token: the token.
        near_tie: whether noise in the logits might have made it another.
        surprise: -log2 of its probability, where mirostat has to know it.
        scores: its log-probabilities, if they were wanted.
    """

    token: int
    near_tie: bool = False
    surprise: float | None = None
    scores: Scores | None = None


class Distribution(NamedTuple):
    """The target's distribution after all parameters; tokens that are not in it have none.

    Attributes:
        tokens: token ids, shape (n,), in no particular order.
        probabilities: theirs, shape (n,), which add up to 1.
    """

    tokens: NDArray[np.int64]
    probabilities: NDArray[np.float64]
