"""Temperature, fixed or by entropy."""

import math

import numpy as np

from surefoot.decoding.sampling.parameters import Sampling
from surefoot.decoding.sampling.pool import Pool

COLDEST = 1e-6
"""Below that temperature the choice is the most likely token: dividing by it would overflow, and
at that temperature no noise could change the choice but at a tie."""


def temperature(pool: Pool, sampling: Sampling) -> None:
    """Divide by the temperature; with a dynamic range it grows with the entropy."""
    wanted = sampling.temperature
    if sampling.dynatemp_range > 0:
        pool.spread()
        probabilities = pool.probabilities()[pool.kept]
        if len(probabilities) < 2:
            return
        pool.doubt()
        positive = probabilities[probabilities > 0]
        entropy = -float((positive * np.log(positive)).sum()) / math.log(len(probabilities))
        low = max(0.0, sampling.temperature - sampling.dynatemp_range)
        high = sampling.temperature + sampling.dynatemp_range
        wanted = low + (high - low) * entropy**sampling.dynatemp_exponent
    pool.scale(max(wanted, COLDEST))
