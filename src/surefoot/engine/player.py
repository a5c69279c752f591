"""The player: absorbs prompts in chunks, and plays rounds, for the generations in a lane's slots.

Everything that must not get lost is in the sequences' journals: when a pass fails, the memory is
cleared and what was committed is absorbed again.
"""

import logging
import time
from functools import partial
from typing import Protocol

from surefoot.decoding import (
    DecodeError,
    RollbackRefusedError,
    Sequence,
    SurefootError,
    absorb_together,
)
from surefoot.engine.cache import PromptCache
from surefoot.engine.generation import Generation, GenerationState
from surefoot.engine.lane import Lane
from surefoot.engine.observing import Observer
from surefoot.engine.prefill_plan import chunk_room, shares
from surefoot.engine.reuse import Reuse
from surefoot.engine.slot import Slot

log = logging.getLogger(__name__)

FAILURES_ALLOWED = 2
"""A generation whose passes fail so often in a row, with nothing committed between, is given up."""


class Ends(Protocol):
    """Takes generations out of their slots."""

    def leave(
        self,
        lane: Lane,
        slot: Slot,
        state: GenerationState,
        accepted: int = 0,
        *,
        keep: bool = True,
    ) -> None:
        """Take a generation out of its slot, which keeps the memory for the next turn or not.

        Args:
            lane: whose slot it is.
            slot: a busy one.
            state: how the generation ended.
            accepted: how many of its last tokens were accepted draft tokens.
            keep: whether the memory is good.
        """

    def fail(self, lane: Lane, slot: Slot, reason: str, *, own: bool = False) -> None:
        """Take a generation out of its slot because it can't go on.

        Args:
            lane: where it is.
            slot: its slot.
            reason: why, in words.
            own: whether that lies in what the request asks for.
        """

    def end(
        self,
        generation: Generation,
        state: GenerationState,
        accepted: int = 0,
        error: str | None = None,
    ) -> None:
        """Tell the client of a generation, which has no slot any more, that it is over."""


class Player:
    """Moves generations on, one pass at a time.

    Args:
        ends: whom to tell of generations that are over.
        cache: the main lane's.
        observer: whom to tell of all that is done.
    """

    def __init__(self, ends: Ends, cache: PromptCache, observer: Observer) -> None:
        self._ends = ends
        self._cache = cache
        self._observer = observer
        self._prefills = 0

    def prefill(self, lane: Lane, *, beside_rounds: bool) -> None:
        """One pass that absorbs chunks of prompts, shared out by tokens; see `prefill_plan`.

        Args:
            lane: where.
            beside_rounds: whether generations, of any lane, wait for their next round meanwhile.
        """
        self._share_prompts(lane)
        runtime = lane.runtime
        room = chunk_room(runtime.batch_size, runtime.micro_batch_size, beside_rounds=beside_rounds)
        slots = self._next_to_prefill(lane)
        if not slots:
            return
        if slots[0].running[1].score_prompt:
            room = min(room, runtime.most_outputs)
        given = shares([slot.chunk(_owed(slot)) for slot in slots], room)
        wanted = [(slot.running[1], tokens) for slot, tokens in zip(slots, given, strict=True)]
        started = time.perf_counter()
        try:
            absorbed = absorb_together(runtime, wanted)
        except DecodeError as error:
            self._recover(slots, error)
            self._blame(lane, slots, error)
            return
        seconds = time.perf_counter() - started
        for slot, tokens in zip(slots, absorbed, strict=True):
            generation, sequence = slot.running
            generation.summary.prefill_seconds += seconds
            generation.summary.prefilled_tokens += tokens
            self._observer.absorbed(slot, tokens)
            self._cache.passed(slot)
            slot.prefilling = owes_prompt(lane, sequence)
        self._share_prompts(lane)

    def _next_to_prefill(self, lane: Lane) -> list[Slot]:
        """The slots whose prompts share the next pass; the one that has waited longest comes first.

        One whose last pass failed is by itself, lest it take others along, and so is one whose
        prompt's tokens are scored, since they take up outputs.
        """
        waiting = [slot for slot in lane.busy if slot.prefilling and slot.leader is None]
        waiting.sort(key=lambda slot: (slot.prefilled, slot.running[0].id))
        if not waiting:
            return []
        alone = [slot for slot in waiting if slot.failures or slot.running[1].score_prompt]
        slots = waiting[:1] if waiting[0] in alone else [s for s in waiting if s not in alone]
        self._prefills += 1
        for slot in slots[: lane.runtime.batch_size]:
            slot.prefilled = self._prefills
        return slots[: lane.runtime.batch_size]

    def _share_prompts(self, lane: Lane) -> None:
        """Let slots whose leader has absorbed the prompt begin with what it holds."""
        for slot in lane.busy:
            leader = slot.leader
            if leader is None:
                continue
            generation, sequence = slot.running
            if leader.generation is None or leader.generation not in generation.group:
                slot.leader = None  # it has gone, so this one absorbs the prompt itself
            elif not leader.prefilling:
                slot.leader = None
                try:
                    self._cache.share(leader, slot)
                except SurefootError as error:
                    log.debug("%s; the prompt is absorbed again", error)
                shared = slot.checkpoint = slot.memory.length
                generation.summary.cached_tokens = shared
                generation.summary.reuse = Reuse(shared, "slot" if shared else "")
                slot.prefilling = owes_prompt(lane, sequence)
                leader_sequence = leader.running[1]
                sequence.prompt_scores = list(leader_sequence.prompt_scores)

    def play(self, lane: Lane) -> None:
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
        sequences = [slot.running[1] for slot in slots]
        before = [(len(s.committed), s.counts.accepted) for s in sequences]
        started, passes = time.perf_counter(), lane.runtime.passes
        runs = lane.runtime.graph_runs
        try:
            lane.round.play(sequences, partial(self._observer.played, slots))
            lane.rounds += 1
        except DecodeError as error:
            self._recover(slots, error)
            failure: SurefootError | None = error
        except RollbackRefusedError as error:
            committed = len(sequences[0].committed) > before[0][0]
            lost = [slot for slot in slots if not (committed and slot.running[1].settled)]
            for slot in lost:
                # What was refused may be refused again, and plain decoding needs no way back.
                sequence = slot.running[1]
                sequence.max_draft = 0
                sequence.counts.add_failure("roll-back", str(error))
            self._recover(lost, error)
            failure = error
            lane.rounds += committed
        else:
            failure = None
        now = time.perf_counter()
        for slot, (length, accepted) in zip(slots, before, strict=True):
            generation, sequence = slot.running
            if len(sequence.committed) == length and sequence.fault is None:
                self._blame(lane, [slot], failure)
                continue
            summary, counts = generation.summary, generation.summary.counts
            summary.decode_seconds += now - started
            summary.passes += lane.runtime.passes - passes
            summary.graph_runs += lane.runtime.graph_runs - runs
            if not summary.first_token_seconds:
                summary.first_token_seconds = now - slot.entered
            slot.failures = 0
            if sequence.fault is not None:
                self._ends.fail(lane, slot, sequence.fault, own=sequence.own_fault)
                continue
            if sequence.finish is not None:
                self._ends.leave(lane, slot, GenerationState.FINISHED, counts.accepted - accepted)
                continue
            # More than a round has room for is absorbed like a prompt.
            if not lane.strict:
                self._cache.played(slot)
            slot.prefilling = len(sequence.pending) > lane.share
            self._observer.between(lane, slot)
            generation.tell(counts.accepted - accepted)

    def _recover(self, slots: list[Slot], error: SurefootError) -> None:
        """Forget memories that a failed pass left unknown; the journals stand."""
        log.warning("%s; absorbing %d sequence(s) again from their tokens", error, len(slots))
        for slot in slots:
            slot.memory.clear()
            slot.prefilling = len(slot.running[1].pending) > 1
            slot.running[0].summary.recoveries += 1
        self._observer.lost(slots, error)

    def _blame(self, lane: Lane, slots: list[Slot], error: SurefootError | None) -> None:
        """Count a pass that failed and committed nothing; give up who has had too many."""
        for slot in slots:
            slot.failures += 1
            if slot.failures > FAILURES_ALLOWED:
                self._ends.fail(lane, slot, f"{error} ({slot.failures} times in a row)")


def owes_prompt(lane: Lane, sequence: Sequence) -> bool:
    """Whether a prompt has to be absorbed further before a round can be played."""
    owed = len(sequence.pending)
    if lane.runtime.widths is None:
        return owed > 1
    return owed > 1 and lane.runtime.widths.down(owed - 1) > 0


def _owed(slot: Slot) -> int:
    """Tokens of a prompt that are to be absorbed; the last one is left for the first round."""
    return len(slot.running[1].pending) - 1
