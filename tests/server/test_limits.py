"""Limits of load and time over HTTP: full queues, time-outs, deadlines, priorities."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from surefoot.engine import QueueSettings
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.gate import Gate
from tests.server.running import Running, until
from tests.server.test_metrics import figures


class Limited(Running):
    """A server with a queue; one slot, and a gate in front of each pass."""

    def __init__(self, gate: Gate, queue: QueueSettings, **settings: Any) -> None:
        runtime = SimulatedRuntime(
            vocabulary_size=512, slots=1, end_rate=0, decode_seconds=gate, **settings
        )
        super().__init__(runtime, gate=gate, queue=queue)


@pytest.fixture
def gate() -> Gate:
    return Gate()


class Asking(threading.Thread):
    """A client of its own, that waits for its answer."""

    def __init__(self, server: Running, **body: Any) -> None:
        super().__init__()
        self._server = server
        self._body = {"prompt": [300], "max_tokens": 3, **body}
        self.response: httpx.Response | None = None
        self.start()

    def run(self) -> None:
        with httpx.Client(base_url=self._server.url, timeout=30) as client:
            self.response = client.post("/v1/completions", json=self._body)

    @property
    def answer(self) -> httpx.Response:
        self.join(30)
        assert self.response is not None
        return self.response


def moved(gate: Gate) -> bool:
    """Let a pass run; always false, for those who wait for something else."""
    gate.let_last(1)
    return False


@pytest.fixture
def server(gate: Gate) -> Iterator[Running]:
    with Limited(gate, QueueSettings(limit=1)) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_full_queue_is_a_429_that_says_when_to_come_back(
    server: Running, gate: Gate, stream: bool
) -> None:
    running = Asking(server)
    until(lambda: server.idle_slots == 0)
    waiting = Asking(server)
    until(lambda: server.thread.waiting == 1)
    response = server.post("completions", {"prompt": [300], "stream": stream})
    assert response.status_code == 429
    assert int(response.headers["Retry-After"]) >= 1
    error = response.json()["error"]
    assert error["type"] == "rate_limit_error"
    assert error["code"] == "queue_full"
    assert "1 requests wait for a slot, and 1 may" in error["message"]
    assert f"try again in {response.headers['Retry-After']} s" in error["message"]
    assert figures(server)["surefoot_queue_refused_total"] == 1
    gate.open()
    assert [running.answer.status_code, waiting.answer.status_code] == [200, 200]
    assert server.post("completions", {"prompt": [300], "max_tokens": 1}).status_code == 200


def test_of_several_prompts_none_waits_if_not_all_can(server: Running, gate: Gate) -> None:
    response = server.post("completions", {"prompt": [[300], [301], [302]], "max_tokens": 1})
    assert response.status_code == 429
    gate.open()
    until(lambda: server.engine.idle and server.thread.waiting == 0)
    assert server.engine.totals.ended["finished"] == 0


def test_one_that_waits_too_long_gets_a_503_that_says_when_to_come_back(
    server: Running, gate: Gate
) -> None:
    running = Asking(server, max_tokens=20)
    until(lambda: server.idle_slots == 0)
    waiting = Asking(server, queue_timeout=0.01)
    until(lambda: server.thread.waiting == 1)
    until(lambda: not waiting.is_alive() or moved(gate))
    assert waiting.answer.status_code == 503
    assert int(waiting.answer.headers["Retry-After"]) >= 1
    error = waiting.answer.json()["error"]
    assert error["code"] == "queue_timeout"
    assert "no slot came free" in error["message"]
    assert figures(server)["surefoot_queue_timeouts_total"] == 1
    gate.open()
    assert running.answer.status_code == 200


def test_a_stream_that_waits_too_long_ends_with_an_error(server: Running, gate: Gate) -> None:
    """Its status has been sent by then."""
    running = Asking(server, max_tokens=20)
    until(lambda: server.idle_slots == 0)
    waiting = Asking(server, queue_timeout=0.01, stream=True)
    until(lambda: server.thread.waiting == 1)
    until(lambda: not waiting.is_alive() or moved(gate))
    assert '"code":"queue_timeout"' in waiting.answer.text
    assert "[DONE]" not in waiting.answer.text
    gate.open()
    assert running.answer.status_code == 200


@pytest.mark.parametrize("waits", [False, True], ids=["running", "waiting"])
def test_a_deadline_ends_an_answer_with_what_it_has(
    server: Running, gate: Gate, waits: bool
) -> None:
    if waits:
        Asking(server, max_tokens=50)
        until(lambda: server.idle_slots == 0)
    asking = Asking(server, max_tokens=50, deadline_seconds=0.05)
    until(lambda: server.thread.waiting == 1 if waits else server.idle_slots == 0)
    until(lambda: not asking.is_alive() or moved(gate))
    body = asking.answer.json()
    assert asking.answer.status_code == 200
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["surefoot"]["finish_cause"] == "deadline"
    assert body["usage"]["completion_tokens"] < 50
    assert (body["choices"][0]["text"] == "") == (body["usage"]["completion_tokens"] == 0)


def test_priorities_decide_who_goes_next(gate: Gate) -> None:
    with Limited(gate, QueueSettings()) as server:
        Asking(server)
        until(lambda: server.idle_slots == 0)
        low = Asking(server, priority=-1)
        until(lambda: server.thread.waiting == 1)
        high = Asking(server, priority=1)
        until(lambda: server.thread.waiting == 2)
        gate.let(1)
        assert [g.request.priority for g in server.engine.waiting] == [1, -1]
        gate.open()
        assert [low.answer.status_code, high.answer.status_code] == [200, 200]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("priority", 101),
        ("priority", 1.5),
        ("queue_timeout", -1),
        ("deadline_seconds", 0),
        ("deadline_seconds", "soon"),
        ("t_max_predict_ms", "long"),
    ],
)
def test_impossible_limits_are_refused_by_name(server: Running, field: str, value: Any) -> None:
    response = server.post("completions", {"prompt": [300], field: value})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == field


def test_limits_that_are_none_change_nothing(gate: Gate) -> None:
    gate.open()
    with Limited(gate, QueueSettings()) as server:
        plain = server.complete([300], seed=1, max_tokens=9)
        for body in ({"t_max_predict_ms": 0}, {"t_max_predict_ms": -1}, {"priority": 0}):
            assert server.complete([300], seed=1, max_tokens=9, **body) == plain


def test_graph_runs_are_told() -> None:
    runtime = SimulatedRuntime("hybrid", vocabulary_size=512, slots=2, end_rate=0)
    with Running(runtime) as server:
        answer = server.answer("completions", prompt=[300], max_tokens=9, seed=1)
        assert answer["surefoot"]["graph_runs"] == answer["surefoot"]["passes"] == 9
        assert answer["surefoot"]["finish_cause"] == "max tokens"
        assert figures(server)["surefoot_graph_runs_total"] == runtime.graph_runs == 9
