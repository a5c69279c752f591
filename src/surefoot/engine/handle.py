"""What a server needs of an engine, wherever that runs: in this process, or in one of its own.

`Facts` and `Status` are plain data, so that they can be sent.
"""

from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass, field
from typing import Any, Protocol

from surefoot.constraints import Controls
from surefoot.decoding import Rollback
from surefoot.engine.engine import Engine
from surefoot.engine.journal import Delta, Journal
from surefoot.engine.request import Request
from surefoot.engine.self_check import Agreement
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
        drafter: the drafter's name; None for plain decoding.
        max_draft: most draft tokens a round.
        synthetic: whether drafts are accepted by chance.
        exactness: what is known of width classes, for people; empty if nothing is.
        no_strict: why strict decoding can't be done, in words; None if it can.
    """

    info: ModelInfo
    vocabulary_size: int
    slots: int
    context_length: int
    rollback: Rollback
    logit_noise: float
    drafter: str | None
    max_draft: int
    synthetic: bool
    exactness: dict[str, Any]
    no_strict: str | None

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
            drafter=None if engine.drafter is None else engine.drafter.name,
            max_draft=engine.max_draft,
            synthetic=engine.synthetic is not None,
            exactness=dict(engine.exactness),
            no_strict=engine.no_strict,
        )


@dataclass(frozen=True, slots=True)
class Status:
    """How an engine is.

    Attributes:
        slots: how many slots there are, those of lanes for strict requests included.
        busy: those in use.
        waiting: generations that wait for one.
        rounds: rounds played since the start.
        passes: forward passes since the start.
        totals: sums over the requests that ended.
        agreement: how self-checks went; None if there are none.
        restarting: why there is no engine just now, in words; None if there is one.
        restarts: how often its process was started again.
    """

    slots: int
    busy: int
    waiting: int
    rounds: int
    passes: int
    totals: Totals = field(default_factory=Totals)
    agreement: Agreement | None = None
    restarting: str | None = None
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

    def refuse(self) -> None:
        """Take no more requests; what is running and waiting goes on."""

    def stop(self) -> None:
        """Fail what is running and waiting, and wait for the end; again does nothing."""
