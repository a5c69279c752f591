"""Verification by rejection sampling (Leviathan et al. 2023; Chen et al. 2023).

A draft token x is accepted with probability min(1, p(x) / q(x)), where p is the target's
distribution after all parameters and q the one that x was drawn from; else the token is drawn from
what p has more than q. So the text has the law of p, whatever q is. Unlike the coupled rule's, it
hangs on the drafts: the same seed gives the same text only with the same drafts in the same rounds.

Draft, acceptance and residual draws have noise of their own each, a pure function of seed and
position. A drafter without a distribution proposes x for certain: q(x) is 1.
"""

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.draft import Draft
from surefoot.decoding.noise import gumbel, stream, uniform
from surefoot.decoding.sampling import COLDEST, Choice, Distribution
from surefoot.decoding.sequence import Sequence
from surefoot.decoding.verification import Judgement, coupled

_DRAFT, _ACCEPTANCE, _RESIDUAL = 1, 2, 3
"""Streams of noise; that of coupled choices is 0."""

_NO_TOKEN = np.array([-1])


def drawn(distribution: Distribution, seed: int, position: int) -> int:
    """A draft token, drawn with noise that has nothing to do with the target's.

    Args:
        distribution: the drafter's.
        seed: the request's seed.
        position: index in the sequence of the token.
    """
    return _draw(distribution, stream(seed, _DRAFT), position)[0]


def rejection(
    sequence: Sequence,
    draft: Draft,
    offset: int,
    logits: NDArray[np.float32],
    tolerance: float,
) -> Judgement:
    """Decide a token so that it has the target's distribution; see `Rule`.

    At temperature 0 that is the coupled rule. A near tie is a choice that logits which move by the
    tolerance each could change, given the draft.
    """
    sampling = sequence.sampling
    if sampling.temperature < COLDEST:
        return coupled(sequence, draft, offset, logits, tolerance)
    target = sequence.distribution(logits)
    position = len(sequence.committed)
    slack = 2 * tolerance / sampling.temperature
    residual, near = target, False
    if offset < len(draft.tokens):
        token = draft.tokens[offset]
        source = _distribution_of(draft, offset)
        ratio = probability(target, token) / probability(source, token)
        chance = uniform(stream(sampling.seed, _ACCEPTANCE), position, _NO_TOKEN)[0]
        near = tolerance > 0 and abs(math.log(max(ratio, 1e-300) / chance)) <= slack
        if chance < ratio:
            return Judgement(sequence.told(Choice(token, near), logits), True)
        residual = _excess(target, source)
    token, gap = _draw(residual, stream(sampling.seed, _RESIDUAL), position)
    near = near or gap <= 2 * slack
    return Judgement(sequence.told(Choice(token, near), logits), False)


def _distribution_of(draft: Draft, offset: int) -> Distribution:
    if draft.distributions:
        return draft.distributions[offset]
    return Distribution(np.array([draft.tokens[offset]]), np.ones(1))


def probability(distribution: Distribution, token: int) -> float:
    """A token's probability; 0 if it is not there."""
    return float(distribution.probabilities[distribution.tokens == token].sum())


def _excess(target: Distribution, source: Distribution) -> Distribution:
    """What the target has more than the source, normalised."""
    order = np.argsort(source.tokens)
    known = source.tokens[order]
    at = np.minimum(np.searchsorted(known, target.tokens), len(known) - 1)
    there = known[at] == target.tokens
    taken = np.where(there, source.probabilities[order][at], 0.0)
    excess = np.maximum(target.probabilities - taken, 0.0)
    total = excess.sum()
    if total <= 0:  # equal but for rounding, where nothing is ever rejected but by rounding
        return target
    return Distribution(target.tokens, excess / total)


def _draw(distribution: Distribution, seed: int, position: int) -> tuple[int, float]:
    """A token, and how far it is ahead of the next."""
    with np.errstate(divide="ignore"):
        scores = np.log(distribution.probabilities)
    scores += gumbel(seed, position, distribution.tokens)
    winner = int(scores.argmax())
    best = float(scores[winner])
    scores[winner] = -np.inf
    return int(distribution.tokens[winner]), best - float(scores.max())
