"""What a server needs of an engine, wherever that runs: in this process, or in one of its own.

`Facts` and `Status` are plain data, so that they can be sent.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from surefoot.constraints import Controls
from surefoot.decoding import Rollback
from surefoot.engine.engine import Engine
from surefoot.engine.health import Health
from surefoot.engine.journal import Delta, Journal
from surefoot.engine.request import Request
from surefoot.engine.self_check import Agreement
from surefoot.engine.slot import Slot
from surefoot.engine.slot_actions import SlotDone, SlotOrder
from surefoot.engine.totals import Totals
from surefoot.runtime.base import ModelInfo, Tokenizer

Listener = Callable[[Delta], None]
"""Is told what a generation adds; called from another thread than the caller's."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine is; nothing of it changes.

    Attributes:
        info: what the model is.
        vocabulary_size: how many token ids there are.
        slots: how many requests run at once.
        context_length: tokens of context for each.
        rollback: what can be done to undo rejected tokens.
        logit_noise: tolerance of the near-tie rule.
        no_shift: why a context can't be shifted, in words; empty if it can.
        context_shift: whether that is done for requests that say nothing about it.
        drafter: the drafter's name; None for plain decoding.
        max_draft: most draft tokens a round.
        depths: likewise, by the drafters' names, the first to be asked first.
        synthetic: whether drafts are accepted by chance.
        exactness: what is known of width classes, for people; empty if nothing is.
        no_strict: why strict decoding can't be done, in words; None if it can.
        cache: the prompt cache when it was empty; see `PromptCache.describe`.
    """

    info: ModelInfo
    vocabulary_size: int
    slots: int
    context_length: int
    rollback: Rollback
    logit_noise: float
    no_shift: str
    context_shift: bool
    drafter: str | None
    max_draft: int
    depths: dict[str, int]
    synthetic: bool
    exactness: dict[str, Any]
    no_strict: str | None
    cache: dict[str, Any]

    @classmethod
    def of(cls, engine: Engine) -> "Facts":
        """Those of an engine."""
        runtime = engine.runtime
        return cls(
            info=runtime.info,
            vocabulary_size=runtime.vocabulary_size,
            slots=runtime.slots,
            context_length=runtime.context_length,
            rollback=runtime.rollback,
            logit_noise=runtime.logit_noise,
            no_shift=runtime.shift_refusal,
            context_shift=engine.context_shift,
            drafter=None if engine.drafter is None else engine.drafter.name,
            max_draft=engine.max_draft,
            depths=dict(engine.depths),
            synthetic=engine.synthetic is not None,
            exactness=dict(engine.exactness),
            no_strict=engine.no_strict,
            cache=engine.cache.describe(),
        )


class SlotFacts(NamedTuple):
    """A slot.

    Attributes:
        tokens: how many tokens its memory holds.
        request: the request in it; None if it is idle.
    """

    tokens: int
    request: int | None

    @classmethod
    def of(cls, slot: Slot) -> "SlotFacts":
        """How a slot is now."""
        generation = slot.generation
        return cls(slot.memory.length, None if generation is None else generation.id)


@dataclass(frozen=True, slots=True)
class Figures:
    """What an engine counts, since it was made.

    Attributes:
        rounds: rounds played.
        passes: forward passes.
        graph_runs: graph runs of those.
        timed_out: requests that have waited for a slot too long.
        agreement: how self-checks went; None if there are none.
        speculation_off: requests that the watchdog took speculation from, by cause.
        rebuilds: memories that it had built again, by how the next choice compared.
        cache: the prompt cache; see `PromptCache.describe`.
        slots: what the main lane's slots hold, by their numbers.
    """

    rounds: int = 0
    passes: int = 0
    graph_runs: int = 0
    timed_out: int = 0
    agreement: Agreement | None = None
    speculation_off: dict[str, int] = field(default_factory=dict)
    rebuilds: dict[str, int] = field(default_factory=dict)
    cache: dict[str, Any] = field(default_factory=dict)
    slots: list[SlotFacts] = field(default_factory=list)

    @classmethod
    def of(cls, engine: Engine) -> "Figures":
        """Those of an engine, as they are now; for its own thread."""
        return cls(
            rounds=engine.rounds,
            passes=sum(lane.runtime.passes for lane in engine.lanes),
            graph_runs=engine.graph_runs,
            timed_out=engine.queue.timed_out,
            agreement=None if engine.self_check is None else engine.self_check.agreement.copy(),
            speculation_off=dict(engine.totals.speculation_off),
            rebuilds=dict(engine.totals.rebuilds),
            cache=engine.cache.describe(),
            slots=[SlotFacts.of(slot) for slot in engine.main.slots],
        )

    def then(self, later: "Figures") -> "Figures":
        """The figures of an engine and of the one that took its place, with the cache of that."""
        agreement = self.agreement or later.agreement
        if self.agreement is not None and later.agreement is not None:
            agreement = self.agreement.plus(later.agreement)
        return Figures(
            rounds=self.rounds + later.rounds,
            passes=self.passes + later.passes,
            graph_runs=self.graph_runs + later.graph_runs,
            timed_out=self.timed_out + later.timed_out,
            agreement=agreement,
            speculation_off=_sums(self.speculation_off, later.speculation_off),
            rebuilds=_sums(self.rebuilds, later.rebuilds),
            cache=later.cache or self.cache,
            slots=later.slots or self.slots,
        )


def _sums(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return dict(Counter(one) + Counter(other))


@dataclass(frozen=True, slots=True)
class Status:
    """How an engine is.

    Attributes:
        health: how its slots are, and why that is bad if it is.
        figures: what it has counted since the server's start.
        totals: sums over the requests that ended.
        refused: requests that found the queue full.
        restarts: how often its process was started again.
    """

    health: Health
    figures: Figures
    totals: Totals
    refused: int = 0
    restarts: int = 0


class EngineHandle(Protocol):
    """An engine at work; its methods may be called from any thread."""

    @property
    def facts(self) -> Facts:
        """What the engine is."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    def controls(self) -> Controls:
        """Makes controls for the model's vocabulary.

        Raises:
            TokenizerMissingError: the model file has no tokenizer.
        """

    @property
    def stopping(self) -> bool:
        """Whether no more requests are taken."""

    @property
    def open(self) -> int:
        """How many generations are not over."""

    def status(self) -> Status:
        """How the engine is now."""

    def submit_group(
        self, requests: Series[Request], listeners: Series[Listener]
    ) -> Series[Journal]:
        """Queue requests that differ in their seeds alone; the prompt is absorbed once for all.

        Raises:
            SurefootError: they can't be served; nothing has been queued.
            EngineStoppedError: no more requests are taken.
        """

    def cancel(self, generation: Journal) -> None:
        """Ask for a generation's end; its slot is free after at most one round."""

    def slot(self, order: SlotOrder) -> SlotDone:
        """Save, restore or erase a slot; returns when that is done.

        Raises:
            SlotError: it can't be done; the slot is as it was.
            EngineStoppedError: the engine stops.
        """

    def refuse(self) -> None:
        """Take no more requests; what is running and waiting goes on."""

    def stop(self) -> None:
        """Fail what is running and waiting, and wait for the end; again does nothing."""
