"""Multi-token-prediction heads of a model that libllama runs.

They have a context of their own, of libllama's type MTP, on the target's weights or on those of a
file that holds nothing but heads. Each sequence has as many ids in it as there are heads: libllama
keeps the layers of all heads side by side in one cell, but heads that have seen different parts of
a text need cells of their own.
"""

from collections.abc import Sequence as Series
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import numpy as np

from surefoot.decoding import (
    DecodeError,
    Feed,
    HeadFeed,
    HeadOutput,
    Rollback,
    RollbackRefusedError,
    Rows,
    RowWatcher,
    SurefootError,
)
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.context import ContextPlan, context_parameters, open_context
from surefoot.runtime.libllama.errors import RuntimeClosedError
from surefoot.runtime.libllama.head_file import HeadFile
from surefoot.runtime.libllama.memory import SequenceMemory
from surefoot.runtime.libllama.model import Model, model_parameters
from surefoot.runtime.libllama.model_file import check_model_file
from surefoot.runtime.libllama.passes import Limits, Passes
from surefoot.runtime.libllama.runtime import LibllamaRuntime
from surefoot.runtime.libllama.states import States
from surefoot.runtime.libllama.tokenizer import LibllamaTokenizer
from surefoot.runtime.pieces import Cutting


class NoHeadError(SurefootError):
    """There is no head that could draft for a model; the text says why."""


def open_head(runtime: LibllamaRuntime, path: Path | None = None) -> "MtpHead":
    """Open the heads that draft for a model, and try them out.

    They are closed with the runtime, if not before.

    Args:
        runtime: the target. Its own heads need `LoadSettings.mtp`.
        path: a file with heads for it; None for the target's own.

    Raises:
        NoHeadError: there is none that could be used.
        ModelLoadError: the file can't be loaded, or libllama can't make the context.
    """
    if not binding.HAS_NEXT_TOKEN_ROWS:
        raise NoHeadError("this build of libllama is too old to run multi-token-prediction heads")
    if path is None:
        if runtime.head_problem is not None:
            raise NoHeadError(runtime.head_problem)
        return MtpHead(runtime, runtime.model)
    model = _model_of_head(runtime, path)
    try:
        return MtpHead(runtime, model)
    except BaseException:
        model.close()
        raise


def _model_of_head(runtime: LibllamaRuntime, path: Path) -> Model:
    """Load a file with heads, and make sure that they are of the target's kind."""
    check_model_file(path)
    file = HeadFile.of(path)
    if file.problem is not None:
        raise NoHeadError(file.problem)
    settings = runtime.settings
    model = Model(path, model_parameters(file, settings.gpu_layers, settings.load_mode, mtp=True))
    target = runtime.model
    ours, theirs = (
        f"architecture {model.info.architecture} with rows of {model.row_size}"
        for model in (target, model)
    )
    if ours != theirs:
        model.close()
        raise NoHeadError(
            f"the head in {path.name} is made for {theirs}, and {target.info.name} is of {ours}"
        )
    return model


class MtpHead:
    """A `Head` over libllama; `open_head` makes them. For use from one thread at a time.

    Args:
        runtime: the target.
        model: the model with the heads, which is closed with this if it is not the target's own.

    Attributes:
        heads: how many trained heads there are.

    Raises:
        NoHeadError: the heads don't do what they should.
        ModelLoadError: libllama can't make the context.
    """

    def __init__(self, runtime: LibllamaRuntime, model: Model) -> None:
        self._runtime = runtime
        self._model = model
        self.heads = model.heads
        slots = runtime.slots
        most = binding.llama_max_parallel_sequences() // self.heads
        if slots > most:
            raise NoHeadError(
                f"libllama keeps {self.heads} heads for {most} slots at most, and there are {slots}"
            )
        # Forks of the target that are kept take the head's part along, if there are ids for that.
        kept = min(runtime.checkpoints, most - slots)
        self._kept = kept
        plan = ContextPlan(
            context_length=runtime.context_length,
            room=runtime.plan.room,
            cells=runtime.plan.cells * self.heads,
            outputs=(slots + kept) * self.heads,
            sequences=(slots + kept) * self.heads,
        )
        # As in llama-server the types of keys and values are the target's own affair.
        settings = replace(runtime.settings, cache_type_k="f16", cache_type_v="f16")
        parameters = context_parameters(settings, plan, model)
        parameters.ctx_type = binding.CONTEXT_TYPE_MTP
        parameters.ctx_other = runtime.handle
        parameters.n_rs_seq = 0
        parameters.swa_full = True
        context = open_context(model, parameters)
        self._context: int | None = context
        try:
            self._set_up(context, plan)
        except BaseException:
            self.close()
            raise
        runtime.close_first(self.close)

    @property
    def passes(self) -> int:
        """Passes so far."""
        return self._passes.count

    @property
    def tokenizer(self) -> LibllamaTokenizer:
        """The tokenizer of the model with the heads."""
        return self._model.tokenizer

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are; logits have this length."""
        return self._limits.vocabulary

    @property
    def batch_size(self) -> int:
        """Most tokens in one pass."""
        return self._limits.tokens

    @property
    def room(self) -> int:
        """Most entries of a sequence."""
        return self._limits.length

    def watch(self, watcher: RowWatcher) -> None:
        """Let someone have the target's rows; see `LibllamaRuntime.watch`."""
        self._runtime.watch(watcher)

    def unwatch(self, watcher: RowWatcher) -> None:
        """Have done with it."""
        self._runtime.unwatch(watcher)

    def decode(self, feeds: Series[HeadFeed], head: int = 0) -> list[HeadOutput | None]:
        """Run one pass through one of the heads; see `Head.decode`.

        Raises:
            DecodeError: the pass failed, or was refused. If refused, nothing has changed.
            RuntimeClosedError: the head or its target has been closed.
        """
        self._select(head)
        placed = sorted(feeds, key=itemgetter(0))
        plain = [
            Feed(self._id(feed.sequence, head), feed.tokens, feed.start, int(feed.output))
            for feed in placed
        ]
        for feed in placed:
            wanted = (len(feed.tokens), self._model.row_size)
            if feed.rows.shape != wanted:
                raise DecodeError(
                    f"pass refused: rows of shape {feed.rows.shape} for sequence {feed.sequence}, "
                    f"where {wanted} is needed"
                )
        logits = self._passes.run(plain, [feed.rows for feed in placed])
        rows = self._rows(plain)
        outputs = {
            feed.sequence: HeadOutput(logits[i][0], rows[i]) if feed.output else None
            for i, feed in enumerate(placed)
        }
        return [outputs[feed.sequence] for feed in feeds]

    def length(self, sequence: int, head: int = 0) -> int:
        """How many entries a head holds of a sequence."""
        self._select(head)
        return self._memory.length(self._id(sequence, head))

    def cut(self, sequence: int, length: int, head: int = 0) -> None:
        """Forget all but the first `length` entries of a sequence; there may be fewer.

        Raises:
            RollbackRefusedError: the memory did not go back, and must be taken as unknown.
            RuntimeClosedError: the head or its target has been closed.
        """
        self._select(head)
        entry = self._id(sequence, head)
        if self._memory.length(entry) > length and not self._memory.cut(entry, length):
            raise RollbackRefusedError(
                f"the head's memory of sequence {sequence} did not go back to {length} entries"
            )

    def fork(self, source: int, copy: int, length: int, head: int = 0) -> None:
        """Let a sequence begin with the first entries of another one, which it shares.

        Raises:
            RollbackRefusedError: the source is not as long as that.
            DecodeError: there are no ids for one of them.
            RuntimeClosedError: the head or its target has been closed.
        """
        self._select(head)
        entry, other = self._id(source, head), self._id(copy, head)
        self._memory.drop(other)
        self._memory.fork(entry, other, 0, length)

    def save(self, sequence: int, head: int = 0) -> bytes:
        """All entries of a sequence.

        Raises:
            StateError: libllama did not give them.
            RuntimeClosedError: the head or its target has been closed.
        """
        self._select(head)
        return self._states.save(self._id(sequence, head))

    def load(self, sequence: int, entries: bytes, head: int = 0) -> None:
        """Put saved entries back in place of what a sequence holds.

        Raises:
            StateError: libllama does not take them. The sequence has none then.
            RuntimeClosedError: the head or its target has been closed.
        """
        self._select(head)
        self._states.load(self._id(sequence, head), entries)

    def close(self) -> None:
        """Free the heads' memory, and their weights if they are not the target's; twice is fine."""
        if self._context is not None:
            binding.llama_free(self._context)
            self._context = None
            if self._model is not self._runtime.model:
                self._model.close()

    def _set_up(self, context: int, plan: ContextPlan) -> None:
        """Make what runs passes on the context, and try the heads out."""
        limits = Limits(
            tokens=binding.llama_n_batch(context),
            outputs=plan.outputs,
            sequences=plan.sequences,
            length=plan.room,
            vocabulary=self._model.vocabulary_size,
        )
        self._limits = limits
        self._memory = SequenceMemory(
            binding.llama_get_memory(context) or 0,
            sequences=limits.sequences,
            snapshots=0,
            window=0,
        )
        self._memory.rollback = Rollback(cut=None, fork=False)
        cutting = Cutting(
            most=binding.llama_n_ubatch(context),
            recurrent=False,
            consecutive=False,
            snapshots=0,
        )
        self._passes = Passes(context, self._memory, cutting, limits, self._model.row_size)
        self._states = States(context, self._memory)
        self._selected = 0
        self._want_rows(of_outputs=True)
        self._try_out()

    def _id(self, sequence: int, head: int) -> int:
        """The head's own id of one of the target's sequences: a slot's, or a kept fork's."""
        slots = self._runtime.slots
        kept = range(2 * slots, 2 * slots + self._kept)
        if sequence not in kept and not 0 <= sequence < slots:
            raise DecodeError(f"the head has no memory for sequence {sequence}")
        index = sequence - slots if sequence in kept else sequence
        return index * self.heads + head

    def _select(self, head: int) -> None:
        """Let the next pass run one of the heads."""
        if self._context is None:
            raise RuntimeClosedError
        if not 0 <= head < self.heads:
            raise DecodeError(f"there is no head {head}: {self.heads} in all")
        if head != self._selected:
            binding.llama_set_nextn_layer_offset(self._context, head)
            self._selected = head

    def _want_rows(self, *, of_outputs: bool) -> None:
        """Have rows handed out: of those tokens that want outputs, or of all."""
        if self._context is None:
            raise RuntimeClosedError
        binding.llama_set_embeddings_nextn(self._context, True, of_outputs)
        self._rows_of_outputs = of_outputs

    def _rows(self, feeds: Series[Feed]) -> list[Rows]:
        """The head's own row at the last token of each feed."""
        if self._rows_of_outputs:
            count = sum(feed.outputs for feed in feeds)
            ends = np.cumsum([feed.outputs for feed in feeds])
        else:
            count = sum(len(feed.tokens) for feed in feeds)
            ends = np.cumsum([len(feed.tokens) for feed in feeds])
        if not count:
            return [np.empty(0, np.float32)] * len(feeds)
        rows = self._passes.raw_rows(count, self._model.row_size)
        return [rows[end - 1] for end in ends]

    def _try_out(self) -> None:
        """See which rows libllama hands out, and whether its memory can be cut.

        If rows are wanted of outputs only, some architectures' graphs compute those alone. Others
        compute a row for every token, of which libllama then hands out the first ones, wrongly, so
        that rows must be wanted of all tokens; which in turn is an error with the former. Telling
        them apart takes a pass whose only output is its last token.
        """
        name = self._model.info.name
        generator = np.random.default_rng(0)
        rows = generator.standard_normal((3, self._model.row_size), np.float32)
        tokens = [(7919 * (i + 1)) % self.vocabulary_size for i in range(3)]
        try:
            first = self._tried(tokens[:1], rows[:1], 0)
            self.cut(0, 0)
            together = self._tried(tokens, rows, 0)
            self.cut(0, 2)
            last = self._tried(tokens[2:], rows[2:], 2)
            self.cut(0, 0)
        except (DecodeError, RollbackRefusedError) as error:
            raise NoHeadError(f"the head of {name} can't be run: {error}") from None
        yardstick = _distance(first.logits, last.logits)
        if not _distance(together.logits, last.logits) < yardstick / 4:
            raise NoHeadError(
                f"the memory of the head of {name} can't be cut, as it must be to undo drafts"
            )
        right = _distance(together.row, last.row) < _distance(together.row, first.row)
        self._want_rows(of_outputs=right)
        self._passes.forget_counts()

    def _tried(self, tokens: list[int], rows: Rows, start: int) -> HeadOutput:
        (output,) = self.decode([HeadFeed(0, tokens, rows, start, output=True)])
        assert output is not None
        return HeadOutput(output.logits.copy(), output.row.copy())


def _distance(one: Rows, other: Rows) -> float:
    return float(np.sqrt(np.mean(np.square(one - other))))
