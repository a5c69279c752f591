"""Health tells the truth: a slot that does not move makes the engine degraded (case C3).

The clock is the test's own.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from surefoot.engine import Engine
from surefoot.engine.lane import Lane
from surefoot.engine.player import Player
from surefoot.engine.slot import Slot
from tests.engine.playing import Asker, play, runtime_of

PROMPT = list(range(300, 340))
ASKER = Asker("hybrid", length=24)


class Clock:
    """Stands still unless it is put forward."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def engine_with(clock: Clock, **settings: Any) -> Engine:
    return Engine(runtime_of("hybrid", **settings), stall_seconds=30, clock=clock)


def test_an_idle_engine_is_well_however_long_it_is_idle(clock: Clock) -> None:
    engine = engine_with(clock)
    assert engine.health().status == "ok"
    engine.run(ASKER.request([300, 301]))
    clock.now += 1e6
    health = engine.health()
    assert (health.status, health.live, health.reason, health.stalled) == ("ok", True, None, [])


def test_a_pass_that_does_not_come_back_is_told_from_outside(clock: Clock) -> None:
    """The engine's thread hangs in a pass, as in a driver that never answers."""
    stuck, go_on = threading.Event(), threading.Event()

    def hang(_: int) -> float:
        if engine.rounds == 3:
            stuck.set()
            assert go_on.wait(20)
        return 0.0

    engine = engine_with(clock, decode_seconds=hang)
    generation = engine.submit(ASKER.request([300, 301]), lambda _: None)
    thread = threading.Thread(target=play, args=[engine])
    thread.start()
    try:
        assert stuck.wait(20)
        clock.now += 30
        assert engine.health().status == "ok"
        clock.now += 13
        health = engine.health()
    finally:
        go_on.set()
        thread.join()
    assert (health.status, health.live) == ("degraded", False)
    [stalled] = health.stalled
    assert (stalled.slot, stalled.request, stalled.phase) == (0, generation.id, "rounds")
    assert stalled.seconds == 43
    assert "the engine has not come back from a pass for 43 s" in stalled.why
    assert health.reason == f"1 of 1 busy slots do not move: {stalled.why}"
    assert engine.health().status == "ok"


def test_a_prompt_that_is_absorbed_slowly_is_progress(clock: Clock) -> None:
    """So is to wait for the turn behind another one's prompt."""
    engine = engine_with(clock, batch_size=8, slots=2)
    for first in (300, 301):
        engine.submit(ASKER.request([first, *PROMPT]), lambda _: None)
    while any(slot.prefilling for slot in engine.slots) or not engine.rounds:
        engine.step()
        assert engine.health().status == "ok"
        clock.now += 20
    assert clock.now > 1000 + 60


def test_one_slot_that_stands_still_beside_one_that_moves_is_degraded_and_alive(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Player._play_round

    def favour(player: Player, lane: Lane, slots: list[Slot]) -> None:
        real(player, lane, slots[:1])

    monkeypatch.setattr(Player, "_play_round", favour)
    engine = engine_with(clock, slots=2)
    for prompt in ([300, 301], [302, 303]):
        engine.submit(ASKER.request(prompt), lambda _: None)
    for _ in range(10):
        engine.step()
        clock.now += 5
    health = engine.health()
    assert (health.status, health.live) == ("degraded", True)
    assert [stalled.slot for stalled in health.stalled] == [1]
    assert "the engine works, but not for it" in health.stalled[0].why
    assert health.slots_busy == 2


def test_requests_that_nobody_takes_are_told(clock: Clock) -> None:
    engine = engine_with(clock)
    engine.submit(ASKER.request([300, 301]), lambda _: None)
    clock.now += 30
    assert engine.health().status == "ok"
    clock.now += 1
    health = engine.health()
    assert (health.status, health.live, health.waiting) == ("degraded", False, 1)
    assert health.reason == "requests have waited for 31 s and nobody takes them"
    play(engine)
    assert engine.health().status == "ok"


def test_to_wait_behind_slots_that_move_is_no_illness(clock: Clock) -> None:
    engine = engine_with(clock)
    for _ in range(3):
        engine.submit(ASKER.request([300, 301]), lambda _: None)
    while engine.waiting:
        engine.step()
        clock.now += 20
        assert engine.health().status == "ok"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_new_request_in_a_slot_does_not_inherit_its_predecessors_age(
    clock: Clock, moment: str
) -> None:
    engine = engine_with(clock)
    step: Callable[[], None] = engine.step
    for _ in range(2):
        generation = engine.submit(ASKER.request([300, 301]), lambda _: None)
        clock.now += 100 if moment == "before" else 0
        step()
        assert engine.health().status == "ok"
        while not generation.state.over:
            step()
        clock.now += 100 if moment == "after" else 0
