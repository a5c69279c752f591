"""How the target chooses a token: parameters, and a pure function of logits, past and position.

`Sampling` holds the parameters, a `Chooser` applies them along one sequence, and the near-tie rule
is stated once, at `Choice`.
"""

from surefoot.decoding.sampling.choice import Choice, Distribution
from surefoot.decoding.sampling.chooser import Chooser, choose
from surefoot.decoding.sampling.parameters import DEFAULT_SAMPLERS, GREEDY, Sampling
from surefoot.decoding.sampling.truncation import COLDEST, Logits, survivors

__all__ = [
    "COLDEST",
    "DEFAULT_SAMPLERS",
    "GREEDY",
    "Choice",
    "Chooser",
    "Distribution",
    "Logits",
    "Sampling",
    "choose",
    "survivors",
]
