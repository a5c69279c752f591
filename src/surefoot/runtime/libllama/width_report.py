"""What a measurement of width classes has found."""

from bisect import bisect_left
from dataclasses import dataclass

from surefoot.decoding import Widths

SAFETY = 2.0
"""A guess, not a measurement: the largest difference among a few hundred positions may lie far
below that among thousands."""

LAYOUT_NOISE = 0.05
"""Where a sequence's keys lie moves logits, too, by up to 2e-3 on f32 files with attention."""


@dataclass(frozen=True, slots=True)
class WidthReport:
    """Which widths of a pass give bit-equal logits on a device, and how far others are apart.

    Attributes:
        widths: the class chosen for strict decoding.
        classes: all classes found, smallest width first.
        noise_by_width: for each other width the largest difference of a logit to width 1.
        median_noise: median over positions and widths of that at a position, where there is one.
        flips: positions at which another token is the most likely at some other width.
        positions: positions compared.
        plain_cost: time of a strict round without a draft, in rounds of one token.
        prefill_cost: time that a strict prefill takes, as a multiple of an ordinary one's.
        seconds: how long the measurement took.
    """

    widths: Widths
    classes: tuple[Widths, ...]
    noise_by_width: tuple[tuple[int, float], ...]
    median_noise: float
    flips: int
    positions: int
    plain_cost: float
    prefill_cost: float
    seconds: float

    def noise(self, widest: int) -> float:
        """Largest difference to width 1 among widths up to the first that is at least `widest`."""
        at = bisect_left([width for width, _ in self.noise_by_width], widest)
        return max((noise for _, noise in self.noise_by_width[: at + 1]), default=0.0)

    def tolerance(self, widest: int) -> float:
        """How far a logit may move without meaning anything, for the near-tie rule.

        Args:
            widest: most tokens in a pass of rounds, all sequences together.
        """
        return max(SAFETY * self.noise(widest), LAYOUT_NOISE)
