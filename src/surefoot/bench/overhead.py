"""What surefoot's own code costs: Python time per round, and following and rolling back a fork."""

import time
from collections.abc import Sequence as Series
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import (
    GREEDY,
    NO_DRAFT,
    Draft,
    Ending,
    Feed,
    Rollback,
    Round,
    Sequence,
    Widths,
    absorb,
    memory_for,
)
from surefoot.runtime.libllama import LibllamaRuntime


class InstantTarget:
    """A target that answers at once, so that a round's time is decoding's own.

    Every position wants token 1; what it costs to fill a batch for a library is not in it.
    """

    rollback = Rollback(cut=0, fork=True)
    widths: Widths | None = None
    logit_noise = 0.25

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size
        rng = np.random.default_rng(1)
        self._logits = rng.standard_normal((64, vocabulary_size), dtype=np.float32)
        self._logits[:, 1] = 20.0

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        """The same rows, whatever is fed."""
        return [self._logits[: feed.outputs] for feed in feeds]

    def fork(self, source: int, copy: int, start: int, end: int) -> None:
        """Nothing to share."""

    def cut(self, sequence: int, length: int) -> bool:  # noqa: ARG002 - nothing to cut
        """Always done."""
        return True

    def drop(self, sequence: int) -> None:
        """Nothing to forget."""


class PartlyRight:
    """Drafts four tokens of which the first two are what `InstantTarget` wants."""

    name = "partly right"

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        """The same draft for all."""
        return [Draft((1, 1, 0, 0), self.name) if depth >= 4 else NO_DRAFT for _, depth in wanted]

    def learn(self, sequence: Sequence, draft: Draft, accepted: int) -> None:
        """Nothing to learn."""

    def forget(self, sequence: Sequence) -> None:
        """Nothing to forget."""


@dataclass(frozen=True, slots=True)
class RoundCost:
    """Python's own time in a round, in microseconds; median over rounds."""

    target: str
    vocabulary: int
    sequences: int
    microseconds: float
    allowed: float
    """The goal: 150 + 60 a sequence at a vocabulary of 8k, 1000 at 150k (greedy)."""


def decoding_cost(vocabulary: int, sequences: int, rounds: int = 200) -> RoundCost:
    """Time of rounds on a target that answers at once: drafts of 4, accepted up to the second."""
    target = InstantTarget(vocabulary)
    live = [
        Sequence([0] * 100, memory_for(target, i, spare_id=sequences + i), GREEDY, max_draft=4)
        for i in range(sequences)
    ]
    for sequence in live:
        sequence.memory.absorbed(99)
    play = Round(target, PartlyRight()).play
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        play(live)
        times.append(time.perf_counter() - started)
    return RoundCost(
        "instant", vocabulary, sequences, 1e6 * median(times), _allowed(vocabulary, sequences)
    )


def whole_round_cost(runtime: LibllamaRuntime, sequences: int, rounds: int = 60) -> RoundCost:
    """Time of rounds on a real model, all but libllama's own: filling batches is in it."""
    live = [
        Sequence([5] * 64, memory_for(runtime, i, runtime.slots + i), GREEDY, max_draft=4)
        for i in range(sequences)
    ]
    for sequence in live:
        sequence.memory.clear()
        absorb(runtime, sequence, 64)
    play = Round(runtime, PartlyRight()).play
    times = []
    for _ in range(rounds):
        started, native = time.perf_counter(), runtime.native_seconds
        play(live)
        times.append(time.perf_counter() - started - (runtime.native_seconds - native))
    for sequence in live:
        sequence.memory.clear()
    vocabulary = runtime.vocabulary_size
    allowed = _allowed(vocabulary, sequences)
    return RoundCost(runtime.info.name, vocabulary, sequences, 1e6 * median(times), allowed)


def _allowed(vocabulary: int, sequences: int) -> float:
    return 1000.0 if vocabulary > 100_000 else 150.0 + 60.0 * sequences


@dataclass(frozen=True, slots=True)
class RollbackCost:
    """Following and rolling back a rejected draft, in microseconds; medians.

    Attributes:
        kind: way of roll-back that the context allows.
        context: tokens in the sequence's memory.
        follow: getting ready to return, before a draft.
        roll_back: returning, after it was rejected.
        together: both; the goal is 200 at 8k tokens of context.
    """

    kind: str
    context: int
    follow: float
    roll_back: float
    together: float


def rollback_cost(runtime: LibllamaRuntime, context: int, drafts: int = 60) -> RollbackCost:
    """Reject drafts of 1 to 8 tokens, behind so many tokens of context."""
    rng = np.random.default_rng(2)
    tokens = rng.integers(0, runtime.vocabulary_size, context).tolist()
    memory = memory_for(runtime, 0, spare_id=runtime.slots)
    memory.clear()
    sequence = Sequence([*tokens, 0], memory, GREEDY, Ending())
    while absorb(runtime, sequence, runtime.batch_size):
        pass
    follows, returns = [], []
    for number in range(drafts):
        width = 1 + number % 8
        started = time.perf_counter()
        memory.brace()
        follows.append(time.perf_counter() - started)
        start = memory.length
        runtime.decode([Feed(0, tokens[:width], start, outputs=0)])
        memory.absorbed(width)
        started = time.perf_counter()
        memory.settle(start)
        returns.append(time.perf_counter() - started)
        # Move on by one token, as a round with a rejected draft does.
        runtime.decode([Feed(0, tokens[width : width + 1], memory.length, outputs=0)])
        memory.absorbed(1)
    memory.clear()
    together = [a + b for a, b in zip(follows, returns, strict=True)]
    return RollbackCost(
        kind=runtime.rollback.kind,
        context=context,
        follow=1e6 * median(follows),
        roll_back=1e6 * median(returns),
        together=1e6 * median(together),
    )
