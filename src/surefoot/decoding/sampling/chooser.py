"""Choosing along one sequence: argmax of log-probability plus positional noise."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.control import TokenMask
from surefoot.decoding.errors import DecodeError
from surefoot.decoding.noise import gumbel
from surefoot.decoding.sampling import truncation
from surefoot.decoding.sampling.breakers import NO_BREAKERS, Breakers
from surefoot.decoding.sampling.choice import Choice, Distribution
from surefoot.decoding.sampling.dry import Dry
from surefoot.decoding.sampling.mirostat import Mirostat
from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.penalties import Penalties
from surefoot.decoding.sampling.pool import Pool
from surefoot.decoding.sampling.temperature import COLDEST, temperature
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
    """

    def __init__(
        self,
        sampling: Sampling,
        history: Iterable[int] = (),
        end_tokens: frozenset[int] = frozenset(),
        breakers: Breakers = NO_BREAKERS,
    ) -> None:
        tokens = list(history)
        self.sampling = sampling
        self._start = self._position = len(tokens)
        self._ends = np.array(sorted(end_tokens), np.int64)
        self._penalties = Penalties(sampling, tokens)
        self._dry = Dry(sampling, tokens, breakers)
        self._mirostat = Mirostat(sampling)
        biases = dict(sampling.logit_bias)
        self._biased = np.array(list(biases), np.int64)
        self._biases = np.array(list(biases.values()), np.float64)
        self._greedy_samplers = self._that_move_the_top()

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
            DecodeError: the logits are not numbers, or nothing is left to choose.
        """
        pool = self._start_pool(logits, tolerance, allowed)
        if self.sampling.temperature < COLDEST:
            choice = self._most_likely(pool)
        else:
            self._shape(pool, len(logits))
            choice = self._sampled(pool)
        return (
            choice
            if wish is None
            else choice._replace(scores=self.scores(logits, choice.token, wish, allowed))
        )

    def distribution(self, logits: Logits, allowed: TokenMask | None = None) -> Distribution:
        """The distribution that `choose` draws from; arguments as there."""
        pool = self._start_pool(logits, 0.0, allowed)
        if self.sampling.temperature < COLDEST:
            token = self._most_likely(pool).token
            return Distribution(np.array([token]), np.ones(1))
        self._shape(pool, len(logits))
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
        self._penalties.advance(choice.token)
        self._dry.advance(choice.token)
        if choice.surprise is not None:
            self._mirostat.advance(choice.surprise)

    def stand_at(self, position: int) -> None:
        """Choose for a position, whatever stands in front of it."""
        self._start = self._position = position

    # The samplers

    def _start_pool(self, logits: Logits, tolerance: float, allowed: TokenMask | None) -> Pool:
        """The vocabulary after mask, bias and bans."""
        top = float(logits.max())
        if not math.isfinite(top):
            raise DecodeError(f"the model returned a logit of {top}; the pass can't be trusted")
        slack = 2 * tolerance
        pool = Pool(logits, slack) if allowed is None else Pool.of(logits, allowed, slack)
        if len(self._biased):
            pool.add(self._biased, self._biases)
        generated = self._position - self._start
        if len(self._ends) and (self.sampling.ignore_eos or generated < self.sampling.min_tokens):
            rest = pool.values_of(self._ends)
            pool.replace(self._ends, np.full(len(self._ends), -np.inf))
            if pool.top == -math.inf:  # a grammar that is at its end leaves nothing else
                pool.replace(self._ends, rest)
        if pool.top == -math.inf:
            raise DecodeError("no token is left to choose: bias or bans leave none")
        return pool

    def _shape(self, pool: Pool, vocabulary_size: int) -> None:
        """Apply the samplers in their order; with mirostat, temperature and nothing else."""
        sampling = self.sampling
        if self._mirostat.active:
            temperature(pool, sampling)
            self._mirostat.apply(pool, vocabulary_size)
            return
        for name in sampling.samplers:
            self._apply(name, pool)
        pool.spread()

    def _apply(self, name: str, pool: Pool) -> None:
        match name:
            case "penalties":
                self._penalties.apply(pool)
            case "dry":
                self._dry.apply(pool)
            case "top_n_sigma":
                truncation.top_n_sigma(pool, self.sampling)
            case "top_k":
                truncation.top_k(pool, self.sampling)
            case "typ_p":
                truncation.typ_p(pool, self.sampling)
            case "top_p":
                truncation.top_p(pool, self.sampling)
            case "min_p":
                truncation.min_p(pool, self.sampling)
            case "xtc":
                truncation.xtc(pool, self.sampling, self._position)
            case "temperature":
                temperature(pool, self.sampling)

    def _most_likely(self, pool: Pool) -> Choice:
        """The most likely token that the samplers leave."""
        for name in self._greedy_samplers:
            self._apply(name, pool)
        row = pool.whole()
        if row is not None:
            token = int(row.argmax())
            rivals = np.count_nonzero(row >= row[token] - np.float32(pool.slack))
            return Choice(token, near_tie=bool(rivals > 1))
        winner = int(np.where(pool.kept, pool.values, -np.inf).argmax())
        rivals = np.count_nonzero(pool.values >= pool.values[winner] - pool.slack)
        return Choice(int(pool.tokens[winner]), near_tie=bool(rivals > 1 or not pool.sure[winner]))

    def _that_move_the_top(self) -> tuple[str, ...]:
        """The samplers up to the last one that may make another token the most likely."""
        if self._mirostat.active:
            return ()
        sampling = self.sampling
        moving = {
            "penalties": self._penalties.active,
            "dry": self._dry.active,
            "typ_p": sampling.typical_p < 1,
            "xtc": sampling.xtc_probability > 0 and sampling.xtc_threshold <= 0.5,
        }
        names = [name for name in sampling.samplers if name != "temperature"]
        last = max((i for i, name in enumerate(names) if moving.get(name)), default=-1)
        return tuple(names[: last + 1])

    def _sampled(self, pool: Pool) -> Choice:
        scores = pool.values + gumbel(self.sampling.seed, self._position, pool.tokens)
        winner = int(np.where(pool.kept, scores, -np.inf).argmax())
        rivals = np.count_nonzero(scores >= scores[winner] - pool.slack)
        surprise = None
        if self._mirostat.active:
            surprise = -math.log2(max(float(pool.probabilities()[winner]), 1e-300))
        return Choice(
            token=int(pool.tokens[winner]),
            near_tie=bool(rivals > 1 or not pool.sure[winner]),
            surprise=surprise,
        )


_TIMELESS: dict[Sampling, Chooser] = {}
"""Choosers for `choose`, which ignore the past."""


def _timeless(sampling: Sampling, position: int) -> Chooser:
    chooser = _TIMELESS.get(sampling)
    if chooser is None:
        if len(_TIMELESS) > 256:
            _TIMELESS.clear()
        chooser = _TIMELESS[sampling] = Chooser(sampling)
    chooser.stand_at(position)
    return chooser


def choose(logits: Logits, sampling: Sampling, position: int, tolerance: float) -> Choice:
    """The choice at one position where the past plays no part; arguments as in `Chooser.choose`.

    Raises:
        DecodeError: the logits are not numbers.
    """
    return _timeless(sampling, position).choose(logits, tolerance)


def distribution_of(logits: Logits, sampling: Sampling, position: int) -> Distribution:
    """The distribution that `choose` draws from."""
    return _timeless(sampling, position).distribution(logits)
