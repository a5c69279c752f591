"""Choosing along one sequence: argmax of log-probability plus positional noise."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.control import TokenMask
from surefoot.decoding.errors import DecodeError, InvalidParameterError, NoTokenError
from surefoot.decoding.noise import gumbel
from surefoot.decoding.sampling.breakers import NO_BREAKERS, Breakers
from surefoot.decoding.sampling.chain import Chain
from surefoot.decoding.sampling.choice import Choice, Distribution
from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool
from surefoot.decoding.scores import Scores, ScoreWish, most_likely, raw_scores

Logits = NDArray[np.float32]
"""One row of logits, shape (vocabulary,)."""


class Chooser:
    """Chooses one sequence's tokens.

    A choice is a pure function of the logits, the parameters and the tokens so far. What is kept
    here of those moves on once for each committed token.

    Args:
        sampling: the parameters.
        history: the tokens so far, the prompt.
        end_tokens: the model's end-of-generation tokens.
        breakers: what DRY's repeats do not reach across.
        start: the position to begin at; None for the history's length.
    """

    def __init__(
        self,
        sampling: Sampling,
        history: Iterable[int] = (),
        end_tokens: frozenset[int] = frozenset(),
        breakers: Breakers = NO_BREAKERS,
        start: int | None = None,
    ) -> None:
        tokens = list(history)
        self.sampling = sampling
        self._start = self._position = len(tokens) if start is None else start
        self._ends = np.array(sorted(end_tokens), np.int64)
        self._chain = Chain(sampling, tokens, breakers)
        biases: dict[int, float] = {}
        for token, bias in sampling.logit_bias:
            biases[token] = biases.get(token, 0.0) + bias
        self._biased = np.array(list(biases), np.int64)
        self._biases = np.array(list(biases.values()), np.float64)

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
            NoTokenError: bias and bans, together with the mask, leave nothing to choose.
            InvalidParameterError: a bias is for a token that the vocabulary does not have.
        """
        pool = self._start_pool(logits, tolerance, allowed)
        if self._chain.greedy:
            choice = self._most_likely(pool)
        else:
            self._chain.shape(pool, self._position, len(logits))
            choice = self._sampled(pool)
        if wish is None:
            return choice
        return choice._replace(scores=self.scores(logits, choice.token, wish, allowed))

    def distribution(self, logits: Logits, allowed: TokenMask | None = None) -> Distribution:
        """The distribution that `choose` draws from; arguments as there."""
        pool = self._start_pool(logits, 0.0, allowed)
        if self._chain.greedy:
            token = self._most_likely(pool).token
            return Distribution(np.array([token]), np.ones(1))
        self._chain.shape(pool, self._position, len(logits))
        probabilities = pool.probabilities()
        return Distribution(pool.tokens[pool.kept], probabilities[pool.kept])

    def scores(
        self, logits: Logits, token: int, wish: ScoreWish, allowed: TokenMask | None = None
    ) -> Scores:
        """What is wanted to be known of a token; other arguments as in `choose`."""
        if not wish.post_sampling:
            return raw_scores(logits, token, wish.top)
        tokens, probabilities = self.distribution(logits, allowed)
        with np.errstate(divide="ignore"):
            logprobs = np.log(probabilities)
        best = most_likely(probabilities, wish.top)
        own = logprobs[tokens == token]
        return Scores(
            float(own[0]) if len(own) else -math.inf,
            tuple((int(tokens[i]), float(logprobs[i])) for i in best),
        )

    def advance(self, choice: Choice) -> None:
        """Take note of the choice that was committed."""
        self._position += 1
        self._chain.advance(choice)

    @property
    def mu(self) -> float | None:
        """Mirostat's state, the only one that does not follow from the tokens; None without it."""
        return self._chain.mirostat.mu if self._chain.mirostat.active else None

    @mu.setter
    def mu(self, mu: float) -> None:
        self._chain.mirostat.mu = mu

    def _start_pool(self, logits: Logits, tolerance: float, allowed: TokenMask | None) -> Pool:
        """The vocabulary after mask, bias and bans."""
        top = float(logits.max())
        if not math.isfinite(top):
            raise DecodeError(f"the model returned a logit of {top}; the pass can't be trusted")
        slack = 2 * tolerance
        pool = Pool(logits, slack) if allowed is None else Pool.of(logits, allowed, slack)
        if len(self._biased):
            self._check_biased(len(logits))
            pool.add(self._biased, self._biases)
        generated = self._position - self._start
        if len(self._ends) and (self.sampling.ignore_eos or generated < self.sampling.min_tokens):
            rest = pool.values_of(self._ends)
            pool.replace(self._ends, np.full(len(self._ends), -np.inf))
            if pool.top == -math.inf:  # a grammar that is at its end leaves nothing else
                pool.replace(self._ends, rest)
        if pool.top == -math.inf:
            raise NoTokenError("no token is left to choose: bias or bans leave none")
        pool.drop_banned()
        return pool

    def _check_biased(self, vocabulary_size: int) -> None:
        highest = int(self._biased.max())
        if highest >= vocabulary_size:
            raise InvalidParameterError(
                "logit_bias",
                f"there is no token {highest}; ids go from 0 to {vocabulary_size - 1}",
            )

    def _most_likely(self, pool: Pool) -> Choice:
        """The most likely token that the samplers leave."""
        self._chain.lift_the_top(pool, self._position)
        row = pool.whole()
        if row is not None:
            token = int(row.argmax())
            rivals = np.count_nonzero(row >= row[token] - np.float32(pool.slack))
            return Choice(token, near_tie=bool(rivals > 1))
        winner = int(np.where(pool.kept, pool.values, -np.inf).argmax())
        rivals = np.count_nonzero(pool.values >= pool.values[winner] - pool.slack)
        return Choice(int(pool.tokens[winner]), near_tie=bool(rivals > 1 or not pool.sure[winner]))

    def _sampled(self, pool: Pool) -> Choice:
        """The token that positional noise draws from what the samplers leave."""
        scores = pool.values + gumbel(self.sampling.seed, self._position, pool.tokens)
        winner = int(np.where(pool.kept, scores, -np.inf).argmax())
        rivals = np.count_nonzero(scores >= scores[winner] - pool.slack)
        surprise = None
        if self._chain.mirostat.active:
            surprise = -math.log2(max(float(pool.probabilities()[winner]), 1e-300))
        return Choice(
            token=int(pool.tokens[winner]),
            near_tie=bool(rivals > 1 or not pool.sure[winner]),
            surprise=surprise,
        )


def choose(logits: Logits, sampling: Sampling, position: int, tolerance: float) -> Choice:
    """The choice at one position where the past plays no part; arguments as in `Chooser.choose`.

    Raises:
        DecodeError: the logits are not numbers.
        InvalidParameterError: a bias is for a token that the vocabulary does not have.
    """
    return Chooser(sampling, start=position).choose(logits, tolerance)


def distribution_of(logits: Logits, sampling: Sampling, position: int) -> Distribution:
    """The distribution that `choose` draws from."""
    return Chooser(sampling, start=position).distribution(logits)
