"""The engine: admits requests to slots, absorbs prompts, plays rounds, and delivers.

One step does one of each at most in every lane. Everything that must not get lost is in the
sequences' journals: when a pass fails, the memory is cleared and what was committed is absorbed
again.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Series
from functools import cached_property
from typing import Any

from surefoot.constraints import Controls
from surefoot.decoding import (
    NO_BREAKERS,
    Breakers,
    Control,
    ControlError,
    DecodeError,
    Drafter,
    InvalidParameterError,
    RollbackRefusedError,
    Sequence,
    SurefootError,
    SyntheticAcceptance,
    Widths,
    absorb,
)
from surefoot.decoding.sampling import BreakerFinder
from surefoot.engine.generation import Delta, Generation, GenerationState
from surefoot.engine.lane import Lane, LaneOpener, check_strict
from surefoot.engine.making import prompt_entries, sequence_for, stream_of
from surefoot.engine.request import PromptTooLongError, Request
from surefoot.engine.self_check import Check, SelfCheck
from surefoot.engine.slot import Slot
from surefoot.engine.totals import Totals
from surefoot.engine.vocabulary import breaker_finder, controls_for
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
        opener: opens lanes for strict requests and for self-checks; None if there are none.
        self_check: how many of the finished answers are scored again, from 0 to 1.
    """

    def __init__(
        self,
        runtime: Runtime,
        drafter: Drafter | None = None,
        max_draft: int = 16,
        synthetic: SyntheticAcceptance | None = None,
        opener: LaneOpener | None = None,
        self_check: float = 0.0,
    ) -> None:
        self.runtime = runtime
        self.main = Lane(runtime, drafter, max_draft, synthetic)
        if drafter is not None and max_draft > self.main.max_draft:
            log.warning(
                "drafts are cut to %d tokens: a pass of %d tokens has no room for longer ones in "
                "%d slots",
                self.main.max_draft,
                runtime.batch_size,
                runtime.slots,
            )
        self.strict: list[Lane] = []
        """Lanes for strict requests, opened when they are needed and kept."""
        self.waiting: deque[Generation] = deque()
        self.synthetic = synthetic
        self.self_check = SelfCheck(self_check) if self_check and opener and not synthetic else None
        self.totals = Totals()
        self._opener = opener
        self._checking: dict[bool, Lane] = {}
        self._closers: list[Callable[[], None]] = []
        self._clock = 0

    @property
    def drafter(self) -> Drafter | None:
        """Who drafts; None for plain decoding."""
        return self.main.drafter

    @property
    def max_draft(self) -> int:
        """Most draft tokens a round, for any request."""
        return self.main.max_draft

    @property
    def lanes(self) -> list[Lane]:
        """All lanes in which requests run."""
        return [self.main, *self.strict]

    @property
    def slots(self) -> list[Slot]:
        """All slots."""
        return [slot for lane in self.lanes for slot in lane.slots]

    @property
    def rounds(self) -> int:
        """Rounds played since the start, each one forward pass for all generations in it."""
        return sum(lane.rounds for lane in self.lanes)

    @cached_property
    def controls(self) -> Controls:
        """Makes controls for the model's vocabulary; made when the first is needed."""
        return controls_for(self.runtime)

    def controls_of(self, request: Request) -> Control | None:
        """A fresh control for a request; None if it has no rules."""
        return None if request.control is None else self.controls.control(request.control)

    @cached_property
    def _finder(self) -> BreakerFinder:
        return breaker_finder(self.runtime)

    def _breakers_of(self, request: Request) -> Breakers:
        """The sequence breakers of DRY; none while it is off."""
        sampling = request.sampling
        if sampling.dry_multiplier == 0:
            return NO_BREAKERS
        return self._finder.find(sampling.dry_sequence_breakers)

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
        """
        generations = self.accept(requests, listeners)
        self.enqueue(generations[0])
        return generations

    def accept(
        self, requests: Series[Request], listeners: Series[Callable[[Delta], None]]
    ) -> list[Generation]:
        """Make generations of requests without queueing them; safe from any thread."""
        if len(requests) > self.runtime.slots:
            raise InvalidParameterError(
                "n",
                f"must be at most {self.runtime.slots}, the number of slots, and is "
                f"{len(requests)}; start with more (-np)",
            )
        for request in requests:
            self._check(request)
        generations = [
            Generation(request, listener)
            for request, listener in zip(requests, listeners, strict=True)
        ]
        for generation in generations:
            generation.group = generations
        return generations

    def enqueue(self, first: Generation) -> None:
        """Queue a generation, and the others of its group."""
        self.waiting.extend(first.group)

    def _check(self, request: Request) -> None:
        """Raise what keeps the request from being served."""
        if len(request.prompt) >= self.runtime.context_length:
            raise PromptTooLongError(len(request.prompt), self.runtime.context_length)
        if request.exact == "strict":
            check_strict(self._opener)
        if request.control is not None:
            self.controls.check(request.control)

    def check_strict(self) -> Widths:
        """The width class for strict decoding.

        Raises:
            InvalidParameterError: it can't be done here; the text says why.
        """
        return check_strict(self._opener)

    @property
    def exactness(self) -> Mapping[str, Any]:
        """What is known of width classes, for people; empty if nothing is."""
        return {} if self._opener is None else self._opener.describe()

    # The loop

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        checking = self.self_check is not None and self.self_check.pending
        return not self.waiting and not self._busy() and not checking

    def step(self) -> None:
        """Move all generations on: drop the cancelled, admit, one prefill chunk, one round."""
        self._drop_cancelled()
        self._admit()
        if not self._busy() and not self.waiting:
            self._check_answers()
            return
        for lane in self.lanes:
            self._prefill(lane)
            self._play(lane)

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
        for lane in self.lanes:
            for slot in lane.busy:
                self._fail(lane, slot, reason)
        while self.waiting:
            self._end(self.waiting.popleft(), GenerationState.FAILED, error=reason)

    def close(self) -> None:
        """Close the lanes that were opened; the main runtime is its owner's."""
        self.strict.clear()
        self._checking.clear()
        while self._closers:
            self._closers.pop()()

    # Admission

    def _busy(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.generation is not None]

    def _drop_cancelled(self) -> None:
        for lane in self.lanes:
            for slot in lane.busy:
                if _running(slot)[0].cancelled:
                    self._leave(lane, slot, GenerationState.CANCELLED, keep=False)
        for generation in [g for g in self.waiting if g.cancelled]:
            self.waiting.remove(generation)
            self._end(generation, GenerationState.CANCELLED)

    def _admit(self) -> None:
        """Put waiting generations into idle slots, a group at a time, the first come first."""
        blocked = {False: False, True: False}
        for generation in list(self.waiting):
            strict = generation.request.exact == "strict"
            if generation.state is not GenerationState.WAITING or blocked[strict]:
                continue
            group = [g for g in generation.group if g.state is GenerationState.WAITING]
            places = self._places(group, strict=strict)
            if places is None:
                blocked[strict] = True
                continue
            self._enter_group(group, places)

    def _places(self, group: list[Generation], *, strict: bool) -> list[tuple[Lane, Slot]] | None:
        """Idle slots for a group, for the first where most of its prompt is known; None if they
        are too few. A group whose lanes can't be opened fails, and needs none."""
        prompt = group[0].request.prompt
        lanes = self.strict if strict else [self.main]
        places = [(lane, slot) for lane in lanes for slot in lane.idle]
        while strict and len(places) < len(group) and len(self.strict) < self.runtime.slots:
            try:
                lane = self._open_strict()
                places += [(lane, slot) for slot in lane.slots]
            except SurefootError as error:
                if len(self.strict) >= len(group):
                    break
                for generation in group:
                    self.waiting.remove(generation)
                    self._end(generation, GenerationState.FAILED, error=str(error))
                return []
        if len(places) < len(group):
            return None
        places.sort(key=lambda place: (-place[1].reusable(prompt), place[1].last_used))
        return places[: len(group)]

    def _open_strict(self) -> Lane:
        """Open another lane for strict requests.

        Raises:
            SurefootError: there is no room for one.
        """
        lane = self._open(strict=True, drafts=True)
        self.strict.append(lane)
        return lane

    def _open(self, *, strict: bool, drafts: bool) -> Lane:
        widths = check_strict(self._opener) if strict else None
        assert self._opener is not None
        parts = self._opener.open(widths, drafts=drafts)
        self._closers.append(parts.close)
        return Lane(parts.runtime, parts.drafter, self.main.max_draft, self.synthetic)

    def _enter_group(self, group: list[Generation], places: list[tuple[Lane, Slot]]) -> None:
        """The first prefills the prompt; others in the same lane share its memory then."""
        leader: Slot | None = None
        for generation, (lane, slot) in zip(group, places, strict=True):
            self.waiting.remove(generation)
            shares = leader is not None and lane is self.main and lane.runtime.rollback.fork
            try:
                entered = self._enter(lane, slot, generation, leader if shares else None)
            except Exception as error:
                log.exception("a request could not be begun")
                self._end(generation, GenerationState.FAILED, error=f"internal error: {error!r}")
                continue
            if entered and leader is None:
                leader = slot

    def _enter(self, lane: Lane, slot: Slot, generation: Generation, leader: Slot | None) -> bool:
        """Put a generation into a slot; False if that was all there is to do.

        What can fail comes before the slot is taken.
        """
        request, summary = generation.request, generation.summary
        control = self.controls_of(request)
        if leader is not None or request.score_prompt:
            slot.memory.clear()
        else:
            summary.cached_tokens = slot.rewind(request.prompt)
        sequence = sequence_for(request, lane, slot, control, self._breakers_of(request))
        generation.sequence = sequence
        generation.stream = stream_of(sequence)
        summary.counts = sequence.counts
        summary.synthetic = self.synthetic is not None
        summary.exact = request.exact
        generation.state = GenerationState.RUNNING
        slot.generation = generation
        slot.prefilling = True
        slot.leader = leader
        slot.entered = time.perf_counter()
        slot.failures = 0
        try:
            sequence.fast_forward()
        except ControlError as error:
            self._fail(lane, slot, str(error))
            return False
        if sequence.finish is not None:
            self._leave(lane, slot, GenerationState.FINISHED, keep=False)
            return False
        return True

    # Passes

    def _prefill(self, lane: Lane) -> None:
        """One chunk of the prompt that has waited longest."""
        self._share_prompts(lane)
        slots = [slot for slot in lane.busy if slot.prefilling and slot.leader is None]
        if not slots:
            return
        slot = min(slots, key=_age)
        generation, sequence = _running(slot)
        chunk = lane.runtime.batch_size
        if any(not other.prefilling for other in self._busy()):
            chunk = min(chunk, CHUNK_BESIDE_ROUNDS)
        if sequence.score_prompt:
            chunk = min(chunk, lane.runtime.most_outputs)
        started = time.perf_counter()
        try:
            absorbed = absorb(lane.runtime, sequence, chunk)
        except DecodeError as error:
            self._recover([slot], error)
            self._blame(lane, [slot], error)
            return
        generation.summary.prefill_seconds += time.perf_counter() - started
        generation.summary.prefilled_tokens += absorbed
        slot.prefilling = self._owes(lane, sequence)
        if not slot.prefilling and sequence.score_prompt:
            generation.prompt_entries = prompt_entries(sequence)
        self._share_prompts(lane)

    def _owes(self, lane: Lane, sequence: Sequence) -> bool:
        """Whether a prompt has to be absorbed further before a round can be played."""
        owed = len(sequence.pending)
        if lane.runtime.widths is None:
            return owed > 1
        return owed > 1 and lane.runtime.widths.down(owed - 1) > 0

    def _share_prompts(self, lane: Lane) -> None:
        """Let slots whose leader has absorbed the prompt begin with what it holds."""
        for slot in lane.busy:
            leader = slot.leader
            if leader is None:
                continue
            generation, sequence = _running(slot)
            if leader.generation is None or leader.generation not in generation.group:
                slot.leader = None  # it has gone, so this one absorbs the prompt itself
            elif not leader.prefilling:
                slot.leader = None
                try:
                    slot.memory.share(leader.memory)
                except RollbackRefusedError as error:
                    log.debug("%s; the prompt is absorbed again", error)
                generation.summary.cached_tokens = slot.memory.length
                slot.prefilling = self._owes(lane, sequence)
                leader_sequence = _running(leader)[1]
                sequence.prompt_scores = list(leader_sequence.prompt_scores)
                if sequence.score_prompt:
                    generation.prompt_entries = prompt_entries(sequence)

    def _play(self, lane: Lane) -> None:
        """One round for all generations whose prompt is absorbed.

        One whose last pass failed plays by itself until it commits, lest it take others along.
        """
        ready = [slot for slot in lane.busy if not slot.prefilling]
        together = [slot for slot in ready if not slot.failures]
        suspects = [slot for slot in ready if slot.failures]
        for slots in (together, *([slot] for slot in suspects)):
            if slots:
                self._play_round(lane, slots)

    def _play_round(self, lane: Lane, slots: list[Slot]) -> None:
        sequences = [_running(slot)[1] for slot in slots]
        before = [(len(s.committed), s.counts.accepted) for s in sequences]
        started, passes = time.perf_counter(), lane.runtime.passes
        try:
            lane.round.play(sequences)
            lane.rounds += 1
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
            lane.rounds += committed
        else:
            failure = None
        now = time.perf_counter()
        for slot, (length, accepted) in zip(slots, before, strict=True):
            generation, sequence = _running(slot)
            if len(sequence.committed) == length and sequence.fault is None:
                self._blame(lane, [slot], failure)
                continue
            summary, counts = generation.summary, generation.summary.counts
            summary.decode_seconds += now - started
            summary.passes += lane.runtime.passes - passes
            if not summary.first_token_seconds:
                summary.first_token_seconds = now - slot.entered
            slot.failures = 0
            if sequence.fault is not None:
                self._fail(lane, slot, sequence.fault)
                continue
            if sequence.finish is not None:
                self._leave(lane, slot, GenerationState.FINISHED, counts.accepted - accepted)
                continue
            # More than a round has room for is absorbed like a prompt.
            slot.prefilling = len(sequence.pending) > lane.share
            generation.tell(counts.accepted - accepted)

    def _recover(self, slots: list[Slot], error: SurefootError) -> None:
        """Forget memories that a failed pass left unknown; the journals stand."""
        log.warning("%s; absorbing %d sequence(s) again from their tokens", error, len(slots))
        for slot in slots:
            slot.memory.clear()
            slot.prefilling = len(_running(slot)[1].pending) > 1
            _running(slot)[0].summary.recoveries += 1

    def _blame(self, lane: Lane, slots: list[Slot], error: SurefootError | None) -> None:
        """Count a pass that failed and committed nothing; give up who has had too many."""
        for slot in slots:
            slot.failures += 1
            if slot.failures > FAILURES_ALLOWED:
                self._fail(lane, slot, f"{error} ({slot.failures} times in a row)")

    # Ends

    def _leave(
        self,
        lane: Lane,
        slot: Slot,
        state: GenerationState,
        accepted: int = 0,
        *,
        keep: bool = True,
    ) -> None:
        """Take a generation out of its slot, which keeps the memory for the next turn or not."""
        generation, sequence = _running(slot)
        self._clock += 1
        if keep:
            slot.release(self._clock, sequence.committed)
        else:
            slot.discard(self._clock)
        if lane.drafter is not None:
            lane.drafter.forget(sequence)
        self._end(generation, state, accepted)
        if state is GenerationState.FINISHED and self.self_check and self.self_check.wants():
            self._check_later(generation, sequence)

    def _fail(self, lane: Lane, slot: Slot, reason: str) -> None:
        generation, _ = _running(slot)
        generation.error = reason
        self._leave(lane, slot, GenerationState.FAILED, keep=False)

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
            if generation.sequence.control is not None:
                thought = generation.sequence.control.reasoning_tokens
                generation.summary.reasoning_tokens = thought
        generation.summary.generated_tokens = len(generation.tokens)
        self.totals.add(state.value, generation.summary)
        generation.tell(accepted)

    # Self-check

    def _check_later(self, generation: Generation, sequence: Sequence) -> None:
        request = generation.request
        if self.self_check is None or request.rule != "coupled" or not generation.tokens:
            return

        def make(lane: Lane) -> Sequence:
            control, breakers = self.controls_of(request), self._breakers_of(request)
            fresh = sequence_for(request, lane, lane.slots[0], control, breakers)
            fresh.wish = None
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
        lane = self._checking.get(strict)
        if lane is None:
            try:
                lane = self._checking[strict] = self._open(strict=strict, drafts=False)
            except SurefootError as error:
                log.warning("an answer can't be checked: %s", error)
                self.self_check.give_up()
                return
        self.self_check.step(lane)


def _running(slot: Slot) -> tuple[Generation, Sequence]:
    """The generation of a busy slot, and its sequence."""
    generation = slot.generation
    assert generation is not None
    assert generation.sequence is not None
    return generation, generation.sequence


def _age(slot: Slot) -> int:
    return _running(slot)[0].id
