"""Choosing along one sequence: argmax of log-probability plus positional noise."""

import math
from collections.abc import Iterable

import numpy as np

from surefoot.decoding.control import TokenMask
from surefoot.decoding.errors import DecodeError
from surefoot.decoding.noise import gumbel
from surefoot.decoding.sampling.choice import Choice, Distribution
from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.truncation import COLDEST, Logits, survivors
from surefoot.decoding.scores import ScoreWish, raw_scores


class Chooser:
    """Chooses one sequence's tokens.

    A choice is a pure function of the logits, the parameters and the tokens so far. What is kept
    here of those moves on once for each committed token.

    Args:
        sampling: the parameters.
        history: the tokens so far, the prompt.
        end_tokens: the model's end-of-generation tokens.
    """

    def __init__(
        self,
        sampling: Sampling,
        history: Iterable[int] = (),
        end_tokens: frozenset[int] = frozenset(),
    ) -> None:
        self.sampling = sampling
        self._tokens = list(history)
        self._end_tokens = end_tokens

    def choose(
        self,
        logits: Logits,
        tolerance: float,
        allowed: TokenMask | None = None,
        wish: ScoreWish | None = None,
    ) -> Choice:
        """The target's choice of the next token.

        Args:
            logits: shape (vocabulary,); not changed.
            tolerance: how far a logit may move without meaning anything, for the near-tie rule.
            allowed: the tokens that may come next; None for any.
            wish: what to tell of log-probabilities; None for nothing.

        Raises:
            DecodeError: the logits are not numbers.
        """
        row = logits if allowed is None else masked(logits, allowed)
        choice = choose(row, self.sampling, len(self._tokens), tolerance)
        if wish is not None:
            choice = choice._replace(scores=raw_scores(logits, choice.token, wish.top))
        return choice

    def distribution(self, logits: Logits, allowed: TokenMask | None = None) -> Distribution:
        """The distribution that `choose` draws from; arguments as there."""
        row = logits if allowed is None else masked(logits, allowed)
        candidates = survivors(row, self.sampling, 0.0)
        values = candidates.logits[candidates.kept] / max(self.sampling.temperature, COLDEST)
        weights = np.exp(values - values.max())
        return Distribution(candidates.tokens[candidates.kept], weights / weights.sum())

    def advance(self, choice: Choice) -> None:
        """Take note of the choice that was committed."""
        self._tokens.append(choice.token)


def masked(logits: Logits, allowed: TokenMask) -> Logits:
    """The logits with -inf for all tokens that are not allowed."""
    bits = np.unpackbits(allowed.view(np.uint8), bitorder="little", count=len(logits))
    row: Logits = np.where(bits.view(np.bool_), logits, np.float32(-np.inf))
    return row


def choose(logits: Logits, sampling: Sampling, position: int, tolerance: float) -> Choice:
    """The choice at one position where the past plays no part; arguments as in `Chooser.choose`.

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
