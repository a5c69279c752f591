"""The engine in its thread: many submit and cancel, nothing polls, nobody is left untold."""

import threading
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Series

import numpy as np
import pytest
from numpy.typing import NDArray

from surefoot.decoding import Feed
from surefoot.engine import (
    Delta,
    Engine,
    EngineStoppedError,
    EngineThread,
    Generation,
    GenerationState,
    PromptTooLongError,
    Request,
)
from surefoot.runtime.simulated import SimulatedRuntime
from tests.engine.playing import LANGUAGE, Asker, runtime_of

PROMPTS = [[300 + 7 * number, *range(260, 262 + 3 * number)] for number in range(6)]
PATIENCE = 20.0


class Heard:
    """Listens to one request."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._over = threading.Event()

    def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)
        if delta.state.over:
            self._over.set()

    def wait(self) -> GenerationState:
        """The state in which it ended."""
        assert self._over.wait(PATIENCE), "nobody told that it is over"
        return self.deltas[-1].state


class Gate:
    """Holds the engine in the middle of a pass; to be given to a runtime as `decode_seconds`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, tokens: int) -> float:  # noqa: ARG002
        self.reached.set()
        assert self.open.wait(PATIENCE)
        return 0.0


class Counting(Engine):
    """Counts how often it is asked whether there is anything to do, and how often it does it."""

    asked = 0
    steps = 0

    @property
    def idle(self) -> bool:
        self.asked += 1
        return super().idle

    def step(self) -> None:
        self.steps += 1
        super().step()


class Faulty(SimulatedRuntime):
    """A runtime with a bug: passes raise what no runtime should, as long as it is told to."""

    broken = False

    def decode(self, feeds: Series[Feed]) -> list[NDArray[np.float32]]:
        if self.broken:
            raise RuntimeError("a bug")
        return super().decode(feeds)


@pytest.fixture
def started() -> Iterator[Callable[[Engine], EngineThread]]:
    """Starts threads, and stops them after the test."""
    threads: list[EngineThread] = []

    def start(engine: Engine) -> EngineThread:
        thread = EngineThread(engine)
        thread.start()
        threads.append(thread)
        return thread

    yield start
    for thread in threads:
        thread.stop()


Start = Callable[[Engine], EngineThread]


def test_many_threads_submit_at_once_and_each_hears_its_own_text(started: Start) -> None:
    asker = Asker("hybrid")
    thread = started(Engine(runtime_of("hybrid", slots=3), asker.drafter(PROMPTS), max_draft=4))
    texts = [asker.says(prompt) for prompt in PROMPTS]
    heard = [[Heard() for _ in range(5)] for _ in PROMPTS]

    def client(number: int) -> None:
        for listener in heard[number]:
            thread.submit(asker.request(PROMPTS[number]), listener)

    clients = [threading.Thread(target=client, args=[number]) for number in range(len(PROMPTS))]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    for text, listeners in zip(texts, heard, strict=True):
        for listener in listeners:
            assert listener.wait() is GenerationState.FINISHED
            assert [token for delta in listener.deltas for token in delta.tokens] == text


def test_it_sleeps_without_polling_while_there_is_nothing_to_do(started: Start) -> None:
    asker = Asker("hybrid")
    engine = Counting(runtime_of("hybrid"))
    thread = started(engine)
    listener = Heard()
    thread.submit(asker.request(PROMPTS[0]), listener)
    listener.wait()
    time.sleep(0.05)  # to fall asleep
    before = engine.asked, engine.steps
    time.sleep(0.4)
    assert (engine.asked, engine.steps) == before
    # It wakes at once for new work: no timer has to run out.
    listener = Heard()
    thread.submit(asker.request(PROMPTS[0], max_tokens=1), listener)
    listener.wait()
    assert engine.steps - before[1] <= 2


def test_stop_tells_the_running_the_waiting_and_those_just_arrived() -> None:
    asker = Asker("hybrid")
    gate = Gate()
    thread = EngineThread(Engine(runtime_of("hybrid", slots=1, decode_seconds=gate)))
    listeners = [Heard() for _ in range(3)]
    generations = [thread.submit(asker.request(PROMPTS[0]), listeners[0])]
    thread.start()
    assert gate.reached.wait(PATIENCE)
    generations += [
        thread.submit(asker.request(PROMPTS[1]), listener) for listener in listeners[1:]
    ]
    stopper = threading.Thread(target=thread.stop)
    stopper.start()
    while not thread.stopping:
        time.sleep(0.001)
    with pytest.raises(EngineStoppedError, match="shutting down"):
        thread.submit(asker.request(PROMPTS[2]), lambda _: None)
    gate.open.set()
    stopper.join(PATIENCE)
    assert not stopper.is_alive()
    for listener, generation in zip(listeners, generations, strict=True):
        assert listener.wait() is GenerationState.FAILED
        assert generation.error == "the server is shutting down"
        assert [delta.state.over for delta in listener.deltas].count(True) == 1
    thread.stop()  # once more does nothing


def test_stop_before_start_tells_those_who_have_come() -> None:
    thread = EngineThread(Engine(runtime_of("hybrid")))
    listener = Heard()
    thread.submit(Request((300,)), listener)
    thread.stop()
    assert listener.wait() is GenerationState.FAILED


def test_a_cancelled_request_ends_while_others_wait_for_its_slot(started: Start) -> None:
    asker = Asker("hybrid")
    gate = Gate()
    thread = started(Engine(runtime_of("hybrid", slots=1, decode_seconds=gate)))
    doomed, queued, after = Heard(), Heard(), Heard()
    first = thread.submit(asker.request(PROMPTS[0]), doomed)
    assert gate.reached.wait(PATIENCE)
    second = thread.submit(asker.request(PROMPTS[1]), queued)
    thread.submit(asker.request(PROMPTS[2]), after)
    assert thread.waiting == 2
    for generation in (first, second, first):
        thread.cancel(generation)
    gate.open.set()
    assert doomed.wait() is queued.wait() is GenerationState.CANCELLED
    assert after.wait() is GenerationState.FINISHED
    assert [t for delta in after.deltas for t in delta.tokens] == asker.says(PROMPTS[2])
    assert queued.deltas[-1].tokens == []
    assert thread.waiting == 0


def test_an_internal_error_fails_the_requests_and_the_thread_lives_on(
    started: Start, caplog: pytest.LogCaptureFixture
) -> None:
    asker = Asker("hybrid")
    runtime = Faulty("hybrid", slots=2, **LANGUAGE)
    thread = started(Engine(runtime))
    for _ in range(2):
        runtime.broken = True
        listeners = [Heard() for _ in range(3)]
        generations = [thread.submit(asker.request(PROMPTS[0]), one) for one in listeners]
        for listener, generation in zip(listeners, generations, strict=True):
            assert listener.wait() is GenerationState.FAILED
            assert generation.error == "internal error; see the server's log"
        runtime.broken = False
        listener = Heard()
        generation = thread.submit(asker.request(PROMPTS[1]), listener)
        assert listener.wait() is GenerationState.FINISHED
        assert generation.tokens == asker.says(PROMPTS[1])
    assert "a bug" in caplog.text


@pytest.mark.parametrize("when", ["first", "last"])
def test_a_listener_that_raises_harms_only_itself(started: Start, when: str) -> None:
    asker = Asker("hybrid")
    thread = started(Engine(runtime_of("hybrid", slots=2)))

    def bad(delta: Delta) -> None:
        if when == "first" or delta.state.over:
            raise ValueError("nobody is listening")

    good = [Heard(), Heard()]
    generations: list[Generation] = [
        thread.submit(asker.request(PROMPTS[0]), good[0]),
        thread.submit(asker.request(PROMPTS[1]), bad),
        thread.submit(asker.request(PROMPTS[2]), good[1]),
    ]
    for listener in good:
        assert listener.wait() is GenerationState.FINISHED
    assert generations[0].tokens == asker.says(PROMPTS[0])
    assert generations[2].tokens == asker.says(PROMPTS[2])
    expected = GenerationState.CANCELLED if when == "first" else GenerationState.FINISHED
    assert generations[1].state is expected


def test_a_prompt_that_is_too_long_is_refused_where_it_is_submitted(started: Start) -> None:
    thread = started(Engine(runtime_of("hybrid", context_length=32)))
    with pytest.raises(PromptTooLongError):
        thread.submit(Request((300,) * 32), lambda _: None)
    assert thread.waiting == 0
