"""What responses, metrics and `/props` say of the prompt cache."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from surefoot.engine.cache import CacheSettings
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.running import Running


@pytest.fixture
def server() -> Iterator[Running]:
    runtime = SimulatedRuntime(vocabulary_size=512, checkpoints=8, context_length=512)
    with Running(runtime, cache=CacheSettings(device=100_000, ram=200_000, every=32)) as running:
        yield running


def test_a_response_says_what_was_reused_from_where_and_why_not_more(server: Running) -> None:
    prompt = list(range(300, 400))
    edited = [*prompt[:50], 417, *prompt[51:]]
    cold, warm, changed = (
        server.answer("completions", prompt=p, temperature=0, max_tokens=5)
        for p in (prompt, prompt, edited)
    )
    assert cold["surefoot"]["cached_tokens"] == 0
    assert cold["surefoot"]["cache_from"] is None
    assert cold["surefoot"]["cache_reason"] == "no text that is held begins like this prompt"
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == 99
    assert warm["surefoot"]["cache_from"] == warm["timings"]["cache_from"] == "device"
    assert warm["surefoot"]["cache_reason"] is None
    assert changed["timings"]["cache_n"] == changed["surefoot"]["cached_tokens"] == 32
    assert changed["timings"]["cache_reason"] == (
        "the history differs at token 50; the nearest checkpoint before it is at 32"
    )


def test_a_chat_keeps_a_state_before_the_last_users_message(server: Running) -> None:
    system = {"role": "system", "content": "be brief " * 6}
    for text in ("what is new today", "something else altogether"):
        body = [system, {"role": "user", "content": text}]
        answer = server.answer("chat/completions", messages=body, temperature=0, max_tokens=5)
    assert answer["surefoot"]["cached_tokens"] > 40
    assert answer["surefoot"]["cache_from"] == "device"


def test_metrics_and_props_show_budgets_bytes_entries_and_hits(server: Running) -> None:
    prompt = list(range(300, 400))
    for _ in range(3):
        server.answer("completions", prompt=prompt, temperature=0, max_tokens=5)
    text = server.client.get("/metrics").text
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["surefoot_cache_budget_bytes", "device"] == 100_000
    assert found["surefoot_cache_budget_bytes", "host"] == 200_000
    assert 0 < found["surefoot_cache_bytes", "device"] <= 100_000
    assert found["surefoot_cache_entries", "device"] > 0
    assert found["surefoot_cache_hits_total", "device"] == 2
    assert found["surefoot_reused_tokens_total", "device"] == 2 * 99
    assert found["surefoot_cache_misses_total",] == 1
    props = server.client.get("/props").json()["cache"]
    assert props["tiers"]["device"]["bytes"] == found["surefoot_cache_bytes", "device"]
    assert props["checkpoint_every"] == 32
