"""Forward passes: checked, laid out, run, and their logits found.

libllama aborts the process on misuse, so every limit is checked before it is called.
"""

from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass
from operator import itemgetter
from time import perf_counter
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import DecodeError, Feed, Rows, Widths
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.batch import Batch
from surefoot.runtime.libllama.memory import SequenceMemory
from surefoot.runtime.pieces import Cutting

_FAILURES = {
    1: "the context has no free cells left for it",
    2: "it was aborted",
    -1: "libllama found the batch invalid",
    -2: "libllama could not prepare it, or had no memory for it",
    -3: "the computation failed",
}
_MOST_BUFFERS = 64
_NO_CELLS = 1
_UNTOUCHED = (_NO_CELLS, -1)
"""After these the memory is as before; after others parts of the pass may have been absorbed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pass must not exceed.

    Attributes:
        tokens: tokens in a pass.
        outputs: tokens with logits in a pass.
        sequences: sequence ids are below this number.
        length: tokens that a sequence may have absorbed after a pass.
        vocabulary: token ids are below this number.
        widths: the widths that a pass may have, with one sequence in it, and so many of its tokens
            may have outputs; None for any.
    """

    tokens: int
    outputs: int
    sequences: int
    length: int
    vocabulary: int
    widths: Widths | None = None


class Passes:
    """Runs passes on a context.

    Args:
        context: libllama's handle.
        memory: the context's.
        cutting: how libllama cuts a pass into graph runs.
        limits: what a pass must not exceed.
        row_size: length of the hidden row that goes in with each token; 0 if none does.

    Attributes:
        count: passes so far that ran.
        graph_runs: graph runs so far.
        limits: as given.
        native_seconds: time spent inside libllama by passes so far.
        make_room: called when a pass finds no free cells; see `Runtime`.
    """

    def __init__(
        self,
        context: int,
        memory: SequenceMemory,
        cutting: Cutting,
        limits: Limits,
        row_size: int = 0,
    ) -> None:
        self._context = context
        self._memory = memory
        self._cutting = cutting
        self.limits = limits
        self._batch = Batch(
            limits.tokens, limits.length, limits.sequences, limits.vocabulary, row_size
        )
        self._logits = np.empty((0, limits.vocabulary), np.float32)
        self._logits_address = 0
        self._row_buffers: dict[int, Rows] = {}
        self.make_room: Callable[[], bool] | None = None
        self.forget_counts()

    def forget_counts(self) -> None:
        """Start counting anew."""
        self.count = 0
        self.graph_runs = 0
        self.native_seconds = 0.0

    def run(self, feeds: Series[Feed], rows: Series[Rows] = ()) -> list[NDArray[np.float32]]:
        """Run one pass; see `Target.decode`.

        Args:
            feeds: the feeds.
            rows: for each of them the hidden rows that go in, shape (tokens, row size), if rows
                do; then the feeds must be in order of their ids.

        Returns:
            Views into libllama's buffer, in the order of the feeds.

        Raises:
            DecodeError: the pass failed, or was refused. If refused, nothing has changed.
        """
        # In order of their ids libllama can put sequences side by side that otherwise it can't.
        placed = feeds if len(feeds) == 1 else sorted(feeds, key=itemgetter(0))
        outputs = self._check(placed)
        self._batch.fill(placed, rows)
        logits = self._compute(placed, outputs)
        widths = {feed.sequence: len(feed.tokens) for feed in placed}
        self.count += 1
        self.graph_runs += self._cutting.runs(widths)
        if self._cutting.snapshots:
            self._memory.absorbed(widths, self._cutting.undisturbed(widths))
        return _in_order(feeds, placed, [feed.outputs for feed in placed], logits)

    def next_rows(self, feeds: Series[Feed], row_size: int) -> list[Rows]:
        """The hidden rows of the last pass, for every token.

        Args:
            feeds: those of the pass, in the order in which they were given.
            row_size: length of a row.

        Returns:
            Read-only views into libllama's buffer, in the order of the feeds.
        """
        placed = feeds if len(feeds) == 1 else sorted(feeds, key=itemgetter(0))
        widths = [len(feed.tokens) for feed in placed]
        return _in_order(feeds, placed, widths, self.raw_rows(sum(widths), row_size))

    def raw_rows(self, count: int, row_size: int) -> Rows:
        """The first rows in libllama's buffer of them, which are in the batch's order.

        The buffer lies behind that of the logits: where, depends on how many of those there are.

        Raises:
            DecodeError: there are none.
        """
        pointer = binding.llama_get_embeddings_nextn(self._context)
        address = binding.address_of(pointer)
        if not address:
            raise DecodeError("libllama has no hidden rows of its last pass")
        rows = self._row_buffers.get(address)
        if rows is None or count > len(rows):
            if len(self._row_buffers) == _MOST_BUFFERS:
                self._row_buffers.clear()
            rows = np.ctypeslib.as_array(pointer, (count, row_size))
            rows.flags.writeable = False
            self._row_buffers[address] = rows
        return rows[:count]

    def _check(self, feeds: Series[Feed]) -> int:
        """Refuse what libllama would abort over or get wrong; return the number of outputs."""
        limits = self.limits
        total = total_outputs = 0
        previous = -1
        for sequence, tokens, start, outputs, _ in feeds:
            width = len(tokens)
            if not previous < sequence < limits.sequences:
                raise DecodeError(
                    f"pass refused: sequence {sequence} is there twice, or is none of the "
                    f"{limits.sequences} that there are"
                )
            previous = sequence
            if not 0 <= outputs <= width or width == 0:
                raise DecodeError(
                    f"pass refused: sequence {sequence} has {width} tokens and wants logits of "
                    f"the last {outputs}"
                )
            held = self._memory.length(sequence)
            if start != held:
                raise DecodeError(
                    f"pass refused: the tokens of sequence {sequence} start at position {start}, "
                    f"but its memory holds {held} tokens"
                )
            if start + width > limits.length:
                raise DecodeError(
                    f"pass refused: sequence {sequence} would grow to {start + width} tokens; "
                    f"there is room for {limits.length}, drafts included"
                )
            total += width
            total_outputs += outputs
        if limits.widths and (len(feeds) > 1 or not limits.widths.hold(total, total_outputs)):
            raise DecodeError(
                f"pass refused: it has {total} tokens of {len(feeds)} sequences, {total_outputs} "
                f"of them with outputs; a strict pass has one sequence, widths of {limits.widths}, "
                "and as many outputs or none"
            )
        if not 0 < total <= limits.tokens:
            raise DecodeError(
                f"pass refused: {total} tokens in one pass, where 1 to {limits.tokens} are "
                "possible (batch size)"
            )
        if total_outputs > limits.outputs:
            raise DecodeError(
                f"pass refused: logits of {total_outputs} tokens wanted in one pass; this context "
                f"has room for {limits.outputs} (slots and longest draft decide)"
            )
        return total_outputs

    def _compute(self, feeds: Series[Feed], outputs: int) -> NDArray[np.float32]:
        started = perf_counter()
        code = binding.llama_decode(self._context, self._batch.structure)
        while code == _NO_CELLS and self.make_room is not None and self.make_room():
            code = binding.llama_decode(self._context, self._batch.structure)
        # To ask for the logits is to wait for them. They lie in the batch's order, whatever
        # pieces libllama cut the pass into.
        pointer = binding.llama_get_logits(self._context) if code == 0 else None
        self.native_seconds += perf_counter() - started
        if code != 0:
            self._fail(code, feeds)
        return self._rows(pointer, outputs)

    def _fail(self, code: int, feeds: Series[Feed]) -> NoReturn:
        """Raise for a return code, after clearing away what the pass may have left behind."""
        if code not in _UNTOUCHED:
            for feed in feeds:
                self._memory.drop(feed.sequence)
        tokens = sum(len(feed.tokens) for feed in feeds)
        reason = _FAILURES.get(code, "libllama gave no reason")
        raise DecodeError(
            f"a pass of {tokens} tokens for {len(feeds)} sequences failed: {reason} (code {code})"
        )

    def _rows(self, pointer: binding.Structure, outputs: int) -> NDArray[np.float32]:
        """The logits of a pass as a view of libllama's buffer."""
        if not outputs:
            return self._logits[:0]
        address = binding.address_of(pointer)
        if not address:
            raise DecodeError(f"libllama has no logits of its last pass, which had {outputs}")
        # The buffer moves when it grows, and only then.
        if address != self._logits_address or outputs > len(self._logits):
            self._logits = np.ctypeslib.as_array(pointer, (outputs, self.limits.vocabulary))
            self._logits.flags.writeable = False
            self._logits_address = address
        return self._logits[:outputs]


def _in_order(
    feeds: Series[Feed], placed: Series[Feed], lengths: Series[int], rows: NDArray[np.float32]
) -> list[NDArray[np.float32]]:
    """Share rows out to the feeds.

    Args:
        feeds: the feeds in the order that is wanted.
        placed: the same in the order of the rows.
        lengths: how many rows belong to each of those.
        rows: all rows, one after the other.
    """
    if len(feeds) == 1:
        return [rows]
    found = {}
    begin = 0
    for feed, length in zip(placed, lengths, strict=True):
        found[feed.sequence] = rows[begin : begin + length]
        begin += length
    return [found[feed.sequence] for feed in feeds]
