"""`/health`, `/metrics` and responses say what the watchdog and the pulse have found."""

from typing import Any

from surefoot.decoding import Sequence
from surefoot.engine import Engine
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.gate import Gate
from tests.server.running import Running, until
from tests.support.planned_drafters import FunctionDrafter

STUCK: dict[str, Any] = {"temperature": 0, "logit_bias": {"350": 100}}


def wrong(_: Sequence, most: int) -> list[int]:
    return [351] * most


def test_health_is_a_503_with_the_slot_and_the_reason_when_nothing_moves() -> None:
    gate, now = Gate(), [0.0]
    runtime = SimulatedRuntime(vocabulary_size=512, decode_seconds=gate)
    engine = Engine(runtime, stall_seconds=30, clock=lambda: now[0])
    body = {"prompt": [300], "stream": True, "temperature": 0, "max_tokens": 40}
    with (
        Running(runtime, gate=gate, engine=engine) as server,
        server.client.stream("POST", "/v1/completions", json=body),
    ):
        gate.let(3)
        assert server.client.get("/health").status_code == 200
        now[0] += 31
        response = server.client.get("/health")
        health = response.json()
        assert response.status_code == 503
        assert (health["status"], health["live"]) == ("degraded", False)
        [stalled] = health["stalled"]
        assert (stalled["slot"], stalled["seconds"]) == (0, 31)
        assert health["error"]["type"] == "unavailable_error"
        assert health["reason"] in health["error"]["message"]
        assert "surefoot_slots_stalled 1.0" in server.client.get("/metrics").text
        gate.open()
        until(lambda: server.client.get("/health").json()["status"] == "ok")


def test_a_response_says_why_its_speculation_was_turned_off() -> None:
    with Running(SimulatedRuntime(vocabulary_size=512), FunctionDrafter(wrong)) as server:
        answer = server.answer("completions", prompt=[300], max_tokens=60, **STUCK)
        reason = answer["timings"]["speculation_off"]
        assert "no draft token was accepted in 32 rounds in a row" in reason
        assert answer["surefoot"]["speculation_off"] == reason
        assert answer["surefoot"]["warnings"] == [
            f"speculation was turned off on the way: {reason}"
        ]
        metrics = server.client.get("/metrics").text
    assert 'surefoot_speculation_off_total{cause="circles"} 1.0' in metrics
    assert 'surefoot_memories_rebuilt_total{outcome="same"} 1.0' in metrics
