"""Admission: which waiting generations enter which slots, and when. Their order is `queue.py`'s."""

import logging
import time

from surefoot.decoding import ControlError, SurefootError
from surefoot.engine.cache import PromptCache
from surefoot.engine.deadlines import time_is_up
from surefoot.engine.generation import Generation, GenerationState
from surefoot.engine.lane import Lane
from surefoot.engine.lanes import Lanes
from surefoot.engine.making import Maker
from surefoot.engine.player import Ends
from surefoot.engine.queue import Queue
from surefoot.engine.request import Request
from surefoot.engine.reuse import Reuse
from surefoot.engine.slot import Slot

log = logging.getLogger(__name__)


class Admission:
    """The generations that wait for a slot.

    Args:
        lanes: where the slots are.
        maker: makes their sequences.
        ends: whom to tell of generations that are over.
        queue: where they wait.
        synthetic: whether drafts are judged by chance.
        cache: the main lane's.

    Attributes:
        waiting: the queue.
    """

    def __init__(
        self,
        lanes: Lanes,
        maker: Maker,
        ends: Ends,
        queue: Queue,
        cache: PromptCache,
        *,
        synthetic: bool,
    ) -> None:
        self.waiting = queue
        self._lanes = lanes
        self._maker = maker
        self._ends = ends
        self._cache = cache
        self._synthetic = synthetic

    def drop_cancelled(self) -> None:
        """End those that were cancelled while they waited."""
        for generation in [g for g in self.waiting if g.cancelled]:
            self.waiting.remove(generation)
            self._ends.end(generation, GenerationState.CANCELLED)

    def drop_overdue(self, now: float) -> None:
        """End those whose deadline has passed, and give up those that have waited too long."""
        for generation in self.waiting:
            if (finish := time_is_up(generation, now)) is not None:
                generation.finish = finish
                self.waiting.remove(generation)
                self._ends.end(generation, GenerationState.FINISHED)
        for generation in self.waiting.overdue(now):
            self.waiting.remove(generation)
            self.waiting.timed_out += 1
            generation.retry_after = self.waiting.retry_after(1 + len(self.waiting))
            waited = now - generation.submitted
            self._ends.end(
                generation,
                GenerationState.FAILED,
                error=f"the server is busy: no slot came free in {waited:.1f} s "
                f"(--queue-timeout, queue_timeout); try again in {generation.retry_after} s",
            )

    def fail_all(self, reason: str) -> None:
        """Give all of them up."""
        for generation in self.waiting:
            self.waiting.remove(generation)
            self._ends.end(generation, GenerationState.FAILED, error=reason)

    def admit(self) -> None:
        """Put waiting generations into idle slots, a group at a time, in the queue's order.

        A group that needs more slots than are idle waits for them, and all behind it wait, too. One
        that waits for a certain slot keeps that from those behind it, and nothing else.
        """
        blocked = {False: False, True: False}
        reserved: set[int] = set()
        for generation in list(self.waiting):
            request = generation.request
            strict = request.exact == "strict"
            if generation.state is not GenerationState.WAITING or blocked[strict]:
                continue
            group = [g for g in generation.group if g.state is GenerationState.WAITING]
            if request.slot is not None and not strict:
                places = self._one_place(request.slot, reserved)
            else:
                places = self._places(group, reserved, strict=strict)
            if places:
                self._enter_group(group, places)
            elif places is not None:
                continue  # it has failed
            elif request.slot is not None and not strict:
                reserved.add(request.slot)
            else:
                blocked[strict] = True

    def _one_place(self, number: int, reserved: set[int]) -> list[tuple[Lane, Slot]] | None:
        """The slot that a request waits for; None if it is not free, or somebody else's turn."""
        slot = self._lanes.main.slots[number]
        free = slot.generation is None and number not in reserved
        return [(self._lanes.main, slot)] if free else None

    def _places(
        self, group: list[Generation], reserved: set[int], *, strict: bool
    ) -> list[tuple[Lane, Slot]] | None:
        """Idle slots for a group, for the first where most of its prompt is known; None if they
        are too few. A group whose lanes can't be opened fails, and needs none.

        Args:
            group: the generations.
            reserved: slots for which others wait that came before.
            strict: whether they need lanes of their own.
        """
        prompt = group[0].request.prompt
        main = self._lanes.main
        free = [slot for at, slot in enumerate(main.slots) if at not in reserved]
        places = [(lane, slot) for lane in self._lanes.strict for slot in lane.idle]
        if not strict:
            places = [(main, slot) for slot in free if slot.generation is None]
        while (
            strict
            and len(places) < len(group)
            and len(self._lanes.strict) < self._lanes.main.runtime.slots
        ):
            try:
                lane = self._lanes.open_strict()
                places += [(lane, slot) for slot in lane.slots]
            except SurefootError as error:
                if len(self._lanes.strict) >= len(group):
                    break
                for generation in group:
                    self.waiting.remove(generation)
                    self._ends.end(generation, GenerationState.FAILED, error=str(error))
                return []
        if len(places) < len(group):
            return None
        known = [slot.reusable(prompt) for _, slot in places]
        if not strict and self._cache.best_elsewhere(prompt) > max(known):
            # It goes into any slot, so that what the others hold stays.
            places.sort(key=lambda place: place[1].last_used)
        else:
            places.sort(key=lambda place: (-place[1].reusable(prompt), place[1].last_used))
        return places[: len(group)]

    def _enter_group(self, group: list[Generation], places: list[tuple[Lane, Slot]]) -> None:
        """The first prefills the prompt; others in the same lane share its memory then."""
        leader: Slot | None = None
        for generation, (lane, slot) in zip(group, places, strict=True):
            self.waiting.remove(generation)
            shares = leader is not None and lane is self._lanes.main and lane.runtime.rollback.fork
            try:
                entered = self._enter(lane, slot, generation, leader if shares else None)
            except Exception as error:
                log.exception("a request could not be begun")
                self._ends.end(
                    generation, GenerationState.FAILED, error=f"internal error: {error!r}"
                )
                continue
            if entered and leader is None:
                leader = slot

    def _begin(self, lane: Lane, slot: Slot, request: Request, *, shares: bool) -> Reuse:
        """Take a slot's memory to what can be reused of a prompt."""
        if shares or request.score_prompt:
            slot.memory.clear()
            wanted = "log-probabilities of the prompt are wanted, so all of it is absorbed"
            return Reuse(reason=wanted if request.score_prompt else "")
        if not lane.strict:
            return self._cache.resume(slot, request.prompt)
        tokens = slot.rewind(request.prompt)
        whole = tokens >= len(request.prompt) - 1
        reason = "" if whole else "a strict request reuses what its own slot can go on from"
        return Reuse(tokens, "slot" if tokens else "", reason)

    def _enter(self, lane: Lane, slot: Slot, generation: Generation, leader: Slot | None) -> bool:
        """Put a generation into a slot; False if that was all there is to do.

        What can fail comes before the slot is taken.
        """
        request, summary = generation.request, generation.summary
        sequence = self._maker.sequence(request, lane, slot)
        summary.reuse = self._begin(lane, slot, request, shares=leader is not None)
        summary.cached_tokens = summary.reuse.tokens
        slot.checkpoint = slot.memory.length
        slot.stops = [] if lane.strict else self._cache.stops(request, slot.memory.length)
        generation.begin(sequence)
        summary.counts = sequence.counts
        summary.slot = -1 if lane.strict else lane.slots.index(slot)
        summary.synthetic = self._synthetic
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
            self._ends.fail(lane, slot, str(error), own=True)
            return False
        if sequence.finish is not None:
            self._ends.leave(lane, slot, GenerationState.FINISHED, keep=False)
            return False
        return True
