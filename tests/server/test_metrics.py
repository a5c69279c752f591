"""`GET /metrics` and `/props`: the figures of all requests, and what the server is set to."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from surefoot.decoding import Sampling
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.runtime.simulated import SimulatedRuntime
from surefoot.server import AnswerSettings
from tests.server.gate import Gate
from tests.server.running import Running, until
from tests.server.scripted import HERMES, ScriptedRuntime


@pytest.fixture
def server() -> Iterator[Running]:
    runtime = SimulatedRuntime(
        vocabulary_size=512, slots=2, context_length=256, fail_decode=lambda n: n == 3
    )
    with Running(runtime, NgramSimple(size_n=2)) as running:
        yield running


def figures(server: Running) -> dict[str, float]:
    """All samples, by name and labels."""
    response = server.client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_the_figures_are_the_sums_of_what_responses_say(server: Running) -> None:
    before = figures(server)
    assert before["surefoot_requests_total finished"] == 0
    assert before["surefoot_generated_tokens_total"] == 0
    answers = [
        server.answer("completions", prompt=prompt, temperature=0, max_tokens=60)
        for prompt in ("once", "twice", "thrice")
    ]
    after = figures(server)
    assert after["surefoot_requests_total finished"] == 3
    assert after["surefoot_requests_total failed"] == 0

    def total(part: str, name: str) -> float:
        return float(sum(answer[part][name] for answer in answers))

    for name, part, field in (
        ("prompt_tokens", "usage", "prompt_tokens"),
        ("cached_tokens", "timings", "cache_n"),
        ("generated_tokens", "usage", "completion_tokens"),
        ("drafted_tokens", "timings", "draft_n"),
        ("accepted_tokens", "timings", "draft_n_accepted"),
        ("near_ties", "surefoot", "near_ties"),
        ("recoveries", "surefoot", "recoveries"),
        ("rounds", "surefoot", "rounds"),
    ):
        assert after[f"surefoot_{name}_total"] == total(part, field), name
    assert after["surefoot_accepted_tokens_total"] > 0
    assert after["surefoot_recoveries_total"] == 1
    assert after["surefoot_passes_total"] == server.engine.runtime.passes
    assert after["surefoot_passes_total"] > after["surefoot_rounds_total"]


def ended(server: Running) -> float:
    now = figures(server)
    return sum(now[f"surefoot_requests_total {state}"] for state in ("cancelled", "finished"))


def test_how_busy_it_is_is_told_while_it_is() -> None:
    gate = Gate()
    runtime = SimulatedRuntime(vocabulary_size=512, decode_seconds=gate)
    body = {"prompt": [300], "stream": True, "temperature": 0, "max_tokens": 40}
    with Running(runtime, gate=gate) as server:
        assert figures(server)["surefoot_slots_busy"] == 0
        with (
            server.client.stream("POST", "/v1/completions", json=body),
            server.client.stream("POST", "/v1/completions", json=body),
        ):
            until(lambda: figures(server)["surefoot_slots_busy"] == 1)
            until(lambda: figures(server)["surefoot_requests_waiting"] == 1)
            gate.let(2)
        gate.open()
        # One that is quick may be through before it is seen that its client has gone.
        until(lambda: ended(server) == 2)
        assert figures(server)["surefoot_slots_busy"] == 0


def test_two_servers_count_for_themselves(server: Running) -> None:
    with Running(SimulatedRuntime(vocabulary_size=512)) as other:
        other.complete("a", max_tokens=1)
        assert figures(other)["surefoot_requests_total finished"] == 1
        assert figures(server)["surefoot_requests_total finished"] == 0


def test_props_tell_the_defaults_of_answers() -> None:
    defaults = Sampling(temperature=0.3, logit_bias=((7, 1.5),))
    settings = AnswerSettings(rule="rejection", reasoning_format="none", tool_format="mistral")
    with Running(ScriptedRuntime("x", HERMES), defaults=defaults, answers=settings) as server:
        props: dict[str, Any] = server.client.get("/props").json()
    assert props["tool_format"] == "mistral"
    assert props["reasoning_format"] == "none"
    assert props["verify"] == "rejection"
    assert props["exact"]["default"] == "fast"
    told = props["default_generation_settings"]
    assert told["temperature"] == 0.3
    assert told["logit_bias"] == [[7, 1.5]]
    assert set(told) == set(asdict(defaults))
    with Running(ScriptedRuntime("x", HERMES)) as server:
        assert server.client.get("/props").json()["tool_format"] == "hermes"


@pytest.mark.parametrize(("seed", "told"), [(None, -1), (-1, -1), (0, 0), (7, 7)])
def test_props_tell_the_seed_that_the_server_was_given(seed: int | None, told: int) -> None:
    with Running(SimulatedRuntime(vocabulary_size=512), seed=seed) as server:
        for _ in range(2):
            props = server.client.get("/props").json()
            assert props["default_generation_settings"]["seed"] == told
