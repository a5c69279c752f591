"""Health: whether slots move, told from their journals and not from what anybody says.

A slot moves when it commits a token or absorbs a part of its prompt. Everything here is plain data.
"""

import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Series
from dataclasses import dataclass, field, replace
from typing import Literal

from surefoot.engine.generation import Generation
from surefoot.engine.lane import Lane
from surefoot.engine.slot import Slot

STALL_SECONDS = 30.0
"""A slot that has not moved for so long is stalled, if nothing else is asked for. A long pass on a
slow device may take as long by itself."""


@dataclass(frozen=True, slots=True)
class StalledSlot:
    """A slot that does not move.

    Attributes:
        slot: its number, over all lanes.
        request: whose it is.
        seconds: for how long it has not moved.
        since: when it moved last, in Unix time.
        phase: what it should be doing.
        why: what is known of the reason, in words.
    """

    slot: int
    request: int
    seconds: float
    since: float
    phase: Literal["prefill", "rounds"]
    why: str


@dataclass(frozen=True, slots=True)
class Health:
    """How an engine is.

    Attributes:
        status: "degraded" if a slot is stalled, or requests wait that nobody takes; "restarting"
            if the worker has died and is started again.
        live: whether anything moves that should; false if there is work and all of it stands still.
        reason: why it is degraded, in words; None if it is not.
        slots_idle: slots that are free.
        slots_busy: slots in use.
        strict_busy: strict requests, each of which has a lane of its own beside them.
        waiting: requests that wait for a slot.
        rounds: rounds played so far.
        stalled: the slots that do not move.
    """

    status: Literal["ok", "degraded", "restarting"] = "ok"
    live: bool = True
    reason: str | None = None
    slots_idle: int = 0
    slots_busy: int = 0
    strict_busy: int = 0
    waiting: int = 0
    rounds: int = 0
    stalled: list[StalledSlot] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Mark:
    """How far a slot had come, and when it got there."""

    request: int
    committed: int
    absorbed: int
    moved: float


class Pulse:
    """Keeps track of when each slot moved last.

    `beat` is for the engine's thread; `health` is for any, and writes nothing.

    Args:
        stall_seconds: see `STALL_SECONDS`.
        now: the time, by the clock of all calls.
        wall: tells Unix time.
    """

    def __init__(
        self, stall_seconds: float, now: float, wall: Callable[[], float] = time.time
    ) -> None:
        self._patience = stall_seconds
        self._beaten = now
        self._wall = wall
        self._marks: dict[Slot, _Mark] = {}

    def beat(self, lanes: Iterable[Lane], now: float) -> list[tuple[Lane, Slot]]:
        """Look at all slots, once a step; returns those that have a new generation."""
        entered = []
        marks: dict[Slot, _Mark] = {}
        for lane in lanes:
            fresh = {}
            for slot in lane.busy:
                generation, sequence = slot.running
                absorbed = generation.summary.prefilled_tokens
                mark = _Mark(generation.id, len(sequence.committed), absorbed, now)
                before = self._marks.get(slot)
                if before is None or before.request != mark.request:
                    entered.append((lane, slot))
                elif before.committed == mark.committed and before.absorbed == mark.absorbed:
                    mark = before
                fresh[slot] = mark
            # Prompts are absorbed in turn: who waits for its turn moves with those before it.
            if any(self._has_absorbed(slot, mark) for slot, mark in fresh.items()):
                for slot, mark in fresh.items():
                    if slot.prefilling:
                        fresh[slot] = replace(mark, moved=now)
            marks |= fresh
        self._marks = marks
        self._beaten = now
        return entered

    def health(self, lanes: Iterable[Lane], waiting: Series[Generation], now: float) -> Health:
        """How the slots are.

        Args:
            lanes: all lanes, the main one first.
            waiting: who waits for a slot.
            now: the time.
        """
        lanes = list(lanes)
        slots = [slot for lane in lanes for slot in lane.slots]
        busy = sum(slot.generation is not None for slot in slots)
        marks = self._marks
        stalled = [
            self._stalled(number, slot, marks[slot], now)
            for number, slot in enumerate(slots)
            if slot in marks
            and (generation := slot.generation)
            and generation.id == marks[slot].request
            and now - marks[slot].moved > self._patience
        ]
        # Who waits for slots that move has only to wait.
        longest = 0.0 if busy else max((now - each.submitted for each in waiting), default=0.0)
        abandoned = min(longest, now - self._beaten)
        reason = None
        if stalled:
            reason = f"{len(stalled)} of {busy} busy slots do not move: {stalled[0].why}"
        elif abandoned > self._patience:
            reason = f"requests have waited for {abandoned:.0f} s and nobody takes them"
        return Health(
            status="degraded" if reason else "ok",
            live=reason is None or len(stalled) < busy,
            reason=reason,
            slots_idle=len(lanes[0].idle),
            slots_busy=len(lanes[0].busy),
            strict_busy=busy - len(lanes[0].busy),
            waiting=len(waiting),
            rounds=sum(lane.rounds for lane in lanes),
            stalled=stalled,
        )

    def _has_absorbed(self, slot: Slot, mark: _Mark) -> bool:
        before = self._marks.get(slot)
        return before is not None and before.absorbed != mark.absorbed

    def _stalled(self, number: int, slot: Slot, mark: _Mark, now: float) -> StalledSlot:
        seconds, away = now - mark.moved, now - self._beaten
        if away > self._patience:
            why = f"the engine has not come back from a pass for {away:.0f} s"
        elif slot.failures:
            why = f"{slot.failures} passes in a row have failed"
        else:
            why = "the engine works, but not for it"
        return StalledSlot(
            slot=number,
            request=mark.request,
            seconds=seconds,
            since=self._wall() - seconds,
            phase="prefill" if slot.prefilling else "rounds",
            why=f"{why} (request {mark.request}, nothing for {seconds:.0f} s)",
        )
