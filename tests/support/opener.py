"""Opens lanes beside a simulated runtime."""

from collections.abc import Callable, Mapping
from typing import Any

from surefoot.decoding import Drafter, Widths
from surefoot.engine import LaneParts
from surefoot.runtime.base import Runtime
from surefoot.runtime.simulated import SimulatedRuntime


class Opener:
    """See `LaneOpener`.

    Args:
        runtime: what it opens siblings of.
        widths: the class for strict decoding; None for none.
        drafter: who drafts in a lane.
        change: what becomes of each sibling.
    """

    refusal = "there is no class of widths"

    def __init__(
        self,
        runtime: SimulatedRuntime,
        widths: Widths | None = None,
        drafter: Drafter | None = None,
        change: Callable[[Runtime], Runtime] = lambda runtime: runtime,
    ) -> None:
        self._runtime = runtime
        self.widths = widths
        self._drafter = drafter
        self._change = change

    def describe(self) -> Mapping[str, Any]:
        return {}

    def open(self, widths: Widths | None, *, drafts: bool) -> LaneParts:
        runtime = self._change(self._runtime.sibling(widths))
        return LaneParts(runtime, self._drafter if drafts else None, runtime.close)
