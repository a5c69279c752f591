"""Truncation by top-k, top-p and min-p, and what it would be if logits moved a little."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.errors import DecodeError
from surefoot.decoding.sampling.parameters import Sampling

Logits = NDArray[np.float32]
"""One row of logits, shape (vocabulary,)."""

COLDEST = 1e-6
"""Below that temperature the choice is the most likely token: dividing by it would overflow, and
at that temperature no noise could change the choice but at a tie."""


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
