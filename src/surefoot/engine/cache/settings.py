"""How much is cached, and where."""

import re
from dataclasses import dataclass
from pathlib import Path

from surefoot.decoding import InvalidParameterError

EVERY = 1024
"""Tokens between two checkpoints of a long text. A prefill at full width is hardly slower for being
cut so often (a graph run has 512 tokens), and to absorb so many again takes a second on a slow
device and an instant on a fast one."""

LEAST_SPACING = 16
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Budgets of the prompt cache's tiers. All are off by default: only slots are reused then.

    Attributes:
        device: bytes for forks in the model's own memory. The runtime has to be loaded with room
            for them; what it has no room for is not kept there.
        ram: bytes of the computer's memory.
        disk: bytes in the folder.
        folder: where the disk tier is; None for no disk tier.
        every: tokens between two checkpoints of a long text.

    Raises:
        InvalidParameterError: a value is outside its range, or a budget has no folder.
    """

    device: int = 0
    ram: int = 0
    disk: int = 0
    folder: Path | None = None
    every: int = EVERY

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("device", "ram", "disk"):
            if getattr(self, name) < 0:
                raise InvalidParameterError(f"--cache-{name}", "must be 0 (off) or more")
        if self.every < LEAST_SPACING:
            raise InvalidParameterError(
                "--checkpoint-every", f"must be at least {LEAST_SPACING} tokens, not {self.every}"
            )
        if self.disk and self.folder is None:
            raise InvalidParameterError(
                "--cache-disk", "needs a folder; name one with --cache-folder"
            )


def bytes_of(text: str) -> int:
    """A size as people write it: `512M`, `2G`, `1.5GiB`, `1000000`; units are powers of 1024.

    Raises:
        ValueError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?", text.strip().upper())
    if found is None:
        raise ValueError(f"{text!r} is no size; write one like 512M or 2G")
    return int(float(found[1]) * _UNITS[found[2]])


def in_bytes(count: int) -> str:
    """A size for people, such as `512 MiB`."""
    for unit in ("GiB", "MiB", "KiB"):
        size = _UNITS[unit[0]]
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"
