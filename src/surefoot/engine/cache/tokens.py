"""Texts as arrays of tokens, which compare fast."""

from collections.abc import Sequence as Series

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
"""Token ids, shape (tokens,)."""

_HEAD = 32


def as_tokens(tokens: Series[int]) -> Tokens:
    """Token ids as an array."""
    return np.asarray(tokens, np.int32)


def common(one: Tokens, other: Tokens) -> int:
    """Length of the longest common prefix."""
    head = _common(one[:_HEAD], other[:_HEAD])
    return head if head < _HEAD else _common(one, other)


def _common(one: Tokens, other: Tokens) -> int:
    length = min(len(one), len(other))
    differing = one[:length] != other[:length]
    at = int(differing.argmax()) if length else 0
    return at if length and differing[at] else length
