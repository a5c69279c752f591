"""What a measurement of width classes has found."""

from bisect import bisect_left
from dataclasses import dataclass

from surefoot.decoding import Widths

SPREAD = 3.0
"""The near-tie rule's tolerance, in median differences.

The largest difference is no good measure: it depends on whether experts happened to switch in the
few positions that were looked at. On the trained hybrid windows of 256 positions had 0.4 to 2.5
in Q8_0 and 1.2 to 4.1 in Q4_K_M, where the median was steady; and twice the largest called nine
choices in ten near ties. At more than 2,200 positions and under six samplings, greedy among them, a
tolerance of 0.25 covered all 38 choices that changed with the width in Q8_0, one of 0.35 all 583 in
Q4_K_M (docs/exactness.md): 1.7 medians and less."""

WIDEST = 64
"""The widest pass that is tried."""

LAYOUT_NOISE = 0.05
"""Where a sequence's keys lie moves logits, too, by up to 2e-3 on f32 files with attention."""

ENOUGH = 64
"""Positions without which a median says too little: 32 in a row were seen not to differ at all."""


@dataclass(frozen=True, slots=True)
class WidthReport:
    """Which widths of a pass give bit-equal logits on a device, and how far others are apart.

    Attributes:
        widths: the class chosen for strict decoding.
        classes: all classes found, smallest width first.
        noise_by_width: for other widths the largest difference of a logit to width 1.
        median_by_width: likewise the median over positions of what is largest there, where there is
            a difference.
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
    median_by_width: tuple[tuple[int, float], ...]
    median_noise: float
    flips: int
    positions: int
    plain_cost: float
    prefill_cost: float
    seconds: float

    @property
    def noise(self) -> float:
        """The largest difference of a logit to width 1, at any width."""
        return max((noise for _, noise in self.noise_by_width), default=0.0)

    def tolerance(self, widest: int, default: float) -> float:
        """How far a logit may move without meaning anything, for the near-tie rule.

        Args:
            widest: most tokens in a pass of rounds, all sequences together. Widths up to the first
                that is at least so wide count.
            default: what is taken to be so where nobody has measured; it stays the least where too
                few positions have been looked at.
        """
        at = bisect_left([width for width, _ in self.median_by_width], widest)
        usual = max((median for _, median in self.median_by_width[: at + 1]), default=0.0)
        measured = max(SPREAD * usual, LAYOUT_NOISE)
        return measured if self.positions >= ENOUGH else max(measured, default)
