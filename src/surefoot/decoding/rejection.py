"""Verification by rejection sampling (Leviathan et al. 2023; Chen et al. 2023).

A draft token x is accepted with probability min(1, p(x) / q(x)), where p is the target's
distribution after all parameters and q the one that x was drawn from; else the token is drawn from
what p has more than q. So the text has the law of p, whatever q is. Unlike the coupled rule's, it
hangs on the drafts: the same seed gives the same text only with the same drafts in the same rounds.

Draft, acceptance and residual draws have noise of their own each, a pure function of seed and
position. A drafter without a distribution proposes x for certain: q(x) is 1.
"""

import math
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.draft import Draft
from surefoot.decoding.noise import gumbel, stream, uniform
from surefoot.decoding.sampling import COLDEST, Choice, Distribution, Sampling
from surefoot.decoding.sequence import Sequence
from surefoot.decoding.verification import Judgement, coupled

Shares = NDArray[np.float64]
Share = TypeVar("Share", float, Shares)

_DRAFT, _ACCEPTANCE, _RESIDUAL = 1, 2, 3
"""Streams of noise; that of coupled choices is 0."""

_NO_TOKEN = np.array([-1])

_WIDEST = 600.0
"""Probabilities whose log-odds move further than that are taken to move so far."""


def drawn(distribution: Distribution, seed: int, position: int) -> int:
    """A draft token, drawn with noise that has nothing to do with the target's.

    Args:
        distribution: the drafter's.
        seed: the request's seed.
        position: index in the sequence of the token.
    """
    scores = _logs(distribution.probabilities)
    scores += gumbel(stream(seed, _DRAFT), position, distribution.tokens)
    return int(distribution.tokens[scores.argmax()])


def rejection(
    sequence: Sequence,
    draft: Draft,
    offset: int,
    logits: NDArray[np.float32],
    tolerance: float,
) -> Judgement:
    """Decide a token so that it has the target's distribution; see `Rule`.

    At temperature 0 that is the coupled rule.

    A near tie is a choice that could be another one, given the draft and what it was drawn from,
    if logits moved by the tolerance each. Tokens that would then come in or drop out at the edge of
    top-k, top-p, min-p or top-n-sigma are not looked at; where other samplers' effect is not
    bounded, every choice is a near tie.
    """
    sampling = sequence.sampling
    if sampling.temperature < COLDEST:
        return coupled(sequence, draft, offset, logits, tolerance)
    target = sequence.distribution(logits)
    position = sequence.position
    slack = _slack(sampling, tolerance)
    near = tolerance > 0 and _unbounded(sampling)
    taken = np.zeros(len(target.tokens))
    if offset < len(draft.tokens):
        token, source = draft.tokens[offset], _source(draft, offset)
        chance = uniform(stream(sampling.seed, _ACCEPTANCE), position, _NO_TOKEN)[0]
        # Not as a ratio: what a drafter can't have drawn has no probability to divide by.
        least, share = chance * probability(source, token), probability(target, token)
        near = near or bool(_moved(share, -slack) <= least < _moved(share, slack))
        if least < share:
            return Judgement(sequence.told(Choice(token, near), logits), True)
        taken = _at(target.tokens, source)
    noise = gumbel(stream(sampling.seed, _RESIDUAL), position, target.tokens)
    choice = _drawn_from_rest(target, taken, noise, slack)
    choice = choice._replace(near_tie=choice.near_tie or near)
    return Judgement(sequence.told(choice, logits), False)


def probability(distribution: Distribution, token: int) -> float:
    """A token's probability; 0 if it is not there."""
    return float(distribution.probabilities[distribution.tokens == token].sum())


def rest(shares: Shares, taken: Shares) -> Shares:
    """What one distribution has more than another, not normalised.

    Args:
        shares: its probabilities.
        taken: the other's of the same tokens.

    Returns:
        The excess; `shares` themselves if there is none. Equal distributions differ by rounding
        only, and then a rejection is nothing but rounding either.
    """
    excess = np.maximum(shares - taken, 0.0)
    return excess if excess.any() else shares


def _drawn_from_rest(target: Distribution, taken: Shares, noise: Shares, slack: float) -> Choice:
    """The token of the residual draw, and whether another could be it if logits moved.

    Args:
        target: the target's distribution.
        taken: what the draft token's distribution gives each of its tokens; 0 behind a draft.
        noise: each token's.
        slack: how far the difference of two values may move.
    """
    shares = target.probabilities
    scores = _logs(rest(shares, taken)) + noise
    winner = int(scores.argmax())
    if taken.any():
        # The excess may grow out of nothing, so each token's is bounded by itself.
        certain = _logs(np.maximum(_moved(shares, -slack) - taken, 0.0)) + noise
        possible = _logs(np.maximum(_moved(shares, slack) - taken, 0.0)) + noise
    else:
        certain, possible = scores - slack, scores.copy()
    possible[winner] = -np.inf
    near = slack > 0 and bool(possible.max() >= certain[winner])
    return Choice(int(target.tokens[winner]), near)


def _source(draft: Draft, offset: int) -> Distribution:
    """What a draft token was drawn from."""
    if draft.distributions:
        return draft.distributions[offset]
    return Distribution(np.array([draft.tokens[offset]]), np.ones(1))


def _at(tokens: NDArray[np.int64], source: Distribution) -> Shares:
    """A distribution's probabilities of some tokens."""
    order = np.argsort(source.tokens)
    known = source.tokens[order]
    at = np.minimum(np.searchsorted(known, tokens), len(known) - 1)
    shares: Shares = np.where(known[at] == tokens, source.probabilities[order][at], 0.0)
    return shares


def _logs(shares: Shares) -> Shares:
    with np.errstate(divide="ignore"):
        logs: Shares = np.log(shares)
    return logs


# The near-tie rule


def _slack(sampling: Sampling, tolerance: float) -> float:
    """How far the difference of two logits may move, after penalties and temperature."""
    slack = 2 * tolerance
    if "temperature" in sampling.samplers:
        slack /= sampling.temperature
    if "penalties" in sampling.samplers:  # multiplying a logit multiplies what moves it
        slack *= max(sampling.repeat_penalty, 1 / sampling.repeat_penalty)
    return min(slack, _WIDEST)


def _unbounded(sampling: Sampling) -> bool:
    """Whether a sampler is on whose effect on probabilities is not easily bounded."""
    return (
        sampling.typical_p < 1
        or sampling.dynatemp_range > 0
        or (sampling.xtc_probability > 0 and sampling.xtc_threshold <= 0.5)
        or sampling.mirostat != 0
    )


def _moved(share: Share, shift: float) -> Share:
    """A probability after its log-odds moved; exactly itself for no shift, and 0 and 1 stay."""
    if shift == 0:
        return share
    raised = share * math.exp(shift)
    moved: Share = raised / (raised + (1 - share))
    return moved
