"""`SimulatedRuntime`: the toy model behind the `Runtime` protocol."""

import json
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from collections.abc import Sequence as Series
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import DecodeError, Feed, Rollback, Widths
from surefoot.runtime.base import ModelInfo, StateError
from surefoot.runtime.pieces import Cutting
from surefoot.runtime.simulated.attention import AttentionMemory
from surefoot.runtime.simulated.faults import FaultPlan, fault_plan
from surefoot.runtime.simulated.language import Language
from surefoot.runtime.simulated.memory import (
    HybridMemory,
    MemoryKind,
    MisuseError,
    SimulatedMemory,
)
from surefoot.runtime.simulated.nudges import NearTie, Nudges
from surefoot.runtime.simulated.recurrent import RecurrentMemory
from surefoot.runtime.simulated.tokenizer import CHAT_TEMPLATE, SimulatedTokenizer

_FORK_BYTES = 1000
_CELL_BYTES = 10
"""What a recurrent state and an attention cell are said to take."""


class SimulatedRuntime:
    """A deterministic toy model; all of it follows from the seed.

    With both noises 0 a row of logits depends on the tokens before it alone, bit for bit, however
    they were cut into passes. The rows handed out become NaN at the next pass, as a library's own
    buffer would be overwritten.

    Args:
        memory: the memory's kind. Windowed memory can be cut while the window is still there.
        vocabulary_size: how many token ids there are, from 4 on.
        seed: what everything follows from.
        slots: how many live sequences; as many spare ids follow.
        checkpoints: how many forks can be kept, under the ids behind those.
        cells: attention cells in all; None for as many as are wanted.
        context_length: tokens of context for each live sequence.
        batch_size: most tokens in one pass.
        micro_batch_size: most tokens in one graph run; None for as many as in a pass.
        snapshots: how many tokens of the last pass recurrent or hybrid memory can be cut by.
        can_fork: whether memory can be forked.
        window: how far windowed attention sees, in tokens.
        window_reserve: how many cells behind the window stay until they vanish.
        end_rate: about how often per token a text ends; 0 for hardly ever.
        width_noise: most that the width of a pass (tokens of the sequence in it) moves a logit.
        layout_noise: most that the cells in which a sequence lies move a logit.
        width_classes: smallest width of each class of bit-equal widths, the first being 1; None
            makes each width its own class.
        near_ties: near ties to plant.
        fail_decode: which passes fail, counted from 0; the memory of the sequences in them is
            left scrambled.
        refuse_cut: which calls of `cut` are refused, counted from 0.
        widths: the width class to which strict decoding is held; None for any width.
        decode_seconds: pretended cost of a pass, or a function of the tokens in it.
    """

    def __init__(
        self,
        memory: MemoryKind = "hybrid",
        *,
        vocabulary_size: int = 64,
        seed: int = 0,
        slots: int = 1,
        checkpoints: int = 0,
        cells: int | None = None,
        context_length: int = 4096,
        batch_size: int = 512,
        micro_batch_size: int | None = None,
        snapshots: int = 0,
        can_fork: bool = True,
        window: int = 16,
        window_reserve: int = 64,
        end_rate: float = 1 / 64,
        width_noise: float = 0.0,
        layout_noise: float = 0.0,
        width_classes: Series[int] | None = None,
        near_ties: Iterable[NearTie] = (),
        fail_decode: FaultPlan = (),
        refuse_cut: FaultPlan = (),
        decode_seconds: float | Callable[[int], float] = 0.0,
        widths: Widths | None = None,
    ) -> None:
        self.tokenizer = SimulatedTokenizer(vocabulary_size)
        self.slots = slots
        self.checkpoints = checkpoints if can_fork else 0
        self.make_room: Callable[[], bool] | None = None
        self._cells = cells
        self.context_length = context_length
        self.batch_size = batch_size
        self.micro_batch_size = min(micro_batch_size or batch_size, batch_size)
        self.most_outputs = batch_size
        self.passes = 0
        self.graph_runs = 0
        self.calls = 0
        """Calls of `decode` so far, failed ones included."""
        self.tokens_evaluated = 0
        """Tokens in all passes so far."""
        self._kind = memory
        self._recurs = memory in ("recurrent", "hybrid")
        self.forgets = self._recurs or memory == "windowed"
        self.fork_bytes = _FORK_BYTES if self._recurs else 0
        self.cell_bytes = 0 if memory == "recurrent" else _CELL_BYTES
        self.identity = f"simulated {memory}, {vocabulary_size} tokens, seed {seed}"
        self._seed = seed
        self._snapshots = snapshots if self._recurs else 0
        self._cutting = Cutting(
            most=self.micro_batch_size,
            recurrent=self._recurs,
            consecutive=memory == "recurrent",
            snapshots=self._snapshots,
        )
        self._can_fork = can_fork
        self._memory = _memory(memory, self._snapshots, window, window_reserve)
        self._language = Language(seed, self.tokenizer, end_rate)
        self._nudges = Nudges(
            seed, vocabulary_size, width_noise, layout_noise, width_classes, near_ties
        )
        self._noise = width_noise + layout_noise
        self._widths = widths
        self._fails = fault_plan(fail_decode, seed)
        self._refuses = fault_plan(refuse_cut, seed + 1)
        self._cuts = 0
        self._decode_seconds = decode_seconds
        self._rows = np.empty((0, vocabulary_size), dtype=np.float32)
        self._closed = False

        self._settings: dict[str, Any] = {
            "vocabulary_size": vocabulary_size,
            "seed": seed,
            "context_length": context_length,
            "batch_size": batch_size,
            "micro_batch_size": micro_batch_size,
            "snapshots": snapshots,
            "can_fork": can_fork,
            "window": window,
            "window_reserve": window_reserve,
            "end_rate": end_rate,
            "width_noise": width_noise,
            "layout_noise": layout_noise,
            "width_classes": width_classes,
            "near_ties": near_ties,
            "decode_seconds": decode_seconds,
        }

    def sibling(self, widths: Widths | None = None) -> "SimulatedRuntime":
        """The same model once more, with memory of its own for one live sequence.

        Its passes do not fail.

        Args:
            widths: the widths to which its passes are held; None for any.
        """
        return SimulatedRuntime(self._kind, **self._settings, widths=widths)

    # What it is

    @property
    def info(self) -> ModelInfo:
        """What the model claims to be."""
        end = self._snapshots and f" with {self._snapshots} snapshots"
        return ModelInfo(
            name=f"simulated-{self._kind}",
            architecture="simulated",
            description=f"toy language of {self.vocabulary_size} tokens, seed {self._seed}",
            parameters=0,
            size=0,
            training_context=self.context_length,
            chat_template=CHAT_TEMPLATE,
            bos_text="",
            eos_text="<|im_end|>",
            memory=f"{self._kind}{end or ''}",
        )

    @property
    def widths(self) -> Widths | None:
        """The widths to which every pass is held, by strict decoding; None for any width."""
        return self._widths

    @property
    def vocabulary_size(self) -> int:
        """How many token ids there are."""
        return self.tokenizer.vocabulary_size

    @property
    def rollback(self) -> Rollback:
        """What the memory can do; windowed memory is found cuttable, as a short trial would."""
        return Rollback(cut=self._snapshots if self._recurs else None, fork=self._can_fork)

    @property
    def logit_noise(self) -> float:
        """The stated noise of width and layout together."""
        return self._noise

    # Target

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        """Run one pass; see `Target.decode`.

        Raises:
            MisuseError: a feed does not continue what the memory holds, or breaks a limit.
            DecodeError: the pass was planned to fail, or the context is full.
        """
        self._check(feeds)
        self._rows.fill(np.nan)
        number, self.calls = self.calls, self.calls + 1
        tokens = sum(len(feed.tokens) for feed in feeds)
        self._find_cells(tokens)
        self.tokens_evaluated += tokens
        self._take_time(tokens)
        if self._fails(number):
            self._fail(feeds, number)
        self.passes += 1
        self.graph_runs += self.graph_runs_of({f.sequence: len(f.tokens) for f in feeds})
        self._rows = np.empty(
            (sum(feed.outputs for feed in feeds), self.vocabulary_size), dtype=np.float32
        )
        lent = self._rows.view()
        lent.flags.writeable = False
        logits, start = [], 0
        for feed in feeds:
            end = start + feed.outputs
            self._write(feed, self._rows[start:end])
            logits.append(lent[start:end])
            start = end
        return logits

    def graph_runs_of(self, widths: Mapping[int, int]) -> int:
        """How many graph runs a pass takes, by libllama's rules; see `Cutting`."""
        return self._cutting.runs(dict(sorted(widths.items())))

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """Share a range of cells and the recurrent state; see `Target.fork`."""
        self._check_ids(source, copy)
        if not self._can_fork:
            raise MisuseError("this memory can't be forked")
        self._memory.fork(source, copy, start, end)

    def cut(self, sequence: int, length: int) -> bool:
        """Forget a tail; see `Target.cut`."""
        self._check_ids(sequence)
        number, self._cuts = self._cuts, self._cuts + 1
        return not self._refuses(number) and self._memory.cut(sequence, length)

    @property
    def shift_refusal(self) -> str:
        """Why tokens can't be taken out of the middle of a sequence."""
        return "" if self._kind == "attention" else f"its memory is {self._kind}"

    def shift(self, sequence: int, keep: int, discard: int) -> bool:
        """Forget tokens in the middle; the rest then is as in a straight decode without them."""
        self._check_ids(sequence)
        if not isinstance(self._memory, AttentionMemory) or self.shift_refusal:
            raise MisuseError("this memory can't be shifted")
        if not 0 <= keep <= keep + discard <= self._memory.length(sequence):
            raise MisuseError(f"there are no {discard} tokens behind {keep} in {sequence}")
        return self._memory.shift(sequence, keep, discard)

    def drop(self, sequence: int) -> None:
        """Forget a sequence."""
        self._check_ids(sequence)
        self._memory.drop(sequence)

    # States

    def state_size(self, sequence: int) -> int:
        """Bytes that `save_state` will give."""
        return len(self.save_state(sequence))

    def save_state(self, sequence: int) -> bytes:
        """All that a sequence's memory holds; see `Runtime.save_state`.

        Raises:
            StateError: it was cut by way of a snapshot and has not been in a pass since.
        """
        self._check_ids(sequence)
        return json.dumps([self.identity, self._memory.dump(sequence)]).encode()

    def load_state(self, sequence: int, state: bytes) -> None:
        """Put a saved state back; see `Runtime.load_state`.

        Raises:
            StateError: it is none of this model's.
        """
        self.drop(sequence)
        try:
            identity, dumped = json.loads(state)
            if identity != self.identity:
                raise StateError(f"the state is one of {identity}")
            self._memory.restore(sequence, dumped)
        except (ValueError, TypeError, LookupError) as error:
            self.drop(sequence)
            raise StateError(f"the state can't be read: {error}") from error

    def close(self) -> None:
        """End it; further passes are misuse."""
        self._closed = True

    # For tests

    def state(self, sequence: int) -> Hashable:
        """All that a sequence's later logits depend on; equal states give equal logits.

        For hybrid memory a pair: the attention part, then the recurrent part, whose last item is
        the short convolution's buffer.
        """
        return self._memory.state(sequence)

    def length(self, sequence: int) -> int:
        """How many tokens the memory of a sequence holds."""
        return self._memory.length(sequence)

    # Inside

    def _write(self, feed: Feed, rows: NDArray[np.float32]) -> None:
        readings = self._memory.absorb(feed.sequence, feed.tokens, feed.outputs)
        width = len(feed.tokens)
        position = feed.start + width - feed.outputs
        for row, reading in zip(rows, readings, strict=True):
            position += 1
            self._language.write(reading, row)
            if self._nudges.needed:
                self._nudges.apply(row, reading, position, width)

    def _check(self, feeds: Series[Feed]) -> None:
        if self._closed:
            raise MisuseError("the runtime is closed")
        if not feeds or len({feed.sequence for feed in feeds}) < len(feeds):
            raise MisuseError("a pass needs feeds of different sequences")
        if sum(len(feed.tokens) for feed in feeds) > self.batch_size:
            raise MisuseError(f"more than {self.batch_size} tokens in one pass")
        if self._widths is not None:
            inside = [self._widths.hold(len(feed.tokens), feed.outputs) for feed in feeds]
            if inside != [True]:
                raise MisuseError(f"a pass outside its width class {self._widths}: {feeds}")
        known = range(self.vocabulary_size)
        for sequence, tokens, start, outputs, _ in feeds:
            self._check_ids(sequence)
            if not tokens or not 0 <= outputs <= len(tokens):
                raise MisuseError(f"{outputs} outputs from {len(tokens)} tokens")
            if any(token not in known for token in tokens):
                raise MisuseError(f"tokens outside the vocabulary: {tokens}")
            if (held := self._memory.length(sequence)) != start:
                raise MisuseError(f"sequence {sequence} holds {held} tokens, not {start}")
            if start + len(tokens) > self.context_length:
                raise DecodeError(f"sequence {sequence}: the context is full")

    def _check_ids(self, *sequences: int) -> None:
        ids = 2 * self.slots + self.checkpoints
        if any(not 0 <= sequence < ids for sequence in sequences):
            raise MisuseError(f"no such sequence among {sequences}")

    def _find_cells(self, tokens: int) -> None:
        """Raise if a pass finds too few free cells; nothing has changed then."""
        if self._cells is None or self._kind == "recurrent":
            return
        while self._memory.cells + tokens > self._cells:
            if self.make_room is None or not self.make_room():
                raise DecodeError("the context has no free cells left for it")

    def _take_time(self, tokens: int) -> None:
        cost = self._decode_seconds
        if seconds := cost(tokens) if callable(cost) else cost:
            time.sleep(seconds)

    def _fail(self, feeds: Series[Feed], number: int) -> None:
        """Absorb some of the tokens, spoil what is there, and raise."""
        for feed in feeds:
            self._memory.absorb(feed.sequence, feed.tokens[: (len(feed.tokens) + 1) // 2], 0)
            self._memory.scramble(feed.sequence, hash((self._seed, number, feed.sequence)))
        raise DecodeError(f"pass {number} failed, as planned")


def _memory(kind: MemoryKind, snapshots: int, window: int, reserve: int) -> SimulatedMemory:
    match kind:
        case "attention":
            return AttentionMemory()
        case "windowed":
            return AttentionMemory(window, reserve)
        case "recurrent":
            return RecurrentMemory(snapshots)
        case "hybrid":
            return HybridMemory(AttentionMemory(), RecurrentMemory(snapshots))
