"""Temperature, fixed or by entropy."""

import math

import numpy as np

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool

COLDEST = 1e-6
"""Below that temperature the choice is the most likely token: dividing by it would overflow, and
at that temperature no noise could change the choice but at a tie."""

_HOTTEST = 1e30
"""All tokens are equally likely there, and nothing overflows."""


def temperature(pool: Pool, sampling: Sampling) -> None:
    """Divide by the temperature; with a dynamic range it grows with the entropy."""
    if sampling.dynatemp_range <= 0:
        fixed_temperature(pool, sampling)
    elif pool.extent > 1:
        pool.doubt()
        pool.scale(_bounded(_dynamic(pool, sampling)))


def fixed_temperature(pool: Pool, sampling: Sampling) -> None:
    """Divide by the temperature, whatever the dynamic range is."""
    pool.scale(_bounded(sampling.temperature))


def _dynamic(pool: Pool, sampling: Sampling) -> float:
    """The temperature for a pool's entropy, as a share of the largest that it could have."""
    probabilities = pool.probabilities()
    positive = probabilities[probabilities > 0]
    entropy = max(0.0, -float((positive * np.log(positive)).sum())) / math.log(pool.extent)
    low = max(0.0, sampling.temperature - sampling.dynatemp_range)
    high = sampling.temperature + sampling.dynatemp_range
    return low + (high - low) * float(entropy**sampling.dynatemp_exponent)


def _bounded(wanted: float) -> float:
    return min(max(wanted, COLDEST), _HOTTEST)
