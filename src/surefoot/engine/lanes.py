"""All lanes of an engine: the main one, and those that are opened when they are needed."""

from collections.abc import Callable, Mapping
from typing import Any

from surefoot.decoding import Drafter, SyntheticAcceptance
from surefoot.engine.lane import Lane, LaneOpener, check_strict
from surefoot.runtime.base import Runtime


class Lanes:
    """The lanes in which requests run, and those for self-checks.

    Args:
        runtime: the main lane's.
        drafter: the main lane's; None for plain decoding.
        max_draft: most draft tokens a round.
        synthetic: judges drafts by chance; None for real verification.
        opener: opens further lanes; None if there can be none.

    Attributes:
        main: has all fast requests.
        strict: lanes for strict requests, opened when they are needed and kept.
    """

    def __init__(
        self,
        runtime: Runtime,
        drafter: Drafter | None,
        max_draft: int,
        synthetic: SyntheticAcceptance | None,
        opener: LaneOpener | None,
    ) -> None:
        self.main = Lane(runtime, drafter, max_draft, synthetic)
        self.strict: list[Lane] = []
        self.opener = opener
        self._synthetic = synthetic
        self._checking: dict[bool, Lane] = {}
        self._closers: list[Callable[[], None]] = []

    @property
    def all(self) -> list[Lane]:
        """The lanes in which requests run."""
        return [self.main, *self.strict]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What is known of width classes, for people; empty if nothing is."""
        return {} if self.opener is None else self.opener.describe()

    def open_strict(self) -> Lane:
        """Open another lane for strict requests.

        Raises:
            SurefootError: there is no room for one.
        """
        lane = self._open(strict=True, drafts=True)
        self.strict.append(lane)
        return lane

    def for_checks(self, *, strict: bool) -> Lane:
        """The lane for self-checks; opened when it is needed first.

        Raises:
            SurefootError: there is no room for it.
        """
        if strict not in self._checking:
            self._checking[strict] = self._open(strict=strict, drafts=False)
        return self._checking[strict]

    def close(self) -> None:
        """Close the lanes that were opened; the main runtime is its owner's."""
        self.strict.clear()
        self._checking.clear()
        while self._closers:
            self._closers.pop()()

    def _open(self, *, strict: bool, drafts: bool) -> Lane:
        widths = check_strict(self.opener) if strict else None
        assert self.opener is not None
        parts = self.opener.open(widths, drafts=drafts)
        self._closers.append(parts.close)
        return Lane(parts.runtime, parts.drafter, self.main.max_draft, self._synthetic)
