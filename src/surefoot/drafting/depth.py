"""How deep a drafter drafts, for those who tell users of it."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from surefoot.decoding import Drafter


@runtime_checkable
class Bounded(Protocol):
    """A drafter whose drafts have a longest length."""

    longest_draft: int
    """Most tokens in a draft."""


@runtime_checkable
class Several(Protocol):
    """A drafter with others in it."""

    @property
    def depths(self) -> Mapping[str, int | None]:
        """Most tokens in a draft of each of them, by name; None if it does not say."""


def depths_of(drafter: Drafter) -> Mapping[str, int | None]:
    """Most tokens in a draft, by the drafters' names, the first to be asked first."""
    if isinstance(drafter, Several):
        return drafter.depths
    return {drafter.name: drafter.longest_draft if isinstance(drafter, Bounded) else None}
