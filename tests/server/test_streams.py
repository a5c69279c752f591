"""Streams: the same text as a whole answer, each round's as soon as it is decided."""

import json
from typing import Any

import httpx
import pytest

from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.gate import Gate
from tests.server.running import Running, events

USER = [{"role": "user", "content": "tell me"}]


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_equals_the_whole_answer_for_the_same_seed(server: Running, seed: int) -> None:
    request: dict[str, Any] = {"messages": USER, "seed": seed, "stop": ["bo", "gu ra"]}
    whole = server.answer("chat/completions", **request)
    chunks = server.stream("chat/completions", **request)
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks[-1]["surefoot"]["rounds"] == whole["surefoot"]["rounds"]
    assert chunks[-1]["surefoot"]["seed"] == seed


def test_characters_split_over_tokens_arrive_whole(server: Running) -> None:
    for seed in range(12):
        request: dict[str, Any] = {"prompt": "é", "seed": seed, "temperature": 2.0}
        whole = server.complete(**request)
        chunks = server.stream("completions", **request)
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole


def test_a_chat_stream_begins_with_the_role_and_ends_with_reason_and_figures(
    server: Running,
) -> None:
    chunks = server.stream("chat/completions", messages=USER, max_tokens=8, temperature=0)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    first, *middle, last = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(list(chunk["choices"][0]["delta"]) == ["content"] for chunk in middle)
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in [first, *middle])
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["timings"]["predicted_n"] == 8
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_comes_last_if_it_is_asked_for(server: Running) -> None:
    options = {"include_usage": True}
    request: dict[str, Any] = {"messages": USER, "max_tokens": 8, "seed": 3}
    *chunks, last = server.stream("chat/completions", **request, stream_options=options)
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    whole = server.answer("chat/completions", **request)["usage"]
    assert last["usage"]["completion_tokens"] == whole["completion_tokens"] == 8
    assert last["usage"]["prompt_tokens"] == whole["prompt_tokens"]


def test_several_prompts_stream_side_by_side(server: Running) -> None:
    request: dict[str, Any] = {"prompt": ["once", "twice", "thrice"], "seed": 5, "max_tokens": 25}
    whole = server.answer("completions", **request)
    texts = ["", "", ""]
    ends = []
    chunks = server.stream("completions", **request)
    for chunk in chunks:
        [choice] = chunk["choices"]
        texts[choice["index"]] += choice["text"]
        if choice["finish_reason"]:
            ends.append(choice["index"])
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert sorted(ends) == [0, 1, 2]
    assert ["surefoot" in chunk for chunk in chunks].count(True) == 1
    assert chunks[-1]["timings"]["predicted_n"] == whole["usage"]["completion_tokens"]


def test_each_round_reaches_the_client_before_the_next_one_runs() -> None:
    gate = Gate()
    runtime = SimulatedRuntime(vocabulary_size=512, decode_seconds=gate)
    body = {"prompt": [300], "stream": True, "temperature": 0, "max_tokens": 40}
    with (
        Running(runtime, NgramSimple(size_n=2), gate=gate) as server,
        server.client.stream("POST", "/v1/completions", json=body) as response,
    ):
        chunks = events(response.iter_lines())
        text = ""
        for round_number in range(1, 9):
            gate.let(1)
            assert server.engine.rounds == round_number
            text += json.loads(next(chunks))["choices"][0]["text"]
            assert text == server.generation().text


def test_a_silent_stream_sends_comments() -> None:
    gate = Gate()
    runtime = SimulatedRuntime(vocabulary_size=512, decode_seconds=gate)
    body = {"messages": USER, "stream": True, "max_tokens": 3}
    with (
        Running(runtime, gate=gate, ping_seconds=0.02) as server,
        server.client.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        lines = response.iter_lines()
        comments = [line for line, _ in zip(lines, range(12), strict=False) if line[:1] == ":"]
        assert len(comments) > 2
        gate.open()
        assert list(lines)[-2:] == ["data: [DONE]", ""]


def test_no_proxy_keeps_or_collects_a_stream(server: Running) -> None:
    body = {"prompt": "a", "stream": True, "max_tokens": 1}
    response: httpx.Response = server.post("completions", body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert response.headers["x-accel-buffering"] == "no"


def test_a_stopping_server_ends_streams_with_an_error_event() -> None:
    gate = Gate()
    runtime = SimulatedRuntime(vocabulary_size=512, decode_seconds=gate)
    with (
        Running(runtime, gate=gate) as server,
        server.client.stream(
            "POST", "/v1/completions", json={"prompt": [300], "stream": True, "temperature": 0}
        ) as response,
    ):
        gate.let(2)
        gate.open()
        server.thread.stop()
        *_, last = list(events(response.iter_lines()))
    assert "shutting down" in json.loads(last)["error"]["message"]
    assert json.loads(last)["error"]["type"] == "unavailable_error"
