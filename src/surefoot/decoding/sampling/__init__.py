"""How the target chooses a token: parameters, and a pure function of logits, past and position.

`Sampling` holds the parameters, a `Chooser` applies them along one sequence, and the near-tie rule
is stated once, at `Choice`.
"""

from surefoot.decoding.sampling.breakers import NO_BREAKERS, BreakerFinder, Breakers
from surefoot.decoding.sampling.choice import Choice, Distribution
from surefoot.decoding.sampling.chooser import Chooser, Logits, choose, distribution_of
from surefoot.decoding.sampling.parameters import (
    DEFAULT_SAMPLERS,
    GREEDY,
    SAMPLER_LETTERS,
    Sampling,
)
from surefoot.decoding.sampling.temperature import COLDEST

__all__ = [
    "COLDEST",
    "DEFAULT_SAMPLERS",
    "GREEDY",
    "NO_BREAKERS",
    "SAMPLER_LETTERS",
    "BreakerFinder",
    "Breakers",
    "Choice",
    "Chooser",
    "Distribution",
    "Logits",
    "Sampling",
    "choose",
    "distribution_of",
]
