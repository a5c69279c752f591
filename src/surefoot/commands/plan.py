"""From options to an engine that runs: what is to be loaded, checked first and opened later."""

import argparse
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from surefoot.commands.cache_options import cache_settings
from surefoot.commands.lanes import lanes_for
from surefoot.commands.model_options import load_settings
from surefoot.commands.options import as_options, sampling
from surefoot.commands.recording import recorded
from surefoot.commands.speculation import drafting_for, settings_of, uses_own_head
from surefoot.decoding import Sampling, SyntheticAcceptance
from surefoot.drafting.settings import SpeculationSettings
from surefoot.drafting.synthetic import synthetic_acceptance
from surefoot.engine import PATIENCE, STALL_SECONDS, Engine, QueueSettings
from surefoot.engine.cache import CacheSettings
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """An engine as the options want it, with nothing loaded yet.

    Attributes:
        options: with those of a model and of speculation.
        settings: how to load the target.
        sampling: how tokens are chosen.
        speculation: how to draft.
        synthetic: what judges drafts by chance; None for real verification.
        measure: whether width classes are measured, if they have not been yet.
        cache: the prompt cache's budgets.
    """

    options: argparse.Namespace
    settings: LoadSettings
    sampling: Sampling
    speculation: SpeculationSettings
    synthetic: SyntheticAcceptance | None
    measure: bool
    cache: CacheSettings

    @classmethod
    def of(cls, options: argparse.Namespace, slots: int) -> "EnginePlan":
        """Read the options.

        Raises:
            InvalidParameterError: one is outside its range.
        """
        asked = sampling(options)
        speculation = settings_of(options)
        synthetic = synthetic_acceptance(speculation)
        mtp = uses_own_head(speculation)
        cache = cache_settings(options)
        settings = load_settings(
            options,
            slots,
            longest_draft=speculation.n_max,
            mtp=mtp,
            checkpoint_bytes=cache.device,
        )
        measure = options.command == "serve" or getattr(options, "exact", "fast") == "strict"
        return cls(options, settings, asked, speculation, synthetic, measure, cache)

    @contextmanager
    def open(self, queue: QueueSettings | None = None) -> Iterator[Engine]:
        """Load all models; they are closed at the end of the context.

        Args:
            queue: limits of the engine's queue; None for none.

        Raises:
            ModelLoadError: a model can't be loaded.
            InvalidParameterError: a token that gets a bias is none; see also `drafting_for`.
            VocabularyMismatchError: see there.
        """
        with (
            closing(self._load()) as runtime,
            drafting_for(runtime, self.speculation, self.options) as drafting,
            lanes_for(runtime, drafting, measure=self.measure) as lanes,
        ):
            with as_options():
                engine = Engine(
                    runtime,
                    drafting.drafter,
                    self.speculation.n_max,
                    self.synthetic,
                    lanes,
                    getattr(self.options, "self_check", 0.0),
                    self.cache,
                    queue=queue,
                    context_shift=getattr(self.options, "context_shift", False),
                    patience=getattr(self.options, "watchdog_rounds", PATIENCE),
                    stall_seconds=getattr(self.options, "stall_seconds", STALL_SECONDS),
                )
            with (
                closing(engine),
                recorded(engine, self.options, self.settings, self.speculation),
            ):
                yield engine

    def _load(self) -> LibllamaRuntime:
        """The target, if it fits the options that only a loaded model can tell about."""
        runtime = load(self.settings)
        try:
            with as_options():
                self.sampling.check_tokens(runtime.vocabulary_size)
        except BaseException:
            runtime.close()
            raise
        trained = runtime.info.training_context
        if 0 < trained < runtime.context_length:
            _LOG.warning(
                "-c gives each slot %d tokens, and %s was trained for %d: text beyond those may "
                "make no sense",
                runtime.context_length,
                runtime.info.name,
                trained,
            )
        return runtime
