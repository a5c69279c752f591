"""From options to an engine that runs: what is to be loaded, checked first and opened later."""

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from surefoot.commands.lanes import lanes_for
from surefoot.commands.options import load_settings
from surefoot.commands.speculation import drafting_for, settings_of, uses_own_head
from surefoot.decoding import SyntheticAcceptance
from surefoot.drafting.settings import SpeculationSettings
from surefoot.drafting.synthetic import synthetic_acceptance
from surefoot.engine import PATIENCE, STALL_SECONDS, Engine
from surefoot.runtime.libllama import LoadSettings, load


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """An engine as the options want it, with nothing loaded yet.

    Attributes:
        options: with those of a model and of speculation.
        settings: how to load the target.
        speculation: how to draft.
        synthetic: what judges drafts by chance; None for real verification.
        measure: whether width classes are measured, if they have not been yet.
    """

    options: argparse.Namespace
    settings: LoadSettings
    speculation: SpeculationSettings
    synthetic: SyntheticAcceptance | None
    measure: bool

    @classmethod
    def of(cls, options: argparse.Namespace, slots: int) -> "EnginePlan":
        """Read the options.

        Raises:
            InvalidParameterError: one is outside its range.
        """
        speculation = settings_of(options)
        synthetic = synthetic_acceptance(speculation)
        mtp = uses_own_head(speculation)
        settings = load_settings(options, slots, longest_draft=speculation.n_max, mtp=mtp)
        measure = options.command == "serve" or getattr(options, "exact", "fast") == "strict"
        return cls(options, settings, speculation, synthetic, measure)

    @contextmanager
    def open(self) -> Iterator[Engine]:
        """Load all models; they are closed at the end of the context.

        Raises:
            ModelLoadError: a model can't be loaded.
            InvalidParameterError, VocabularyMismatchError: see `drafting_for`.
        """
        with (
            closing(load(self.settings)) as runtime,
            drafting_for(runtime, self.speculation, self.options) as drafting,
            lanes_for(runtime, drafting, measure=self.measure) as lanes,
        ):
            engine = Engine(
                runtime,
                drafting.drafter,
                self.speculation.n_max,
                self.synthetic,
                lanes,
                getattr(self.options, "self_check", 0.0),
                getattr(self.options, "watchdog_rounds", PATIENCE),
                getattr(self.options, "stall_seconds", STALL_SECONDS),
            )
            with closing(engine):
                yield engine
