"""The queue: how many wait and how long, who goes first, and when time is up."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from surefoot.decoding import InvalidParameterError, Sampling
from surefoot.engine import (
    Engine,
    EngineThread,
    Generation,
    QueueFullError,
    QueueSettings,
    Request,
)
from surefoot.engine.queue import AGEING_SECONDS, LONGEST_RETRY, UNKNOWN_RETRY, Queue
from tests.engine.playing import ALL_KINDS, Asker, play, runtime_of

PROMPT = [300, 301]
LONG = [256 + number % 200 for number in range(300)]


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def engine_with(
    clock: Clock,
    kind: str = "hybrid",
    limit: int | None = None,
    timeout: float | None = None,
    **settings: Any,
) -> Engine:
    """An engine with a queue and a clock."""
    runtime = runtime_of(kind, **settings)
    return Engine(runtime, queue=QueueSettings(limit, timeout), clock=clock)


def submit(engine: Engine, **fields: Any) -> Generation:
    return engine.submit(Request(**{"prompt": (300,), "max_tokens": 20, **fields}), lambda _: None)


# Limits


def test_as_many_wait_as_may_and_the_next_is_refused_in_words() -> None:
    engine = engine_with(Clock(), limit=2, slots=2)
    taken = [submit(engine) for _ in range(4)]  # two for the slots that are free, two wait
    with pytest.raises(QueueFullError, match=r"may \(--queue\); try again in 2 s") as error:
        submit(engine)
    assert error.value.retry_after == UNKNOWN_RETRY
    engine.step()
    with pytest.raises(QueueFullError, match="2 requests wait"):
        submit(engine)
    assert engine.queue.refused == 2
    play(engine)
    assert all(g.state.value == "finished" for g in taken)
    submit(engine)


def test_a_limit_of_0_lets_those_in_that_find_a_slot() -> None:
    engine = engine_with(Clock(), limit=0, slots=1)
    submit(engine)
    with pytest.raises(QueueFullError):
        submit(engine)
    play(engine)
    submit(engine)


def test_a_group_needs_a_place_for_each_of_its_texts() -> None:
    engine = engine_with(Clock(), limit=1, slots=2)
    request = Request(prompt=(300,), max_tokens=4)
    engine.submit_group([request, request], [lambda _: None] * 2)
    with pytest.raises(QueueFullError):
        engine.submit_group([request, request], [lambda _: None] * 2)
    assert len(engine.waiting) == 2
    submit(engine)


def test_the_engines_thread_counts_those_that_it_has_not_taken_in_yet() -> None:
    thread = EngineThread(engine_with(Clock(), limit=2, slots=1))
    request = Request(prompt=(300,), max_tokens=4)
    for _ in range(3):
        thread.submit(request, lambda _: None)
    with pytest.raises(QueueFullError):
        thread.submit(request, lambda _: None)
    thread.stop()


@pytest.mark.parametrize(("field", "value"), [("limit", -1), ("timeout", 0), ("timeout", -1.0)])
def test_impossible_limits_are_refused_in_words(field: str, value: float) -> None:
    with pytest.raises(InvalidParameterError, match=r"queue.*must be"):
        QueueSettings(**{field: value})  # type: ignore[arg-type]


def test_when_to_come_back_follows_from_how_long_requests_take() -> None:
    queue = Queue(QueueSettings(), slots=4)
    assert queue.retry_after(1) == UNKNOWN_RETRY
    for _ in range(50):
        queue.served(20.0)
    assert queue.retry_after(1) == 5
    assert queue.retry_after(10) == 50
    assert queue.retry_after(10**6) == LONGEST_RETRY
    for _ in range(50):
        queue.served(0.01)
    assert queue.retry_after(1) == 1


# Time-outs


def test_one_that_has_waited_too_long_is_given_up_and_told_when_to_come_back() -> None:
    clock = Clock()
    engine = engine_with(clock, timeout=5.0)
    running, waiting = submit(engine, max_tokens=60), submit(engine)
    engine.step()
    clock.now += 4.9
    engine.step()
    assert waiting.state.value == "waiting"
    clock.now += 0.1
    engine.step()
    assert waiting.state.value == "failed"
    assert waiting.error is not None
    assert "no slot came free in 5.0 s" in waiting.error
    assert waiting.retry_after == UNKNOWN_RETRY
    assert engine.queue.timed_out == 1
    assert running.state.value == "running"
    clock.now += 100
    play(engine)
    assert running.state.value == "finished"
    assert running.retry_after is None


def test_a_requests_own_time_out_counts_in_place_of_the_servers() -> None:
    clock = Clock()
    engine = engine_with(clock, timeout=5.0)
    submit(engine, max_tokens=60)
    patient, hasty = submit(engine, queue_timeout=100), submit(engine, queue_timeout=0)
    engine.step()
    assert hasty.state.value == "failed"
    clock.now += 50
    engine.step()
    assert patient.state.value == "waiting"
    play(engine)
    assert patient.state.value == "finished"


def test_one_that_gets_a_slot_at_once_waits_for_none() -> None:
    engine = engine_with(Clock(), timeout=5.0)
    generation = submit(engine, queue_timeout=0)
    play(engine)
    assert generation.state.value == "finished"


# Priorities


def order_of(engine: Engine, generations: list[Generation]) -> list[int]:
    """The places of generations in the order in which they enter the one slot."""
    entered: list[int] = []
    while not engine.idle:
        engine.step()
        entered += [
            index
            for index, generation in enumerate(generations)
            if generation.sequence is not None and index not in entered
        ]
    return entered


def test_higher_priorities_go_first_and_equals_in_the_order_of_arrival() -> None:
    engine = engine_with(Clock())
    submit(engine)
    engine.step()
    priorities = [0, 5, -3, 5, 0, 100]
    generations = [submit(engine, priority=p, max_tokens=1) for p in priorities]
    assert order_of(engine, generations) == [5, 1, 3, 0, 4, 2]


def test_who_has_waited_long_enough_goes_before_who_matters_more() -> None:
    """So nobody starves, however many come with a higher priority."""
    clock = Clock()
    engine = engine_with(clock)
    submit(engine, max_tokens=40)
    engine.step()
    old = submit(engine, priority=0, max_tokens=1)
    clock.now += 2 * AGEING_SECONDS + 1
    younger = [submit(engine, priority=p, max_tokens=1) for p in (2, 3)]
    assert order_of(engine, [old, *younger]) == [2, 0, 1]


def test_a_stream_of_important_requests_starves_nobody() -> None:
    clock = Clock()
    engine = engine_with(clock)
    submit(engine, max_tokens=1)
    old = submit(engine, priority=0, max_tokens=1)
    for _ in range(200):
        if old.state.over:
            break
        clock.now += 1.0
        submit(engine, priority=5, max_tokens=1)
        engine.step()
    assert old.state.value == "finished"
    assert clock.now - old.submitted <= 5 * AGEING_SECONDS + 2


def test_a_group_that_needs_more_slots_is_not_overtaken_for_ever() -> None:
    engine = engine_with(Clock(), slots=2)
    submit(engine, max_tokens=10)
    engine.step()
    request = Request(prompt=(300,), max_tokens=4)
    group = engine.submit_group([request, request], [lambda _: None] * 2)
    behind = submit(engine, max_tokens=1)
    engine.step()
    assert behind.state.value == "waiting"
    play(engine)
    assert all(g.state.value == "finished" for g in [*group, behind])


# Deadlines


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("steps", [1, 3, 8])
@pytest.mark.parametrize("prompt", [LONG, PROMPT], ids=["long", "short"])
def test_a_deadline_ends_a_request_with_what_it_has(
    kind: str, steps: int, prompt: list[int]
) -> None:
    """While its prompt is absorbed, and between rounds; within one step and without a pass."""
    clock = Clock()
    asker = Asker(kind, length=60)
    engine = engine_with(clock, kind, batch_size=64)
    generation = engine.submit(asker.request(prompt, deadline_seconds=3.0), lambda _: None)
    for _ in range(steps):
        engine.step()
    tokens, passes = generation.tokens, engine.runtime.passes
    clock.now += 3.0
    engine.step()
    assert engine.runtime.passes == passes
    assert generation.state.value == "finished"
    assert generation.finish == ("length", "deadline")
    assert generation.summary.cause == "deadline"
    assert generation.tokens == tokens == asker.says(prompt)[: len(tokens)]
    after = [*prompt, *tokens, 300]
    assert engine.run(asker.request(after)).tokens == asker.says(after)


def test_a_deadline_counts_while_a_request_waits() -> None:
    clock = Clock()
    engine = engine_with(clock)
    running, waiting = submit(engine, max_tokens=60), submit(engine, deadline_seconds=2.0)
    engine.step()
    clock.now += 2.0
    engine.step()
    assert waiting.finish == ("length", "deadline")
    assert waiting.state.value == "finished"
    assert waiting.tokens == []
    play(engine)
    assert running.summary.generated_tokens == 60


def test_one_slots_deadline_leaves_the_others_alone() -> None:
    clock = Clock()
    asker = Asker("hybrid", length=40)
    engine = engine_with(clock, slots=2)
    short = engine.submit(asker.request(PROMPT, deadline_seconds=1.0), lambda _: None)
    other = engine.submit(asker.request([310]), lambda _: None)
    for _ in range(5):
        engine.step()
    clock.now += 1.0
    play(engine)
    assert short.finish == ("length", "deadline")
    assert other.tokens == asker.says([310])


def test_a_time_limit_counts_from_the_first_token_and_waits_for_a_line() -> None:
    """llama-server's t_max_predict_ms."""
    clock = Clock()
    newline = ord("\n")
    engine = engine_with(clock, "attention", batch_size=64)
    # With this seed the first line has 46 tokens.
    sampling = Sampling(seed=3, temperature=1.5, logit_bias=((newline, 4.0),))
    line = submit(
        engine, prompt=tuple(LONG), max_tokens=200, max_predict_seconds=1.0, sampling=sampling
    )
    for _ in range(5):
        clock.now += 10  # its prompt takes long, and that does not count
        engine.step()
    assert not line.state.over
    while newline not in line.tokens:
        clock.now += 10
        engine.step()
        assert not line.state.over, "ended within its first line"
    assert len(line.tokens) == 47
    engine.step()
    assert line.finish == ("length", "time limit")
    assert "\n" in line.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 101),
        ("priority", -101),
        ("queue_timeout", -1),
        ("deadline_seconds", 0),
        ("max_predict_seconds", -2),
        ("deadline_seconds", float("nan")),
    ],
)
def test_impossible_wishes_are_refused_in_words(field: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{field}: must"):
        Request(prompt=(300,), **{field: value})


# Cancellation


def stage(engine: Engine, reached: Callable[[], bool]) -> None:
    for _ in range(500):
        if reached():
            return
        engine.step()
    raise AssertionError("the stage is never reached")


@pytest.mark.parametrize("kind", ["attention", "hybrid", "recurrent-snapshots"])
@pytest.mark.parametrize("which", ["leader", "follower"])
@pytest.mark.parametrize("when", ["waiting", "sharing", "playing"])
def test_one_of_a_group_is_cancelled_at_any_stage(kind: str, which: str, when: str) -> None:
    """Cases N1 and N2: while it waits, while it shares the first one's prompt, in rounds."""
    asker = Asker(kind)
    engine = engine_with(Clock(), kind, slots=3, batch_size=32)
    requests = [asker.request(LONG) for _ in range(3)]
    group = engine.submit_group(requests, [lambda _: None] * 3)
    doomed = group[0 if which == "leader" else 1]
    if when != "waiting":
        engine.step()
        engine.step()
        assert [slot.leader is None for slot in engine.slots].count(True) == 1
    if when == "playing":
        stage(engine, lambda: bool(doomed.tokens))
    doomed.cancelled = True
    engine.step()
    assert doomed.state.value == "cancelled"
    play(engine)
    rest = [g for g in group if g is not doomed]
    assert [g.tokens for g in rest] == [asker.says(LONG)] * 2
    again = engine.run(asker.request(LONG))
    assert again.tokens == asker.says(LONG)


def test_the_order_survives_whoever_leaves_the_queue() -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    draws = random.Random(seed)
    clock = Clock()
    engine = engine_with(clock)
    submit(engine, max_tokens=1)
    generations = []
    for _ in range(60):
        clock.now += draws.choice([0.0, 1.0, 15.0])
        generations.append(submit(engine, priority=draws.randint(-3, 3), max_tokens=1))
    for generation in draws.sample(generations, 15):
        generation.cancelled = True
    entered = order_of(engine, generations)
    due = sorted(
        (i for i, g in enumerate(generations) if g.state.value == "finished"),
        key=lambda i: generations[i].submitted - AGEING_SECONDS * generations[i].request.priority,
    )
    assert entered == due
    assert len(due) == 45


def test_who_waits_for_a_slot_keeps_it_from_later_ones_and_nothing_else() -> None:
    engine = engine_with(Clock(), slots=2)
    running = [submit(engine, slot=at, max_tokens=length) for at, length in ((0, 30), (1, 5))]
    engine.step()
    waiting, other, late = submit(engine, slot=0), submit(engine), submit(engine)
    while not other.state.over:
        engine.step()
    # Slot 1 came free first, and who waits for slot 0 did not hold the others up.
    assert not running[0].state.over
    assert waiting.state.value == "waiting"
    play(engine)
    assert [g.summary.slot for g in (*running, waiting, other, late)] == [0, 1, 0, 1, 1]
