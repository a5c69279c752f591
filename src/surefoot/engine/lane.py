"""A lane: a runtime with its drafter, its rounds and its slots.

The main lane has all fast requests, side by side. A strict request has a lane of its own, so that
neither the width of its passes nor where its memory lies depends on anybody else.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from surefoot.decoding import (
    MAX_PENDING,
    Drafter,
    InvalidParameterError,
    Round,
    SyntheticAcceptance,
    Widths,
    memory_for,
)
from surefoot.drafting.guarded import Guarded
from surefoot.engine.slot import Slot
from surefoot.runtime.base import Runtime


class LaneParts(NamedTuple):
    """What a lane is made of, and how that is closed again."""

    runtime: Runtime
    drafter: Drafter | None
    close: Callable[[], None]


class LaneOpener(Protocol):
    """Opens runtimes beside the main one, with the same weights and a memory of their own."""

    @property
    def widths(self) -> Widths | None:
        """The width class for strict decoding; None if it can't be done."""

    @property
    def refusal(self) -> str:
        """Why strict decoding can't be done, in words; empty if it can."""

    def describe(self) -> Mapping[str, Any]:
        """What is known of width classes, for people."""

    def open(self, widths: Widths | None, *, drafts: bool) -> LaneParts:
        """Open a runtime with one slot.

        Args:
            widths: the class that its passes are held to; None for any width.
            drafts: whether it needs a drafter.

        Raises:
            ModelLoadError: there is no room for another one.
        """


class Lane:
    """Plays rounds for the slots of one runtime.

    Args:
        runtime: the loaded model.
        drafter: proposes drafts; None for plain decoding. If it fails for a request, that request
            goes on without it.
        max_draft: most draft tokens a round; fewer if passes have no room.
        synthetic: judges drafts by chance; None for real verification.

    Attributes:
        strict: whether its passes are held to a width class.
        share: tokens of a pass that each slot may have.
        rounds: rounds played so far.
    """

    def __init__(
        self,
        runtime: Runtime,
        drafter: Drafter | None = None,
        max_draft: int = 0,
        synthetic: SyntheticAcceptance | None = None,
    ) -> None:
        self.runtime = runtime
        self.drafter = None if drafter is None else Guarded(drafter)
        self.strict = runtime.widths is not None
        self.share = runtime.batch_size // runtime.slots
        if runtime.widths is not None:
            self.share = min(self.share, runtime.widths.most)
        self.max_draft = 0 if drafter is None else min(max_draft, self.most_draft)
        self.slots = [
            Slot(memory_for(runtime, sequence_id, spare_id=runtime.slots + sequence_id))
            for sequence_id in range(runtime.slots)
        ]
        runs = None if self.strict else runtime.graph_runs_of
        self.round = Round(runtime, self.drafter, synthetic, runs)
        self.rounds = 0

    @property
    def most_draft(self) -> int:
        """Most draft tokens for which a pass has room at any time."""
        return max(0, self.share - (0 if self.strict else MAX_PENDING))

    @property
    def busy(self) -> list[Slot]:
        """The slots in use."""
        return [slot for slot in self.slots if slot.generation is not None]

    @property
    def idle(self) -> list[Slot]:
        """The slots that are free."""
        return [slot for slot in self.slots if slot.generation is None]


def check_strict(opener: LaneOpener | None) -> Widths:
    """The width class for strict decoding.

    Raises:
        InvalidParameterError: it can't be done here; the text says why.
    """
    if opener is None:
        raise InvalidParameterError("exact", "strict is not available from this engine")
    if opener.widths is None:
        raise InvalidParameterError("exact", f"strict is not available here: {opener.refusal}")
    return opener.widths
