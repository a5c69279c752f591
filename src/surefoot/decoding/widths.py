"""Width classes: the widths of a pass inside which a device's logits are bit-equal.

Kernels change with the number of rows they work on, so logits depend on how many tokens share a
pass, but not smoothly: inside a class they are the same, bit for bit, however tokens are cut into
passes (measured; see docs/exactness.md). Strict decoding keeps every pass inside one class.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Widths:
    """The widths of one class.

    Attributes:
        allowed: the widths, ascending, at least one.
    """

    allowed: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check that there are widths, in order."""
        if not self.allowed or list(self.allowed) != sorted(set(self.allowed)):
            raise ValueError("a width class needs widths in ascending order")
        if self.allowed[0] < 1:
            raise ValueError("a pass has one token or more")

    @property
    def least(self) -> int:
        """The narrowest pass."""
        return self.allowed[0]

    @property
    def most(self) -> int:
        """The widest pass."""
        return self.allowed[-1]

    def up(self, width: int) -> int | None:
        """The narrowest allowed width that is at least so wide; None if there is none."""
        at = bisect_left(self.allowed, width)
        return self.allowed[at] if at < len(self.allowed) else None

    def down(self, width: int) -> int:
        """The widest allowed width that is at most so wide; 0 if there is none."""
        at = bisect_right(self.allowed, width)
        return self.allowed[at - 1] if at else 0

    def hold(self, width: int, outputs: int) -> bool:
        """Whether a pass is in the class: its width, and how many of its tokens have outputs."""
        return width in self.allowed and (outputs == 0 or outputs in self.allowed)

    @property
    def most_fillers(self) -> int:
        """Most filler tokens that a pass no wider than `most` can need."""
        before = (0, *self.allowed[:-1])
        return max(here - there - 1 for here, there in zip(self.allowed, before, strict=True))

    def __str__(self) -> str:
        """The widths as ranges, such as `2-63` or `8, 12, 16`."""
        ranges: list[list[int]] = []
        for width in self.allowed:
            if ranges and ranges[-1][1] == width - 1:
                ranges[-1][1] = width
            else:
                ranges.append([width, width])
        return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
