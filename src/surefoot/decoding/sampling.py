"""How the target chooses a token: sampling parameters and the one rule of choice.

A choice is a pure function of (logits, parameters, position), so verifying a draft is nothing but
comparing it with the choice. The rule for near ties is stated here, once, for everybody.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.errors import DecodeError, InvalidParameterError
from surefoot.decoding.noise import SEED_LIMIT, gumbel

Logits = NDArray[np.float32]
"""One row of logits, shape (vocabulary,)."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters that shape the target's distribution, with llama-server's defaults.

    They apply in llama.cpp's order: top-k, top-p, min-p, temperature.

    Attributes:
        seed: selects the positional noise; the same seed gives the same text.
        temperature: 0 chooses the most likely token.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest head of the distribution with at least this mass; 1 keeps all.
        min_p: drop tokens less likely than this share of the most likely one; 0 keeps all.

    Raises:
        InvalidParameterError: a value is outside its range.
    """

    seed: int = 0
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.seed < SEED_LIMIT:
            raise InvalidParameterError("seed", "must be a whole number from 0 to 2**64 - 1")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InvalidParameterError("temperature", "must be a finite number, 0 or more")
        if self.top_k < 0:
            raise InvalidParameterError("top_k", "must be 0 (off) or more")
        if not 0 < self.top_p <= 1:
            raise InvalidParameterError("top_p", "must be above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            raise InvalidParameterError("min_p", "must lie between 0 and 1")


GREEDY = Sampling(temperature=0.0)

COLDEST = 1e-6
"""Below that temperature the choice is the most likely token: dividing by it would overflow, and
at that temperature no noise could change the choice but at a tie."""


class Choice(NamedTuple):
    """What the target wants at one position.

    The near-tie rule: a choice is a near tie if moving each logit by at most the tolerance could
    change it. The tolerance is the runtime's logit noise: the largest difference that batch width
    and memory layout make to a logit. Only at near ties may speculative and plain text part.
    """

    token: int
    near_tie: bool


def choose(logits: Logits, sampling: Sampling, position: int, tolerance: float) -> Choice:
    """The target's choice at one position: argmax of log-probability plus positional noise.

    Args:
        logits: shape (vocabulary,); not changed.
        sampling: the request's parameters.
        position: index in the sequence of the token being chosen.
        tolerance: how far a logit may move without meaning anything, for the near-tie rule.

    Raises:
        DecodeError: the logits are not numbers.
    """
    if sampling.temperature < COLDEST:
        return _most_likely(logits, tolerance)
    return _sampled(logits, sampling, position, tolerance)


def _most_likely(logits: Logits, tolerance: float) -> Choice:
    token = int(logits.argmax())
    top = float(logits[token])
    if not math.isfinite(top):
        raise DecodeError(f"the model returned a logit of {top}; the pass can't be trusted")
    rivals = np.count_nonzero(logits >= top - 2 * tolerance)
    return Choice(token, near_tie=bool(rivals > 1))


def _sampled(logits: Logits, sampling: Sampling, position: int, tolerance: float) -> Choice:
    candidates = survivors(logits, sampling, tolerance)
    scores = candidates.logits / sampling.temperature
    scores += gumbel(sampling.seed, position, candidates.tokens)
    winner = int(np.where(candidates.kept, scores, -np.inf).argmax())
    rivals = np.count_nonzero(scores >= scores[winner] - 2 * tolerance / sampling.temperature)
    return Choice(
        token=int(candidates.tokens[winner]),
        near_tie=bool(rivals > 1 or not candidates.sure[winner]),
    )


class Candidates(NamedTuple):
    """The tokens that truncation leaves, and those that it might leave if logits moved a little.

    All arrays have shape (candidates,). `kept` marks what truncation leaves; `sure` marks what it
    leaves however each logit moves within the tolerance. Tokens that are not candidates are left
    out however the logits move.
    """

    tokens: NDArray[np.int64]
    logits: NDArray[np.float64]
    kept: NDArray[np.bool_]
    sure: NDArray[np.bool_]


def survivors(logits: Logits, sampling: Sampling, tolerance: float) -> Candidates:
    """Truncate by top-k, top-p and min-p, in llama.cpp's order; see `Candidates`.

    Raises:
        DecodeError: the logits are not numbers.
    """
    top = float(logits.max())
    if not math.isfinite(top):
        raise DecodeError(f"the model returned a logit of {top}; the pass can't be trusted")
    slack = 2 * tolerance
    vocabulary = logits.shape[0]
    top_k = sampling.top_k if 0 < sampling.top_k < vocabulary else vocabulary
    min_logit = top + math.log(sampling.min_p) if sampling.min_p > 0 else -math.inf

    least = min_logit - slack
    best = logits
    if top_k < vocabulary:
        best = np.partition(logits, vocabulary - top_k)[vocabulary - top_k :]
        least = max(least, float(best[0]) - slack)
    tokens = np.flatnonzero(logits >= least)
    if sampling.top_p == 1 and top_k == vocabulary:
        values = logits[tokens].astype(np.float64)
        return Candidates(tokens, values, values >= min_logit, values >= min_logit + slack)

    # From here on in order of falling logit, so that a rank is an index.
    order = np.argsort(-logits[tokens], kind="stable")
    tokens = tokens[order]
    values = logits[tokens].astype(np.float64)
    kept = np.ones(len(tokens), dtype=np.bool_)
    kept[top_k:] = False
    sure = kept.copy()
    if len(tokens) > top_k:
        sure &= values > values[top_k] + slack
    possible = np.ones_like(kept)
    if sampling.top_p < 1:
        above = _mass_above(values, best)
        kept &= above < sampling.top_p
        first, last = _ranks(values, slack)
        possible &= _moved(above, -slack)[first] < sampling.top_p
        sure &= _moved(above, slack)[last] < sampling.top_p
    kept &= values >= min_logit
    sure &= values >= min_logit + slack
    kept[0] = possible[0] = True
    return Candidates(tokens[possible], values[possible], kept[possible], sure[possible])


def _mass_above(values: NDArray[np.float64], best: Logits) -> NDArray[np.float64]:
    """Probability mass in front of each rank, after top-k and before min-p.

    Args:
        values: the candidates' logits, in falling order.
        best: all logits that top-k leaves, in any order. Those below min-p's threshold are no
            candidates, but top-p comes first and counts them in its total.
    """
    weights = np.exp(values - values[0])
    weights[len(best) :] = 0.0
    total = weights.sum()
    if len(values) < len(best):
        total = np.exp(best.astype(np.float64) - values[0]).sum()
    mass: NDArray[np.float64] = (np.cumsum(weights) - weights) / total
    return mass


def _ranks(
    values: NDArray[np.float64], slack: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last rank that each value can take if differences move by `slack`.

    Args:
        values: in falling order.
        slack: how far the difference of two values may move.
    """
    first = np.searchsorted(-values, -(values + slack), side="left")
    last = np.searchsorted(-values, -(values - slack), side="right") - 1
    return first, last


def _moved(mass: NDArray[np.float64], shift: float) -> NDArray[np.float64]:
    """A probability mass after its log-odds moved by `shift`."""
    raised = mass * math.exp(shift)
    moved: NDArray[np.float64] = raised / (raised + 1.0 - mass)
    return moved
