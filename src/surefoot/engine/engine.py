"""The engine: admits requests to slots, absorbs prompts, plays rounds, and delivers.

One step does one of each at most. Everything that must not get lost is in the sequences' journals:
when a pass fails, the memory is cleared and what was committed is absorbed again.
"""

import logging
import time
from collections import deque
from collections.abc import Callable

from surefoot.decoding import (
    MAX_PENDING,
    DecodeError,
    Drafter,
    Ending,
    RollbackRefusedError,
    Round,
    Sequence,
    SurefootError,
    SyntheticAcceptance,
    Transcript,
    absorb,
    memory_for,
)
from surefoot.drafting.guarded import Guarded
from surefoot.engine.generation import Delta, Generation, GenerationState
from surefoot.engine.request import PromptTooLongError, Request
from surefoot.engine.slot import Slot
from surefoot.engine.text import TextStream
from surefoot.runtime.base import Runtime

log = logging.getLogger(__name__)

FAILURES_ALLOWED = 2
"""A generation whose passes fail so often in a row, with nothing committed between, is given up."""

CHUNK_BESIDE_ROUNDS = 512
"""Most prompt tokens in a pass while other generations wait for their next round."""


class Engine:
    """Runs generations on a runtime, several at once, each in a slot of its own.

    Not thread-safe but for `Generation.cancelled`; `EngineThread` makes it so.

    Args:
        runtime: the loaded model; the engine does not close it.
        drafter: proposes drafts; None for plain decoding. If it fails for a request, that request
            goes on without it.
        max_draft: most draft tokens a round, for any request; fewer if passes have no room.
        synthetic: judges drafts by chance, to measure speed; every summary then says that the text
            is not the model's. None for real verification.
    """

    def __init__(
        self,
        runtime: Runtime,
        drafter: Drafter | None = None,
        max_draft: int = 16,
        synthetic: SyntheticAcceptance | None = None,
    ) -> None:
        self.runtime = runtime
        self.drafter = None if drafter is None else Guarded(drafter)
        self._share = runtime.batch_size // runtime.slots
        self.max_draft = 0 if drafter is None else self._with_room(max_draft)
        self.slots = [
            Slot(memory_for(runtime, sequence_id, spare_id=runtime.slots + sequence_id))
            for sequence_id in range(runtime.slots)
        ]
        self.waiting: deque[Generation] = deque()
        self.rounds = 0
        """Rounds played since the start, each one forward pass for all running generations."""
        self.synthetic = synthetic
        self._round = Round(runtime, self.drafter, synthetic)
        self._clock = 0

    def _with_room(self, max_draft: int) -> int:
        """So many draft tokens, or as many as fit into a slot's share of a pass at any time."""
        most = max(0, self._share - MAX_PENDING)
        if max_draft > most:
            log.warning(
                "drafts are cut to %d tokens: a pass of %d tokens has no room for longer ones in "
                "%d slots",
                most,
                self.runtime.batch_size,
                self.runtime.slots,
            )
        return min(max_draft, most)

    def submit(self, request: Request, listener: Callable[[Delta], None]) -> Generation:
        """Queue a request.

        Args:
            request: what to generate.
            listener: called with each delta, from within `step`; the last one has a state that
                is over.

        Raises:
            PromptTooLongError: the prompt leaves no room for an answer.
        """
        generation = self.accept(request, listener)
        self.enqueue(generation)
        return generation

    def accept(self, request: Request, listener: Callable[[Delta], None]) -> Generation:
        """Make a generation of a request without queueing it; safe from any thread."""
        self._check(request)
        return Generation(request, listener)

    def enqueue(self, generation: Generation) -> None:
        """Queue a generation."""
        self.waiting.append(generation)

    def _check(self, request: Request) -> None:
        """Raise PromptTooLongError if the request can't be served."""
        if len(request.prompt) >= self.runtime.context_length:
            raise PromptTooLongError(len(request.prompt), self.runtime.context_length)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting and not self._busy()

    def step(self) -> None:
        """Move all generations on: drop the cancelled, admit, one prefill chunk, one round."""
        self._drop_cancelled()
        self._admit()
        self._prefill()
        self._play()

    def run(
        self, request: Request, listener: Callable[[Delta], None] = lambda _: None
    ) -> Generation:
        """Generate one request to its end, and everything queued before it."""
        generation = self.submit(request, listener)
        while not generation.state.over:
            self.step()
        return generation

    def forget(self) -> None:
        """Let idle slots forget what they hold, so that the next request starts from nothing."""
        for slot in self.slots:
            if slot.generation is None:
                slot.discard(self._clock)

    def fail_all(self, reason: str) -> None:
        """Give all generations up, running and waiting; their slots forget what they hold."""
        for slot in self._busy():
            self._fail(slot, reason)
        while self.waiting:
            self._end(self.waiting.popleft(), GenerationState.FAILED, error=reason)

    # Admission

    def _busy(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.generation is not None]

    def _drop_cancelled(self) -> None:
        for slot in self._busy():
            if slot.generation is not None and slot.generation.cancelled:
                self._leave(slot, GenerationState.CANCELLED, keep=False)
        for generation in [g for g in self.waiting if g.cancelled]:
            self.waiting.remove(generation)
            self._end(generation, GenerationState.CANCELLED)

    def _admit(self) -> None:
        """Put waiting generations into idle slots, each where most of its prompt is known."""
        while self.waiting and (idle := [s for s in self.slots if s.generation is None]):
            generation = self.waiting[0]
            prompt = generation.request.prompt
            slot = max(idle, key=lambda s: (s.reusable(prompt), -s.last_used))
            generation.summary.cached_tokens = slot.rewind(prompt)
            generation.sequence = self._sequence(generation, slot)
            generation.summary.counts = generation.sequence.counts
            generation.summary.synthetic = self.synthetic is not None
            generation.state = GenerationState.RUNNING
            slot.generation = generation
            slot.prefilling = True
            slot.entered = time.perf_counter()
            slot.failures = 0
            self.waiting.popleft()

    def _sequence(self, generation: Generation, slot: Slot) -> Sequence:
        request, tokenizer = generation.request, self.runtime.tokenizer
        transcript = Transcript(request.stops)
        generation.stream = TextStream(transcript, tokenizer.piece)
        wanted = self.max_draft if request.max_draft is None else request.max_draft
        return Sequence(
            committed=list(request.prompt),
            memory=slot.memory,
            sampling=request.sampling,
            ending=Ending(
                end_of_generation=tokenizer.end_of_generation,
                stop_tokens=request.stop_tokens,
                transcript=transcript,
                piece=tokenizer.piece,
                max_tokens=request.max_tokens,
                max_length=self.runtime.context_length,
            ),
            max_draft=min(wanted, self.max_draft),
            wishes=request.wishes,
        )

    # Passes

    def _prefill(self) -> None:
        """One chunk of the prompt that has waited longest."""
        slots = [slot for slot in self._busy() if slot.prefilling]
        if not slots:
            return
        slot = min(slots, key=_age)
        generation, sequence = _running(slot)
        alone = len(slots) == len(self._busy())
        chunk = self.runtime.batch_size
        started = time.perf_counter()
        try:
            absorbed = absorb(
                self.runtime, sequence, chunk if alone else min(chunk, CHUNK_BESIDE_ROUNDS)
            )
        except DecodeError as error:
            self._recover([slot], error)
            self._blame([slot], error)
            return
        generation.summary.prefill_seconds += time.perf_counter() - started
        generation.summary.prefilled_tokens += absorbed
        slot.prefilling = len(sequence.pending) > 1

    def _play(self) -> None:
        """One round for all generations whose prompt is absorbed.

        One whose last pass failed plays by itself until it commits, lest it take others along.
        """
        ready = [slot for slot in self._busy() if not slot.prefilling]
        together = [slot for slot in ready if not slot.failures]
        suspects = [slot for slot in ready if slot.failures]
        for slots in (together, *([slot] for slot in suspects)):
            if slots:
                self._play_round(slots)

    def _play_round(self, slots: list[Slot]) -> None:
        sequences = [_running(slot)[1] for slot in slots]
        before = [(len(s.committed), s.counts.accepted) for s in sequences]
        started, passes = time.perf_counter(), self.runtime.passes
        try:
            self._round.play(sequences)
            self.rounds += 1
        except DecodeError as error:
            self._recover(slots, error)
            failure: SurefootError | None = error
        except RollbackRefusedError as error:
            committed = len(sequences[0].committed) > before[0][0]
            lost = [slot for slot in slots if not (committed and _running(slot)[1].settled)]
            for slot in lost:
                # What was refused may be refused again, and plain decoding needs no way back.
                sequence = _running(slot)[1]
                sequence.max_draft = 0
                sequence.counts.add_failure("roll-back", str(error))
            self._recover(lost, error)
            failure = error
            self.rounds += committed
        else:
            failure = None
        now = time.perf_counter()
        for slot, (length, accepted) in zip(slots, before, strict=True):
            generation, sequence = _running(slot)
            if len(sequence.committed) == length and sequence.fault is None:
                self._blame([slot], failure)
                continue
            summary, counts = generation.summary, generation.summary.counts
            summary.decode_seconds += now - started
            summary.passes += self.runtime.passes - passes
            if not summary.first_token_seconds:
                summary.first_token_seconds = now - slot.entered
            slot.failures = 0
            if sequence.fault is not None:
                self._fail(slot, sequence.fault)
                continue
            if sequence.finish is not None:
                self._leave(slot, GenerationState.FINISHED, counts.accepted - accepted)
                continue
            # More than a round has room for is absorbed like a prompt.
            slot.prefilling = len(sequence.pending) > self._share
            generation.tell(counts.accepted - accepted)

    def _recover(self, slots: list[Slot], error: SurefootError) -> None:
        """Forget memories that a failed pass left unknown; the journals stand."""
        log.warning("%s; absorbing %d sequence(s) again from their tokens", error, len(slots))
        for slot in slots:
            slot.memory.clear()
            slot.prefilling = len(_running(slot)[1].pending) > 1
            _running(slot)[0].summary.recoveries += 1

    def _blame(self, slots: list[Slot], error: SurefootError | None) -> None:
        """Count a pass that failed and committed nothing; give up who has had too many."""
        for slot in slots:
            slot.failures += 1
            if slot.failures > FAILURES_ALLOWED:
                self._fail(slot, f"{error} ({slot.failures} times in a row)")

    # Ends

    def _leave(
        self, slot: Slot, state: GenerationState, accepted: int = 0, *, keep: bool = True
    ) -> None:
        """Take a generation out of its slot, which keeps the memory for the next turn or not."""
        generation, sequence = _running(slot)
        self._clock += 1
        if keep:
            slot.release(self._clock, sequence.committed)
        else:
            slot.discard(self._clock)
        if self.drafter is not None:
            self.drafter.forget(sequence)
        self._end(generation, state, accepted)

    def _fail(self, slot: Slot, reason: str) -> None:
        generation, _ = _running(slot)
        generation.error = reason
        self._leave(slot, GenerationState.FAILED, keep=False)

    def _end(
        self,
        generation: Generation,
        state: GenerationState,
        accepted: int = 0,
        error: str | None = None,
    ) -> None:
        generation.state = state
        generation.error = generation.error or error
        if generation.sequence is not None:
            generation.finish = generation.sequence.finish
        generation.summary.generated_tokens = len(generation.tokens)
        generation.tell(accepted)


def _running(slot: Slot) -> tuple[Generation, Sequence]:
    """The generation of a busy slot, and its sequence."""
    generation = slot.generation
    assert generation is not None
    assert generation.sequence is not None
    return generation, generation.sequence


def _age(slot: Slot) -> int:
    return _running(slot)[0].id
