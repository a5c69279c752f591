"""A client that goes away: its slot is free within one round, and nobody else notices."""

import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.gate import Gate
from tests.server.running import Running, until


class Caller:
    """A client that can hang up at any time."""

    def __init__(self, server: Running, **body: Any) -> None:
        content = json.dumps(body).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            "Connection: close\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        address = urlsplit(server.url)
        assert address.hostname
        assert address.port
        self._socket = socket.create_connection((address.hostname, address.port), timeout=20)
        self._socket.sendall(head.encode() + content)

    def read(self) -> bytes:
        """All of the answer; the server closes the connection behind it."""
        with self._socket:
            return b"".join(iter(lambda: self._socket.recv(65536), b""))

    def hang_up(self) -> None:
        self._socket.close()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def server(gate: Gate) -> Iterator[Running]:
    """One slot, small passes, a gate in front of each."""
    runtime = SimulatedRuntime(
        vocabulary_size=512, slots=1, batch_size=16, end_rate=0, decode_seconds=gate
    )
    with Running(runtime, gate=gate) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_hangs_up_frees_its_slot_within_one_round(
    server: Running, gate: Gate, stream: bool
) -> None:
    caller = Caller(server, prompt=[300], stream=stream)
    gate.let(5)
    generation = server.generation()
    caller.hang_up()
    until(lambda: generation.cancelled)
    gate.let_last(1)
    until(lambda: server.idle_slots == 1)
    assert server.engine.rounds == 6
    assert generation.state.value == "cancelled"
    gate.open()
    fresh = SimulatedRuntime(vocabulary_size=512, end_rate=0)
    with Running(fresh) as other:
        expected = other.complete([300, 301], seed=1, max_tokens=30)
    assert server.complete([300, 301], seed=1, max_tokens=30) == expected


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_hangs_up_during_prefill_costs_one_more_pass_at_most(
    server: Running, gate: Gate, stream: bool
) -> None:
    caller = Caller(server, prompt=[300] * 1000, stream=stream)
    gate.let(3)
    generation = server.generation()
    caller.hang_up()
    until(lambda: generation.cancelled)
    gate.let_last(1)
    until(lambda: server.idle_slots == 1)
    assert server.engine.runtime.passes == 4


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_hangs_up_while_it_waits_never_gets_a_slot(
    server: Running, gate: Gate, stream: bool
) -> None:
    active = Caller(server, prompt=[300], max_tokens=20, seed=3)
    gate.let(2)
    queued = Caller(server, prompt=[301], stream=stream)
    until(lambda: server.thread.waiting == 1)
    gate.let(1)
    [waiting] = server.engine.waiting
    queued.hang_up()
    until(lambda: waiting.cancelled)
    gate.let(1)
    assert server.thread.waiting == 0
    gate.open()
    answer = json.loads(active.read().partition(b"\r\n\r\n")[2])
    assert answer["usage"]["completion_tokens"] == 20
    assert server.engine.rounds == 20
    assert waiting.sequence is None
    assert answer["choices"][0]["text"] == server.complete([300], max_tokens=20, seed=3)


def test_of_several_prompts_all_are_cancelled(server: Running, gate: Gate) -> None:
    caller = Caller(server, prompt=[[300], [301], [302]], stream=True)
    gate.let(2)
    until(lambda: server.thread.waiting == 2)
    first = server.generation()
    caller.hang_up()
    until(lambda: first.cancelled and all(g.cancelled for g in server.engine.waiting))
    gate.let_last(1)
    until(lambda: server.idle_slots == 1 and server.thread.waiting == 0)
    assert server.engine.rounds == 3


def test_an_answer_that_is_read_to_its_end_cancels_nothing(server: Running, gate: Gate) -> None:
    gate.open()
    caller = Caller(server, prompt=[300], max_tokens=5)
    assert b'"completion_tokens":5' in caller.read()
    assert server.complete([300], max_tokens=5)
