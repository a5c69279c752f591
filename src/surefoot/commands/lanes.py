"""Lanes beside the main one: the same weights again, with a memory and a drafter of their own."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from surefoot.decoding import Drafter, SurefootError, Widths
from surefoot.engine import LaneParts
from surefoot.runtime.base import Runtime
from surefoot.runtime.libllama import LibllamaRuntime, WidthReport, known_widths, measure_widths

_LOG = logging.getLogger(__name__)


class Beside(Protocol):
    """Makes drafters for lanes; see `Drafting.beside`."""

    def beside(self, runtime: LibllamaRuntime) -> AbstractContextManager[Drafter | None]:
        """A drafter for another context of the target."""


class Lanes:
    """Opens lanes; see `LaneOpener`.

    Args:
        runtime: the main one.
        drafting: how the main lane drafts.
        report: the measurement of width classes; None if it failed.
        refusal: why it failed, in words.
    """

    def __init__(
        self,
        runtime: LibllamaRuntime,
        drafting: Beside,
        report: WidthReport | None,
        refusal: str = "",
    ) -> None:
        self._runtime = runtime
        self._drafting = drafting
        self.report = report
        self.refusal = refusal
        if report is not None and runtime.rollback.kind == "none" and report.widths.most_fillers:
            self.refusal = "the model's memory can't undo the fillers that its width class needs"

    @property
    def widths(self) -> Widths | None:
        """The width class for strict decoding; None if it can't be done."""
        return None if self.refusal or self.report is None else self.report.widths

    def describe(self) -> Mapping[str, Any]:
        """What is known of width classes; see `LaneOpener`."""
        if self.report is None:
            return {"strict": None, "refusal": self.refusal}
        report = self.report
        return {
            "strict": None if self.widths is None else str(self.widths),
            "refusal": self.refusal or None,
            "classes": [str(widths) for widths in report.classes],
            "plain_cost": round(report.plain_cost, 3),
            "prefill_cost": round(report.prefill_cost, 3),
            "median_noise": report.median_noise,
            "top_choices_flipped": report.flips,
            "positions": report.positions,
        }

    def open(self, widths: Widths | None, *, drafts: bool) -> LaneParts:
        """Open a runtime with one slot, and with a drafter if it needs one.

        Raises:
            SurefootError: there is no room for another one.
        """
        with ExitStack() as stack:
            runtime = stack.enter_context(self._runtime.sibling(widths))
            drafter = None
            if drafts:
                drafter = stack.enter_context(self._drafting.beside(runtime))
            return LaneParts(runtime, drafter, stack.pop_all().close)


@contextmanager
def lanes_for(runtime: Runtime, drafting: Beside, *, measure: bool) -> Iterator[Lanes | None]:
    """Measure width classes, or look up what was measured; the near-tie rule uses it, too.

    Args:
        runtime: the main one.
        drafting: how the main lane drafts.
        measure: whether to measure what has not been yet.
    """
    if not isinstance(runtime, LibllamaRuntime):
        yield None
        return
    report, refusal = known_widths(runtime), "width classes have not been measured"
    try:
        if report is None and measure:
            _LOG.info("measuring width classes, once for this model and device")
            report = measure_widths(runtime)
    except SurefootError as error:
        refusal = f"width classes could not be measured ({error})"
        _LOG.warning("strict is not available: %s", refusal)
    if report is not None:
        runtime.use_noise(report)
    yield Lanes(runtime, drafting, report, "" if report else refusal)
