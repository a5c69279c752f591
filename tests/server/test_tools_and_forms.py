"""Tools, reasoning and forms on the embedded model, through OpenAI's client where it knows them."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import openai
import pytest

from tests.server.process import ServerProcess

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
ASKED: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("--parallel", "2", "--ctx-size", "4096", "--self-check", "1") as process:
        yield process


@pytest.fixture(scope="module")
def http_client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def test_a_tool_call_whole_and_streamed(client: openai.OpenAI) -> None:
    fields: dict[str, Any] = {
        "model": "any", "messages": ASKED, "tools": [WEATHER], "temperature": 0, "max_tokens": 80
    }  # fmt: skip
    whole = client.chat.completions.create(**fields).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content is None
    [call] = whole.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    name = arguments = ""
    reasons = []
    for chunk in client.chat.completions.create(**fields, stream=True):
        for choice in chunk.choices:
            assert not choice.delta.content
            for part in choice.delta.tool_calls or []:
                name += (part.function and part.function.name) or ""
                arguments += (part.function and part.function.arguments) or ""
            reasons.append(choice.finish_reason)
    assert (name, arguments) == (call.function.name, call.function.arguments)
    assert [reason for reason in reasons if reason] == ["tool_calls"]


@pytest.mark.parametrize("exact", ["fast", "strict"])
@pytest.mark.parametrize("seed", range(3))
def test_a_call_that_is_required_comes_and_fits_its_schema(
    http_client: httpx.Client, seed: int, exact: str
) -> None:
    body = {
        "messages": [{"role": "user", "content": "Hello!"}],
        "tools": [WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": 120,
        "parallel_tool_calls": False,
        "exact": exact,
    }
    answer = http_client.post("/v1/chat/completions", json=body).json()
    [choice] = answer["choices"]
    [call] = choice["message"]["tool_calls"]
    schema = WEATHER["function"]["parameters"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), schema)
    assert answer["surefoot"]["exact"] == exact
    plain = http_client.post("/v1/chat/completions", json={**body, "speculative": False}).json()
    [other] = plain["choices"][0]["message"]["tool_calls"]
    if exact == "strict":
        assert other["function"] == call["function"]


def test_tools_of_none_are_not_told_apart(http_client: httpx.Client) -> None:
    body = {"messages": ASKED, "tools": [WEATHER], "tool_choice": "none", "max_tokens": 30}
    answer = http_client.post("/v1/chat/completions", json=body).json()
    assert "tool_calls" not in answer["choices"][0]["message"]


def test_the_result_of_a_tool_goes_back_to_the_model(http_client: httpx.Client) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages = [
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    ]
    body = {"messages": messages, "tools": [WEATHER], "max_tokens": 10}
    assert http_client.post("/v1/chat/completions", json=body).status_code == 200


def test_reasoning_is_told_apart_and_its_budget_kept(http_client: httpx.Client) -> None:
    kwargs = {"messages": [{"role": "user", "content": "Say hi"}], "temperature": 0}
    bias = {"logit_bias": [["<think>", 50]]}
    body = {**kwargs, **bias, "max_tokens": 12, "thinking_budget_tokens": 4}
    answer = http_client.post("/v1/chat/completions", json=body).json()
    details = answer["usage"]["completion_tokens_details"]
    assert details["reasoning_tokens"] <= 4
    body = {**body, "reasoning_format": "none"}
    message = http_client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    assert message["content"].startswith("<think>")
    assert "reasoning_content" not in message


def test_a_json_schema_by_openais_client(client: openai.OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer",
                       "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }  # fmt: skip
    form: Any = {
        "type": "json_schema",
        "json_schema": {"name": "person", "schema": schema, "strict": True},
    }
    answer = client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": "Give me a person."}],
        response_format=form,
        max_tokens=100,
        temperature=0.7,
        seed=1,
        logprobs=True,
        top_logprobs=2,
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content or ""), schema)
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    # The model may reason first, and the tokens of that are told, too.
    text = b"".join(bytes(token.bytes or []) for token in tokens).decode()
    assert text.endswith(choice.message.content or "?")
    assert answer.usage is not None
    assert len(tokens) == answer.usage.completion_tokens
    assert all(len(token.top_logprobs) == 2 for token in tokens)


def test_tools_and_a_form_at_once_are_refused(http_client: httpx.Client) -> None:
    body = {"messages": ASKED, "tools": [WEATHER], "response_format": {"type": "json_object"}}
    response = http_client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert "together" in response.json()["error"]["message"]


def test_props_tell_what_strict_costs(http_client: httpx.Client) -> None:
    props = http_client.get("/props").json()
    assert props["tool_format"] == "hermes"
    assert props["exact"]["strict"]
    assert props["exact"]["plain_cost"] > 0
    assert props["exact"]["default"] == "fast"
