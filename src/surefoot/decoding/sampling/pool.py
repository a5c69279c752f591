"""The candidates of one position on their way through the samplers, and how sure they are.

It starts as the whole vocabulary and shrinks. Tokens that a truncation leaves out are dropped only
if they would be left out however the logits move within the tolerance. What each sampler does is
told in its own module.
"""

import math

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding.control import TokenMask
from surefoot.decoding.scores import nth_largest

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LARGEST = float(np.finfo(np.float32).max)
"""Values beyond it, which no logit has, are taken for it."""

_FEW = 4096
"""Up to so many allowed tokens are taken out of the vocabulary; more are left in place."""


class Pool:
    """Candidates, by rising id. All arrays have shape (candidates,).

    Args:
        logits: one row, shape (vocabulary,); not changed.
        slack: how far the difference of two logits may move without meaning anything.

    Attributes:
        tokens: their ids.
        values: their logits as the samplers so far have left them.
        kept: which of them the samplers so far leave.
        sure: which they leave however the logits move within the tolerance.
        slack: as given; temperature scales it.
        extent: how many candidates llama.cpp counts here: kept ones, and those whose value is
            -inf, which stay in its list until a truncation cuts it.
        counted: whether as many candidates are kept however the logits move. Else sums over them
            may jump.
    """

    def __init__(self, logits: NDArray[np.float32], slack: float) -> None:
        self._whole: NDArray[np.float32] | None = logits
        self._copied = False
        self.slack = slack
        self.extent = len(logits)
        self.counted = True
        self.tokens = np.empty(0, np.int64)
        self.values = np.empty(0, np.float64)
        self.kept = np.empty(0, np.bool_)
        self.sure = np.empty(0, np.bool_)

    @classmethod
    def of(cls, logits: NDArray[np.float32], allowed: TokenMask, slack: float) -> "Pool":
        """The tokens of a mask; arguments as above."""
        bits = np.unpackbits(allowed.view(np.uint8), bitorder="little", count=len(logits))
        flags = bits.view(np.bool_)
        if np.count_nonzero(bits) > _FEW:
            pool = cls(np.where(flags, logits, np.float32(-np.inf)), slack)
            pool._copied = True
            return pool
        pool = cls(logits, slack)
        pool._begin(np.flatnonzero(flags), logits)
        return pool

    @property
    def top(self) -> float:
        """The highest value of a kept candidate."""
        values = self.values[self.kept] if self._whole is None else self._whole
        return float(values.max()) if len(values) else -math.inf

    def add(self, tokens: NDArray[np.int64], shifts: Floats) -> None:
        """Add to the values of some tokens; -inf bans them.

        Args:
            tokens: different ids.
            shifts: what to add to each.
        """
        self.replace(tokens, self.values_of(tokens) + shifts)

    def drop_banned(self) -> None:
        """Drop candidates of value -inf, so that no sampler has to mind them."""
        there = self.values > -np.inf
        if self._whole is None and not there.all():
            self.tokens, self.values = self.tokens[there], self.values[there]
            self.kept, self.sure = self.kept[there], self.sure[there]

    def values_of(self, tokens: NDArray[np.int64]) -> Floats:
        """The values of some tokens; -inf for those that are no candidates."""
        if self._whole is not None:
            return self._whole[tokens].astype(np.float64)
        places, there = self._places_of(tokens)
        values = np.full(len(tokens), -np.inf)
        values[there] = self.values[places]
        return values

    def replace(self, tokens: NDArray[np.int64], values: Floats) -> None:
        """Give some tokens other values; those that are no candidates don't become any."""
        values = np.where(np.isneginf(values), values, np.clip(values, -LARGEST, LARGEST))
        if self._whole is not None:
            if not self._copied:
                self._whole, self._copied = self._whole.copy(), True
            self._whole[tokens] = values
            return
        places, there = self._places_of(tokens)
        self.values[places] = values[there]
        if not self.settled:  # the kept ones need no longer be the highest
            self.doubt()

    def _places_of(self, tokens: NDArray[np.int64]) -> tuple[NDArray[np.int64], Flags]:
        """Where those of some tokens stand that are candidates, and which of them are."""
        if not len(self.tokens):
            return np.empty(0, np.int64), np.zeros(len(tokens), np.bool_)
        places = np.minimum(np.searchsorted(self.tokens, tokens), len(self.tokens) - 1)
        there = self.tokens[places] == tokens
        return places[there], there

    @property
    def settled(self) -> bool:
        """Whether the same candidates are kept however the logits move."""
        return self._whole is not None or bool(np.all(self.kept & self.sure))

    def keep_top(self, count: int) -> None:
        """Leave the `count` highest values; of equals, the lower id."""
        self.extent = min(self.extent, count)
        if self._whole is not None:
            if count >= len(self._whole):
                return
            self._narrow(nth_largest(self._whole, count) - self.slack)
        order = self.ranking()
        if len(order) <= count:
            return
        last, first_out = self.values[order[count - 1]], self.values[order[count]]
        kept = np.zeros_like(self.kept)
        kept[order[:count]] = True
        extent, counted = self.extent, self.counted
        self.cut(
            kept,
            sure=self.values > first_out + self.slack,
            possible=self.values >= last - self.slack,
        )
        self.extent, self.counted = extent, counted

    def keep_above(self, least: float, margin: float, min_keep: int = 0) -> None:
        """Leave the values from a threshold on, which may move by `margin` to either side.

        Args:
            least: the threshold, in values.
            margin: how far the difference of a value to it may move.
            min_keep: so many of the highest are left in any case.
        """
        extent = self.extent
        if self._whole is not None:
            if min_keep > 1:
                least = min(least, nth_largest(self._whole, min(min_keep, len(self._whole))))
            self._narrow(least - margin)
        elif min_keep > 1:
            order = self.ranking()[:min_keep]
            least = min(least, float(self.values[order].min()))
        self.cut(
            self.kept & (self.values >= least),
            sure=self.values >= least + margin,
            possible=self.values >= least - margin,
        )
        self.extent = max(self.extent, min(min_keep, extent))

    def cut(self, kept: Flags, sure: Flags, possible: Flags) -> None:
        """Leave what is kept, and drop what is not even possible.

        Args:
            kept: among the kept ones those that stay; at least one.
            sure: those that stay however the logits move.
            possible: those that might stay.
        """
        self.kept = kept
        self.sure &= sure & kept
        self.extent = int(np.count_nonzero(kept))
        stay = possible | kept
        if not stay.all():
            self.tokens, self.values = self.tokens[stay], self.values[stay]
            self.kept, self.sure = self.kept[stay], self.sure[stay]
        self.counted = self.counted and self.settled

    def scale(self, temperature: float) -> None:
        """Divide all values."""
        self.spread()
        self.values /= temperature
        self.slack /= temperature

    def doubt(self) -> None:
        """Take nothing for sure any more, unless logits do not move at all."""
        if self.slack > 0:
            self.spread()
            self.sure[:] = False

    def ranking(self) -> NDArray[np.int64]:
        """Indices of the kept candidates, by falling value; of equals, the lower id first."""
        self.spread()
        indices = np.flatnonzero(self.kept)
        order: NDArray[np.int64] = indices[np.argsort(-self.values[indices], kind="stable")]
        return order

    def probabilities(self) -> Floats:
        """Those of the kept candidates; 0 for the others."""
        self.spread()
        weights = np.where(self.kept, np.exp(self.values - self.top), 0.0)
        shares: Floats = weights / weights.sum()
        return shares

    def spread(self) -> None:
        """Make the candidates explicit, if they still are the whole vocabulary."""
        if self._whole is not None:
            self._narrow(-np.inf)

    def whole(self) -> NDArray[np.float32] | None:
        """The values as one row while they are the whole vocabulary's; else None."""
        return self._whole

    def _narrow(self, least: float) -> None:
        """Leave the part of the whole vocabulary with values from `least` on, never one of -inf."""
        assert self._whole is not None
        whole, self._whole = self._whole, None
        lowest = float(np.finfo(np.float32).min)
        self._begin(np.flatnonzero(whole >= np.float32(max(least, lowest))), whole)

    def _begin(self, tokens: NDArray[np.int64], row: NDArray[np.float32]) -> None:
        self._whole = None
        self.tokens = tokens
        self.values = row[tokens].astype(np.float64)
        self.kept = np.ones(len(self.tokens), np.bool_)
        self.sure = self.kept.copy()
