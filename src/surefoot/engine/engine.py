"""The engine: admits requests to slots, absorbs prompts, plays rounds, and delivers.

One step does one of each at most in every lane. Everything that must not get lost is in the
sequences' journals: when a pass fails, the memory is cleared and what was committed is absorbed
again.
"""

import logging
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from dataclasses import replace
from typing import Any

from surefoot.constraints import Controls
from surefoot.decoding import (
    Drafter,
    InvalidParameterError,
    Sequence,
    SurefootError,
    SyntheticAcceptance,
    Widths,
)
from surefoot.engine.admission import Admission
from surefoot.engine.cache import CacheSettings, PromptCache
from surefoot.engine.checking import check_requests
from surefoot.engine.context_shift import check_shift, make_room
from surefoot.engine.deadlines import time_is_up
from surefoot.engine.generation import Delta, Generation, GenerationState
from surefoot.engine.health import STALL_SECONDS, Health, Pulse
from surefoot.engine.lane import Lane, LaneOpener, check_strict
from surefoot.engine.lanes import Lanes
from surefoot.engine.making import Maker
from surefoot.engine.observing import Observer, Observers
from surefoot.engine.player import Player
from surefoot.engine.queue import Queue, QueueSettings
from surefoot.engine.request import Request
from surefoot.engine.self_check import Check, SelfCheck
from surefoot.engine.slot import Slot
from surefoot.engine.totals import Totals
from surefoot.engine.watchdog import PATIENCE, Watchdog
from surefoot.runtime.base import Runtime

log = logging.getLogger(__name__)


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
        opener: opens lanes for strict requests and for self-checks; None if there are none.
        self_check: how many of the finished answers are scored again, from 0 to 1.
        cache: what is kept of finished requests; None for what their slots still hold.
        queue: limits of the queue; None for none.
        clock: tells the time, in seconds.
        context_shift: whether texts go on where their context is full, of requests that say nothing
            about it.
        patience: rounds in a row without an accepted draft token that end a request's speculation;
            0 for any number.
        stall_seconds: a slot that has not moved for so long is called stalled.

    Attributes:
        cache: the main lane's prompt cache.

    Raises:
        InvalidParameterError: the model can't shift; the text says why.
    """

    def __init__(
        self,
        runtime: Runtime,
        drafter: Drafter | None = None,
        max_draft: int = 16,
        synthetic: SyntheticAcceptance | None = None,
        opener: LaneOpener | None = None,
        self_check: float = 0.0,
        cache: CacheSettings | None = None,
        queue: QueueSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        context_shift: bool = False,
        patience: int = PATIENCE,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        if context_shift:
            check_shift("context_shift", runtime.shift_refusal)
        self.context_shift = context_shift
        self.runtime = runtime
        self.totals = Totals()
        self.observers = Observers()
        if synthetic is None:
            self.observers.add(Watchdog(self.totals, self.observers.noted, patience))
        self._now = clock
        self._pulse = Pulse(stall_seconds, clock())
        self._lanes = Lanes(runtime, drafter, max_draft, synthetic, opener)
        self._maker = Maker(runtime, context_shift=context_shift)
        self.queue = Queue(queue or QueueSettings(), runtime.slots)
        self.cache = PromptCache(self.main, cache or CacheSettings())
        self._admission = Admission(
            self._lanes,
            self._maker,
            self,
            self.queue,
            self.cache,
            synthetic=synthetic is not None,
        )
        self._player = Player(self, self.cache, self.observers)
        if drafter is not None and max_draft > self.max_draft:
            log.warning(
                "drafts are cut to %d tokens: a pass of %d tokens has no room for longer ones in "
                "%d slots",
                self.max_draft,
                runtime.batch_size,
                runtime.slots,
            )
        self.synthetic = synthetic
        self.self_check = SelfCheck(self_check) if self_check and opener and not synthetic else None
        self._clock = 0

    @property
    def main(self) -> Lane:
        """The lane of all fast requests."""
        return self._lanes.main

    @property
    def waiting(self) -> Series[Generation]:
        """Who waits for a slot, the next one first."""
        return self.queue

    @property
    def drafter(self) -> Drafter | None:
        """Who drafts; None for plain decoding."""
        return self.main.drafter

    @property
    def max_draft(self) -> int:
        """Most draft tokens a round, for any request."""
        return self.main.max_draft

    @property
    def depths(self) -> Mapping[str, int]:
        """Most draft tokens a round, by the drafters' names, the first to be asked first."""
        drafter, most = self.main.drafter, self.max_draft
        depths = {} if drafter is None else drafter.depths
        return {name: most if depth is None else min(depth, most) for name, depth in depths.items()}

    @property
    def lanes(self) -> list[Lane]:
        """All lanes in which requests run."""
        return self._lanes.all

    @property
    def slots(self) -> list[Slot]:
        """All slots."""
        return [slot for lane in self.lanes for slot in lane.slots]

    @property
    def strict_busy(self) -> int:
        """How many strict requests run, each in a lane of its own."""
        return sum(len(lane.busy) for lane in self._lanes.strict)

    @property
    def rounds(self) -> int:
        """Rounds played since the start, each one forward pass for all generations in it."""
        return sum(lane.rounds for lane in self.lanes)

    @property
    def graph_runs(self) -> int:
        """Graph runs since the start; one for each pass, and more where widths are unequal."""
        return sum(lane.runtime.graph_runs for lane in self.lanes)

    @property
    def controls(self) -> Controls:
        """Makes controls for the model's vocabulary."""
        return self._maker.controls

    # Requests

    def submit(self, request: Request, listener: Callable[[Delta], None]) -> Generation:
        """Queue a request.

        Args:
            request: what to generate.
            listener: called with each delta, from within `step`; the last one has a state that
                is over.

        Raises:
            PromptTooLongError: the prompt leaves no room for an answer.
            GrammarError: the grammar is none.
            InvalidParameterError: it asks for something that can't be done here.
        """
        [generation] = self.submit_group([request], [listener])
        return generation

    def submit_group(
        self, requests: Series[Request], listeners: Series[Callable[[Delta], None]]
    ) -> list[Generation]:
        """Queue requests that differ in their seeds alone; the prompt is absorbed once for all.

        They begin together, so there must be as many slots.

        Raises:
            SurefootError: as `submit`; nothing has been queued.
            QueueFullError: too many wait already.
        """
        generations = self.accept(requests, listeners)
        self.check_queue(generations)
        self.enqueue(generations[0])
        return generations

    def accept(
        self, requests: Series[Request], listeners: Series[Callable[[Delta], None]]
    ) -> list[Generation]:
        """Make generations of requests without queueing them; safe from any thread."""
        check_requests(
            requests,
            slots=self.runtime.slots,
            vocabulary_size=self.runtime.vocabulary_size,
            context_length=self.runtime.context_length,
            no_strict=self.no_strict,
            no_shift=self.runtime.shift_refusal,
            controls=lambda: self.controls,
        )
        generations = [
            Generation(request, listener, self.runtime.tokenizer, self._now())
            for request, listener in zip(requests, listeners, strict=True)
        ]
        for generation in generations:
            generation.group = generations
        return generations

    def enqueue(self, first: Generation) -> None:
        """Queue a generation, and the others of its group."""
        self.queue.add(first.group)

    def check_queue(self, group: Series[Generation], elsewhere: int = 0) -> None:
        """See that there is a place in the queue for a group.

        Args:
            group: the generations.
            elsewhere: generations that wait to be queued.

        Raises:
            QueueFullError: there is none.
        """
        strict = group[0].request.exact == "strict"
        busy = sum(len(lane.busy) for lane in (self._lanes.strict if strict else [self.main]))
        self.queue.check(len(group), elsewhere, self.runtime.slots - busy)

    def check_strict(self) -> Widths:
        """The width class for strict decoding.

        Raises:
            InvalidParameterError: it can't be done here; the text says why.
        """
        return check_strict(self._lanes.opener)

    @property
    def no_strict(self) -> str | None:
        """Why strict decoding can't be done here, in words; None if it can."""
        try:
            self.check_strict()
        except InvalidParameterError as error:
            return error.problem
        return None

    @property
    def exactness(self) -> Mapping[str, Any]:
        """What is known of width classes, for people; empty if nothing is."""
        return self._lanes.facts

    # How it is

    def observe(self, observer: Observer) -> None:
        """Let someone hear what is done from now on."""
        self.observers.add(observer)

    def health(self, arrived: Series[Generation] = ()) -> Health:
        """Whether the slots move; safe from any thread, also while a pass does not come back.

        Args:
            arrived: generations that wait outside.
        """
        return self._pulse.health(self._lanes.all, [*arrived, *tuple(self.waiting)], self._now())

    # The loop

    @property
    def now(self) -> float:
        """The time by the engine's clock, in seconds."""
        return self._now()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        checking = self.self_check is not None and self.self_check.pending
        return not self.waiting and not self._busy() and not checking

    def step(self) -> None:
        """Move all generations on: drop the cancelled, admit, one prefill chunk, one round."""
        self._drop_cancelled()
        self._drop_overdue()
        self._admission.admit()
        self._admission.drop_overdue(self._now())
        for lane, slot in self._pulse.beat(self.lanes, self._now()):
            self.observers.entered(lane, slot)
        if not self._busy() and not self.waiting:
            self._check_answers()
            return
        for lane in self.lanes:
            for slot in lane.busy:
                make_room(lane, slot)
            waits = any(not slot.prefilling for slot in self._busy())
            self._player.prefill(lane, beside_rounds=waits)
            self._player.play(lane)

    def run(
        self, request: Request, listener: Callable[[Delta], None] = lambda _: None
    ) -> Generation:
        """Generate one request to its end, and everything queued before it."""
        generation = self.submit(request, listener)
        while not generation.state.over:
            self.step()
        return generation

    def forget(self) -> None:
        """Forget what idle slots and the cache hold, so that the next request starts from nothing.

        States on disk stay.
        """
        self.cache.clear()
        for slot in self.slots:
            if slot.generation is None:
                slot.discard(self._clock)

    def fail_all(self, reason: str) -> None:
        """Give all generations up, running and waiting; their slots forget what they hold."""
        for lane in self.lanes:
            for slot in lane.busy:
                self.fail(lane, slot, reason)
        self._admission.fail_all(reason)

    def close(self) -> None:
        """Close the lanes that were opened; the main runtime is its owner's."""
        self.cache.close()
        self._lanes.close()

    def _busy(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.generation is not None]

    def _drop_cancelled(self) -> None:
        for lane in self.lanes:
            for slot in lane.busy:
                if slot.running[0].cancelled:
                    self.leave(lane, slot, GenerationState.CANCELLED, keep=False)
        self._admission.drop_cancelled()

    def _drop_overdue(self) -> None:
        """End those whose time is up with what they have; the next pass is without them."""
        now = self._now()
        for lane in self.lanes:
            for slot in lane.busy:
                generation, sequence = slot.running
                if generation.first_token is None and sequence.generated:
                    generation.first_token = now
                if (finish := time_is_up(generation, now)) is not None:
                    sequence.finish = finish
                    self.leave(lane, slot, GenerationState.FINISHED)

    # Ends

    def leave(
        self,
        lane: Lane,
        slot: Slot,
        state: GenerationState,
        accepted: int = 0,
        *,
        keep: bool = True,
    ) -> None:
        """See `Ends`."""
        generation, sequence = slot.running
        self._clock += 1
        self.queue.served(time.perf_counter() - slot.entered)
        if keep:
            slot.drop_shifted()
        if lane is self.main:
            if keep:
                self.cache.finished(slot)
            else:
                self.cache.given_up(slot)
        if keep:
            slot.release(self._clock, sequence.committed[: sequence.intact])
        else:
            slot.discard(self._clock)
        if lane.drafter is not None:
            lane.drafter.forget(sequence)
        self.end(generation, state, accepted)
        if state is GenerationState.FINISHED and self.self_check and self.self_check.wants():
            self._check_later(generation, sequence)

    def fail(self, lane: Lane, slot: Slot, reason: str, *, own: bool = False) -> None:
        """See `Ends`."""
        generation, _ = slot.running
        generation.error, generation.own_fault = reason, own
        self.leave(lane, slot, GenerationState.FAILED, keep=False)

    def end(
        self,
        generation: Generation,
        state: GenerationState,
        accepted: int = 0,
        error: str | None = None,
    ) -> None:
        """See `Ends`."""
        generation.state = state
        generation.error = generation.error or error
        if generation.sequence is not None:
            generation.finish = generation.finish or generation.sequence.finish
            generation.summary.generated_tokens = generation.sequence.generated
            if generation.sequence.control is not None:
                thought = generation.sequence.control.reasoning_tokens
                generation.summary.reasoning_tokens = thought
        generation.summary.cause = generation.finish.cause if generation.finish else ""
        self.totals.add(state.value, generation.summary)
        self.observers.ended(generation)
        generation.tell(accepted)

    # Self-check

    def _check_later(self, generation: Generation, sequence: Sequence) -> None:
        request = replace(generation.request, resumed=None)
        if self.self_check is None or request.rule != "coupled" or not sequence.generated:
            return
        if sequence.gone:  # it is no straight decode of anything
            return

        def make(lane: Lane) -> Sequence:
            fresh = self._maker.sequence(request, lane, lane.slots[0])
            # Nobody hears of scores, and those of a prompt would need room for its outputs.
            fresh.wish, fresh.score_prompt = None, False
            return fresh

        strict = request.exact == "strict"
        self.self_check.add(
            Check(
                generation.id,
                list(sequence.committed),
                frozenset(sequence.counts.near_tie_positions),
                make,
                strict,
            )
        )

    def _check_answers(self) -> None:
        """One pass of a check."""
        if self.self_check is None or not self.self_check.pending:
            return
        strict = self.self_check.next_is_strict
        try:
            lane = self._lanes.for_checks(strict=strict)
        except SurefootError as error:
            self.self_check.give_up(str(error))
            return
        self.self_check.step(lane)
