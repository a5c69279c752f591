"""How logits move with what should not matter: the width of a pass, and where memory lies.

Real backends do this (DESIGN.md, width classes). Here it is on demand and bounded, and so are near
ties, which are where it shows.
"""

from bisect import bisect_right
from collections.abc import Iterable
from collections.abc import Sequence as Series
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.runtime.simulated.memory import Reading

_SPREAD = 4093


class NearTie(NamedTuple):
    """Two tokens that are about equally likely at a position, and far ahead of all others.

    Which of them leads depends on whatever the runtime is sensitive to (width class, layout): the
    first circumstances met favour the first token, the next new ones the second, and so on. So a
    tie that depends on the layout falls otherwise each time the memory is restored, which is the
    worst that can happen. The lead is a quarter of the smaller noise, to either side.

    Attributes:
        position: index in the sequence of the token that is chosen there.
        tokens: the two tokens.
    """

    position: int
    tokens: tuple[int, int]


class Nudges:
    """Moves logits by at most half the noise to either side.

    Args:
        seed: what the nudges follow from.
        vocabulary_size: length of a row.
        width_noise: most that the width class of a pass changes a logit.
        layout_noise: most that the memory layout changes a logit.
        width_classes: smallest width of each class, ascending, the first being 1; inside a class
            the logits are bit-equal. None makes each width a class of its own.
        near_ties: near ties to plant.
    """

    def __init__(
        self,
        seed: int,
        vocabulary_size: int,
        width_noise: float,
        layout_noise: float,
        width_classes: Series[int] | None,
        near_ties: Iterable[NearTie],
    ) -> None:
        draws = np.random.default_rng((seed, 1)).uniform(-0.499, 0.499, vocabulary_size + _SPREAD)
        self._draws = draws.astype(np.float32)
        self._size = vocabulary_size
        self._width_noise = width_noise
        self._layout_noise = layout_noise
        self._width_classes = width_classes
        self._ties = {tie.position: tie.tokens for tie in near_ties}
        self._met: dict[int, dict[tuple[int, int], int]] = {}
        noises = [noise for noise in (width_noise, layout_noise) if noise > 0]
        self._lead = min(noises, default=0.0) / 4
        self.needed = bool(noises) or bool(self._ties)

    def apply(self, row: NDArray[np.float32], reading: Reading, position: int, width: int) -> None:
        """Nudge a row in place.

        Args:
            row: the logits for the token at `position`.
            reading: what they were computed from.
            position: index in the sequence of the token to be chosen.
            width: how many tokens of the sequence share the pass.
        """
        width_class = self._width_class(width) if self._width_noise else 0
        layout = reading.layout if self._layout_noise else 0
        tie = self._ties.get(position)
        top = float(row.max()) + 4 if tie else 0.0
        if self._width_noise:
            row += self._vector(width_class, reading.digest, 0) * np.float32(self._width_noise)
        if self._layout_noise:
            row += self._vector(layout, reading.digest, 1) * np.float32(self._layout_noise)
        if tie is not None:
            met = self._met.setdefault(position, {})
            winner = met.setdefault((width_class, layout), len(met)) % 2
            row[tie[winner]] = top + self._lead
            row[tie[1 - winner]] = top - self._lead

    def _width_class(self, width: int) -> int:
        if self._width_classes is None:
            return width
        return bisect_right(self._width_classes, width)

    def _vector(self, cause: int, digest: int, kind: int) -> NDArray[np.float32]:
        start = hash((kind, cause, digest)) % _SPREAD
        return self._draws[start : start + self._size]
