"""Log-probabilities of chosen tokens: what a request wants to know, and what it gets."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MEMBERS = 128
_GROUPS_FOR_EACH = 4
_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class ScoreWish:
    """What a request wants to know of each token.

    Attributes:
        top: how many of the most likely tokens to tell with it; 0 for the token alone.
        post_sampling: whether the probabilities are those after all sampling parameters; else they
            are the model's own, which no penalty, bias, mask or temperature alters.
    """

    top: int = 0
    post_sampling: bool = False


class Scores(NamedTuple):
    """What is known of one token.

    Attributes:
        logprob: natural logarithm of its probability; -inf for one that sampling left out.
        top: the most likely tokens with theirs, falling; tokens left out are not among them.
    """

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def raw_scores(logits: NDArray[np.float32], token: int, top: int) -> Scores:
    """The model's own scores: log-softmax over the whole vocabulary.

    Args:
        logits: shape (vocabulary,); not changed.
        token: whose score is wanted.
        top: how many of the most likely tokens to tell; of equals, the lower id comes first.
    """
    highest = float(logits.max())
    total = highest + float(np.log(np.exp(logits - np.float32(highest)).sum(dtype=np.float64)))
    best = most_likely(logits, top)
    return Scores(
        float(logits[token]) - total, tuple((int(t), float(logits[t]) - total) for t in best)
    )


def most_likely(values: NDArray[np.floating], count: int) -> NDArray[np.int64]:
    """Indices of the largest values, falling; of equals, the lower index comes first."""
    count = min(count, len(values))
    if count == 0:
        return np.empty(0, np.int64)
    found = np.flatnonzero(values >= nth_largest(values, count))
    order: NDArray[np.int64] = found[np.argsort(-values[found], kind="stable")][:count]
    return order


def nth_largest(values: NDArray[np.floating], count: int) -> float:
    """The `count`-th largest of many values; -inf where fewer are above that.

    As many groups of values have a maximum that is at least the count-th largest group maximum, so
    that is a lower bound which leaves few values to be sorted. A group's members lie far apart in
    the array, which lets whole rows of it be compared at once.
    """
    groups = max(len(values) // _MEMBERS, min(_GROUPS_FOR_EACH * count, len(values) // 4))
    if _GROUPS_FOR_EACH * count <= groups:
        members = len(values) // groups
        maxima = values[: groups * members].reshape(members, groups).max(axis=0)
        bound = np.partition(maxima, groups - count)[groups - count]
        values = values[values >= max(float(bound), _LOWEST)]
    if count > len(values):
        return -math.inf
    return float(np.partition(values, len(values) - count)[len(values) - count])
