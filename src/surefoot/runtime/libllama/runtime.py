"""A model that libllama runs, as the rest of surefoot sees it."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import (
    MAX_PENDING,
    DecodeError,
    Feed,
    InvalidParameterError,
    Rollback,
    RowWatcher,
    Widths,
)
from surefoot.runtime.base import ModelInfo, ModelLoadError
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.context import ContextPlan, context_parameters, open_context
from surefoot.runtime.libllama.errors import RuntimeClosedError
from surefoot.runtime.libllama.head_file import HeadFile
from surefoot.runtime.libllama.identity import identity_of
from surefoot.runtime.libllama.memory import SequenceMemory
from surefoot.runtime.libllama.model import Model
from surefoot.runtime.libllama.need import check_memory
from surefoot.runtime.libllama.passes import Limits, Passes
from surefoot.runtime.libllama.probe import probe_rollback
from surefoot.runtime.libllama.settings import LoadSettings
from surefoot.runtime.libllama.shift import probe_shift
from surefoot.runtime.libllama.states import States
from surefoot.runtime.libllama.tokenizer import LibllamaTokenizer
from surefoot.runtime.libllama.width_report import WidthReport
from surefoot.runtime.pieces import Cutting


class LibllamaRuntime:
    """A `Runtime` over libllama; `load` makes them. For use from one thread at a time.

    Args:
        model: the model, which is closed together with the runtime.
        context: libllama's handle of a context for that model, which is freed with it.
        plan: the context's sizes.
        settings: how they were loaded.
        logit_noise: tolerance of the near-tie rule.
        head_problem: see the attribute.
        widths: see the property.

    Attributes:
        model: the model.
        plan: the context's sizes.
        settings: how they were loaded.
        head_problem: why the model's own multi-token-prediction heads can't be used, in words;
            None if they can.
        shift_refusal: why tokens can't be taken out of the middle of a sequence, in words; empty if
            they can.

    Raises:
        DecodeError: the model can't run a few tokens. Nothing has been freed then.
    """

    def __init__(
        self,
        model: Model,
        context: int,
        plan: ContextPlan,
        settings: LoadSettings,
        logit_noise: float,
        head_problem: str | None,
        widths: Widths | None = None,
    ) -> None:
        self._context: int | None = context
        self.model = model
        self.plan = plan
        self.settings = settings
        self.head_problem = head_problem
        self._logit_noise = logit_noise
        self._widths = widths
        self._watchers: list[RowWatcher] = []
        self._dependents: list[Callable[[], None]] = []
        slots = settings.slots
        recurrent = model.is_recurrent or model.is_hybrid
        snapshots = binding.llama_n_rs_seq(context)
        limits = Limits(
            tokens=binding.llama_n_batch(context),
            outputs=min(plan.outputs, binding.llama_n_batch(context)),
            sequences=plan.sequences,
            length=plan.room,
            vocabulary=model.vocabulary_size,
        )
        cutting = Cutting(
            most=binding.llama_n_ubatch(context),
            recurrent=recurrent,
            consecutive=recurrent and not model.is_hybrid,
            snapshots=snapshots,
        )
        self._limits = limits
        self._cutting = cutting
        self._memory = SequenceMemory(
            binding.llama_get_memory(context) or 0,
            sequences=limits.sequences,
            snapshots=snapshots,
            # With recurrent layers libllama tells the lowest position of those, not of attention.
            window=0 if recurrent else model.window,
        )
        self._passes = Passes(context, self._memory, cutting, limits)
        self._states = States(context, self._memory)
        self._memory.rollback = probe_rollback(self, spare=slots, snapshots=snapshots)
        self.shift_refusal = probe_shift(
            self, self._memory, binding.llama_get_memory(context) or 0, model.window
        )
        self._passes.limits = replace(limits, widths=widths)
        self._passes.count = self._passes.graph_runs = 0

    @property
    def info(self) -> ModelInfo:
        """What the model is."""
        return self.model.info

    @property
    def tokenizer(self) -> LibllamaTokenizer:
        """The model's tokenizer."""
        return self.model.tokenizer

    @property
    def rollback(self) -> Rollback:
        """What can be done to undo rejected tokens, as it was found out at load."""
        return self._memory.rollback or Rollback(cut=0, fork=False)

    @property
    def make_room(self) -> Callable[[], bool] | None:
        """Called when a pass finds no free cells; see `Runtime`."""
        return self._passes.make_room

    @make_room.setter
    def make_room(self, make_room: Callable[[], bool] | None) -> None:
        self._passes.make_room = make_room

    @property
    def checkpoints(self) -> int:
        """How many forks can be kept, beside those of the slots."""
        return self.plan.checkpoints if self.rollback.fork else 0

    @property
    def forgets(self) -> bool:
        """Whether memory can't go back to any length that it had."""
        return self.rollback.cut is not None or self.model.window > 0

    @property
    def fork_bytes(self) -> int:
        """Bytes that each kept fork takes, whatever its length."""
        return self.plan.fork_bytes

    @property
    def cell_bytes(self) -> int:
        """Bytes that it takes for each token that it doesn't share."""
        return self.plan.cell_bytes

    @cached_property
    def identity(self) -> str:
        """The model's file, how its memory is laid out, and the build of libllama."""
        return identity_of(self.settings, self.model)

    @property
    def logit_noise(self) -> float:
        """Largest difference that batch width and memory layout make to a logit."""
        return self._logit_noise

    @property
    def widths(self) -> Widths | None:
        """The widths to which every pass is held, by strict decoding; None for any width."""
        return self._widths

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are; logits have this length."""
        return self._limits.vocabulary

    @property
    def slots(self) -> int:
        """How many live sequences there is memory for."""
        return self.settings.slots

    @property
    def context_length(self) -> int:
        """Tokens of context for each live sequence."""
        return self.plan.context_length

    @property
    def batch_size(self) -> int:
        """Most tokens in one forward pass."""
        return self._limits.tokens

    @property
    def micro_batch_size(self) -> int:
        """Most tokens in one graph run."""
        return self._cutting.most

    @property
    def most_outputs(self) -> int:
        """Most tokens with logits in one forward pass."""
        return self._limits.outputs

    @property
    def passes(self) -> int:
        """Forward passes so far: calls of `decode` that ran."""
        return self._passes.count

    @property
    def native_seconds(self) -> float:
        """Time spent inside libllama by passes so far."""
        return self._passes.native_seconds

    @property
    def graph_runs(self) -> int:
        """Graph runs so far, by libllama's rules for cutting a pass; see `pieces`."""
        return self._passes.graph_runs

    def graph_runs_of(self, widths: Mapping[int, int]) -> int:
        """How many graph runs a pass of such widths would take; see `pieces`."""
        return self._cutting.runs(dict(sorted(widths.items())))

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        """Run one forward pass; see `Target.decode`.

        Returns:
            Logits in the order of the feeds: read-only views into libllama's buffer, good until
            the next call.

        Raises:
            DecodeError: the pass failed, or was refused. If refused, nothing has changed.
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        logits = self._passes.run(feeds)
        if self._watchers:
            try:
                rows = self._passes.next_rows(feeds, self.model.row_size)
            except DecodeError:
                self._hand_out_rows()  # lest libllama has missed that they are wanted
                raise
            for watcher in self._watchers:
                watcher(feeds, rows)
        return logits

    def watch(self, watcher: RowWatcher) -> None:
        """Let someone have a hidden row for every token of each pass, until told otherwise.

        The rows are those that multi-token-prediction heads are fed: the last layer's output at
        each token. While nobody watches, libllama does not hand them out.

        Args:
            watcher: called after each pass with its feeds and, for each of them, read-only rows of
                shape (tokens, row size), which are good until the next pass.

        Raises:
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        self._watchers.append(watcher)
        self._hand_out_rows()

    def unwatch(self, watcher: RowWatcher) -> None:
        """Have done with `watch`; no error if it is not watching."""
        self._watchers = [other for other in self._watchers if other != watcher]
        if self._context is not None:
            self._hand_out_rows()

    def _hand_out_rows(self) -> None:
        binding.llama_set_embeddings_nextn(self.handle, bool(self._watchers), False)

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """Let `copy` share what `source` absorbed at [start, end); see `Target.fork`.

        Raises:
            RollbackRefusedError: see `SequenceMemory.fork`.
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        self._memory.fork(source, copy, start, end)

    def cut(self, sequence: int, length: int) -> bool:
        """Forget all but the first `length` tokens; False, and nothing changed, if it can't.

        Raises:
            RollbackRefusedError: libllama said that it had done so, and has not.
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        return self._memory.cut(sequence, length)

    def shift(self, sequence: int, keep: int, discard: int) -> bool:
        """Forget tokens in the middle of a sequence; see `Runtime.shift`.

        Raises:
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        return self._memory.shift(sequence, keep, discard)

    def drop(self, sequence: int) -> None:
        """Forget the sequence altogether.

        Raises:
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        self._memory.drop(sequence)

    def state_size(self, sequence: int) -> int:
        """Bytes that `save_state` will give.

        Raises:
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        return self._states.size(sequence)

    def save_state(self, sequence: int) -> bytes:
        """All that a sequence's memory holds.

        Raises:
            StateError: see `States.save`.
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        return self._states.save(sequence)

    def load_state(self, sequence: int, state: bytes) -> None:
        """Put a saved state back; see `States.load`.

        Raises:
            StateError: libllama does not take it; the sequence is empty then.
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        self._states.load(sequence, state)

    def sibling(self, widths: Widths | None = None, outputs: int = 0) -> "LibllamaRuntime":
        """Another runtime with the same weights, and memory of its own for one live sequence.

        Its passes depend on nothing that happens here. The weights stay until all are closed.

        Args:
            widths: the widths to which its passes are held; None for any.
            outputs: so many tokens may have outputs in a pass, if that is more than else.

        Raises:
            InvalidParameterError: a width of the class does not fit into one graph run, so that
                libllama would cut it into two of other widths.
            ModelLoadError: there is no memory for it, or its first pass failed.
            RuntimeClosedError: the model has been closed.
        """
        self._check_open()
        most = min(self.settings.micro_batch_size, self.settings.batch_size)
        if widths and widths.most > most:
            raise InvalidParameterError(
                "widths",
                f"must be at most {most} tokens, which is what a graph run holds (-ub), "
                f"not {widths.most}",
            )
        fillers = widths.most_fillers if widths else 0
        snapshots = self.settings.snapshots if self.settings.snapshots >= fillers else 0
        settings = replace(self.settings, slots=1, snapshots=snapshots, checkpoint_bytes=0)
        plan = ContextPlan.of(settings, self.model.training_context)
        plan = replace(
            plan,
            context_length=self.context_length,
            room=self.plan.room + fillers,
            cells=self.plan.room + fillers,
            outputs=max(plan.outputs, outputs, widths.most if widths else 0),
        )
        check_memory(settings, plan, self.model, HeadFile.of(settings.file))
        context = open_context(self.model, context_parameters(settings, plan, self.model))
        model = self.model.share()
        try:
            return LibllamaRuntime(
                model, context, plan, settings, self._logit_noise, self.head_problem, widths
            )
        except BaseException as error:
            binding.llama_free(context)
            model.close()
            if isinstance(error, DecodeError):
                raise ModelLoadError(
                    f"can't run {self.info.name} in one more context: its first pass failed "
                    f"({error}). Run with -v to see what libllama has to say."
                ) from error
            raise

    def use_noise(self, report: WidthReport) -> None:
        """Take the near-tie rule's tolerance from a measurement, unless the settings give one."""
        if self.settings.logit_noise is None:
            widest = self.slots * (self.settings.longest_draft + 1) + MAX_PENDING
            self._logit_noise = report.tolerance(widest, self._logit_noise)

    @property
    def handle(self) -> int:
        """libllama's handle of the context.

        Raises:
            RuntimeClosedError: the model has been closed.
        """
        if self._context is None:
            raise RuntimeClosedError
        return self._context

    def close_first(self, close: Callable[[], None]) -> None:
        """Let something that uses the context be closed before it is; it may be closed twice."""
        self._dependents.append(close)

    def close(self) -> None:
        """Free the model and its memory. Further calls are errors; closing twice is not."""
        if self._context is not None:
            for close in reversed(self._dependents):
                close()
            binding.llama_free(self._context)
            self._context = None
            self.model.close()

    def _check_open(self) -> None:
        if self._context is None:
            raise RuntimeClosedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
