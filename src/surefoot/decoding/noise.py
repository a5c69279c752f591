"""Positional noise: Gumbel noise as a pure function of (seed, position, token).

Choosing the argmax of `log p + gumbel` draws exactly from p (the Gumbel-max trick: Gumbel 1954;
Maddison et al. 2014). Because the noise hangs on the position and on no generator's state, a
token can be chosen again, in any batch and after any crash, with the same result.
"""

import numpy as np
from numpy.typing import NDArray

SEED_LIMIT = 1 << 64
"""Seeds lie in [0, SEED_LIMIT)."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = SEED_LIMIT - 1


def _mixed(value: int) -> int:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014), for one Python integer."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mixed_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same finaliser for an array; overflow wraps, as it must."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def stream(seed: int, number: int) -> int:
    """A seed whose noise is independent of that of the seed itself, and of other streams.

    Args:
        seed: the request's seed.
        number: which stream; 1 or more.
    """
    return _mixed((seed ^ (number * 0xA24BAED4963EE407)) & _MASK)


def uniform(seed: int, position: int, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
    """Numbers in the open interval (0, 1), one for each token, independent of each other.

    Args:
        seed: the request's seed, in [0, 2**64).
        position: index in the sequence of the token that is being chosen.
        tokens: token ids, shape (n,).

    Returns:
        float64 array of shape (n,), multiples of 2**-53 moved up by half a step.
    """
    stream = np.uint64(_mixed(_mixed((seed + 1) & _MASK) ^ _mixed((position + 0x51ED27) & _MASK)))
    bits = _mixed_array(stream + (tokens.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def gumbel(seed: int, position: int, tokens: NDArray[np.integer]) -> NDArray[np.float64]:
    """Standard Gumbel noise for each token at one position; arguments as in `uniform`."""
    noise: NDArray[np.float64] = -np.log(-np.log(uniform(seed, position, tokens)))
    return noise
