"""The end of a drafter: some have something to save or to let go of."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Closeable(Protocol):
    """What has to be done with some drafters when no more is asked of them."""

    def close(self) -> None:
        """Save what is to be kept, and let go of all the rest."""


def close_drafter(drafter: object) -> None:
    """Close a drafter, if it is one of those that need it; None is no drafter."""
    if isinstance(drafter, Closeable):
        drafter.close()
