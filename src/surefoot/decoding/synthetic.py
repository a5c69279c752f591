"""Synthetic acceptance: draft tokens are accepted by chance, to measure speed at a given rate.

The meaning is that of llama-server's `--spec-synth-rates` and `--spec-synth-len` (build 11434,
`docs/speculative.md`). Accepted tokens need not be what the target would say, so the text is not
the model's, and whoever shows it has to say so. An end-of-generation token in a draft is never
accepted, lest it end the request early.

Chance is positional noise, like that of sampling: the same seed accepts at the same positions,
in whatever rounds they come. The target's choice is computed for accepted tokens as well, since
to measure is to pay what verification pays.
"""

import math
from collections.abc import Sequence as Series
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.draft import Draft
from surefoot.decoding.errors import InvalidParameterError
from surefoot.decoding.noise import uniform
from surefoot.decoding.sequence import Sequence
from surefoot.decoding.verification import Judgement

_NO_TOKEN = np.array([-1])
"""Chance hangs on an id that no token has, so that it is independent of all sampling noise."""


class SyntheticAcceptance:
    """Judges drafts in the place of equality with the target's choice.

    Args:
        rates: entry i is the probability that the first i + 1 tokens of a draft are all accepted;
            tokens behind the last entry are never accepted.

    Raises:
        InvalidParameterError: the rates are not probabilities, rise, or there are none.
    """

    def __init__(self, rates: Series[float]) -> None:
        check_rates("synth_rates", rates)
        self.rates = tuple(rates)
        self._chances = [
            rate / before if before else 0.0 for before, rate in pairwise((1.0, *rates))
        ]

    @property
    def mean_length(self) -> float:
        """Mean tokens a round where every draft is as long as there are rates."""
        return 1 + sum(self.rates)

    def __call__(
        self,
        sequence: Sequence,
        draft: Draft,
        offset: int,
        logits: NDArray[np.float32],
        tolerance: float,
    ) -> Judgement:
        """Decide by chance whether a draft token stands; see `Rule`."""
        choice = sequence.choose(logits, tolerance)
        if offset < len(draft.tokens) and self._accepts(sequence, draft, offset):
            return Judgement(choice._replace(token=draft.tokens[offset], near_tie=False), True)
        return Judgement(choice, False)

    def _accepts(self, sequence: Sequence, draft: Draft, offset: int) -> bool:
        if offset >= len(self._chances):
            return False
        if draft.tokens[offset] in sequence.ending.end_of_generation:
            return False
        chance = uniform(sequence.sampling.seed, sequence.position, _NO_TOKEN)[0]
        return bool(chance < self._chances[offset])


def check_rates(name: str, rates: Series[float]) -> None:
    """Check synthetic acceptance rates.

    Args:
        name: what the user called them.
        rates: the rates.

    Raises:
        InvalidParameterError: they are not probabilities, rise, or there are none.
    """
    if not rates:
        raise InvalidParameterError(name, "must have one rate for each draft token, and has none")
    if not all(0 <= rate <= 1 for rate in rates):
        raise InvalidParameterError(name, "must lie between 0 and 1 each")
    if any(later > rate for rate, later in pairwise(rates)):
        raise InvalidParameterError(
            name,
            "must not rise: each is the probability that a draft is accepted up to that token",
        )


def rates_for_length(length: float, longest_draft: int) -> list[float]:
    """Rates with a mean length, such that each token of a draft has the same chance p.

    It solves p + p**2 + ... + p**longest_draft = length - 1, by halving.

    Args:
        length: mean tokens a round, the target's own included; from 1 to longest_draft + 1.
        longest_draft: most tokens in a draft.
    """
    if math.isclose(length, longest_draft + 1):
        return [1.0] * longest_draft
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(_powers(middle, longest_draft)) < length - 1:
            low = middle
        else:
            high = middle
    return _powers(low, longest_draft)


def _powers(chance: float, most: int) -> list[float]:
    return [chance**exponent for exponent in range(1, most + 1)]
