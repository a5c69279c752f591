"""A real server process with the embedded trained hybrid, and real clients."""

import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from tests.server.process import ServerProcess, run_server
from tests.server.running import events, until

SLOTS = 4
CONTEXT = 2048
LONG: dict[str, Any] = {"prompt": "def ", "temperature": 0, "speculative": False}
"""A completion that goes on to the end of the context, 2,046 rounds."""


def repeat(code: str) -> str:
    return f"Repeat this code exactly:\n```python\n{code}\n```"


CLEAR_PROMPTS = (
    "Count from 1 to 30.",
    "Count from 1 to 12.",
    repeat("def total(items):\n    result = 0\n    for i in items:\n        result += i"),
    repeat("class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y"),
    repeat("def read(path):\n    with open(path) as file:\n        return file.read()"),
    repeat("import os\n\ndef names(folder):\n    return sorted(os.listdir(folder))"),
    repeat("def last(items):\n    if not items:\n        return None\n    return items[-1]"),
    repeat("def factorial(n):\n    if n == 0:\n        return 1\n    return n * factorial(n - 1)"),
)
"""Prompts whose answers at temperature 0 are so clear (no two logits within 0.5) that they are the
same at every width and beside any neighbours."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(
        "--parallel", f"{SLOTS}", "--ctx-size", f"{SLOTS * CONTEXT}", "--alias", "tiny"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def http_client(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60
    ) as client:
        yield client


def user(text: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": text}]


def test_the_openai_client_lists_the_model(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "surefoot"
    with pytest.raises(openai.NotFoundError, match="gpt-4o"):
        client.models.retrieve("gpt-4o")


@pytest.mark.parametrize("prompt", [CLEAR_PROMPTS[0], CLEAR_PROMPTS[7]])
def test_the_openai_client_gets_the_same_chat_whole_and_streamed(
    client: openai.OpenAI, prompt: str
) -> None:
    whole = client.chat.completions.create(
        model="any", messages=user(prompt), temperature=0, seed=1
    )
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    text, usage, reason = "", None, None
    with client.chat.completions.create(
        model="any",
        messages=user(prompt),
        temperature=0,
        seed=1,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
    assert text == whole.choices[0].message.content
    assert reason == "stop"
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_the_openai_client_gets_the_same_completion_whole_and_streamed(
    client: openai.OpenAI,
) -> None:
    prompt = "one, two, three, one, two, three, one, two, three, one,"
    whole = client.completions.create(
        model="any", prompt=prompt, temperature=0, max_tokens=40, stop=["\n"]
    )
    stream = client.completions.create(
        model="any", prompt=prompt, temperature=0, max_tokens=40, stop=["\n"], stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text
    assert whole.choices[0].text.startswith(" one, one,")


def test_the_openai_client_sees_what_is_wrong(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="any", messages=user("Hi"), n=200)
    assert refused.value.param == "n"
    with pytest.raises(openai.BadRequestError, match=f"{CONTEXT}"):
        client.completions.create(model="any", prompt="word " * 3000)


def test_speculation_drafts_and_changes_no_text(http_client: httpx.Client) -> None:
    drafted = 0
    for prompt in CLEAR_PROMPTS:
        request = {"messages": user(prompt), "temperature": 0}
        on, off = (
            http_client.post("/v1/chat/completions", json={**request, "speculative": spec}).json()
            for spec in (True, False)
        )
        assert on["choices"] == off["choices"]
        assert off["timings"]["draft_n"] == 0
        drafted += on["timings"]["draft_n_accepted"]
    assert drafted > 0


def test_eight_requests_over_four_slots_equal_their_solo_runs(http_client: httpx.Client) -> None:
    def answer(prompt: str) -> dict[str, Any]:
        request = {"messages": user(prompt), "temperature": 0}
        response = http_client.post("/v1/chat/completions", json=request)
        assert response.status_code == 200
        value: dict[str, Any] = response.json()
        return value

    solo = [answer(prompt) for prompt in CLEAR_PROMPTS]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(answer, CLEAR_PROMPTS))
    assert [one["choices"] for one in together] == [one["choices"] for one in solo]


def test_the_next_turn_goes_on_from_the_answer(http_client: httpx.Client) -> None:
    for speculative in (True, False):
        messages: list[dict[str, Any]] = [{"role": "system", "content": f"{speculative}"}]
        messages.append({"role": "user", "content": CLEAR_PROMPTS[7]})
        request: dict[str, Any] = {"temperature": 0, "max_tokens": 100, "speculative": speculative}
        first = http_client.post(
            "/v1/chat/completions", json={**request, "messages": messages}
        ).json()
        messages += [first["choices"][0]["message"], {"role": "user", "content": "Again."}]
        second = http_client.post(
            "/v1/chat/completions", json={**request, "messages": messages}
        ).json()
        assert first["choices"][0]["finish_reason"] == "stop"
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        # All but the end token, which no pass has absorbed; after a rejected draft the memory may
        # lag behind, but never behind the prompt that the answer began from.
        known = first["usage"]["total_tokens"] - 1
        least = first["usage"]["prompt_tokens"] - 1 if speculative else known
        assert least <= cached <= known


def test_a_client_that_hangs_up_ends_its_generation(http_client: httpx.Client) -> None:
    before = http_client.get("/health").json()["rounds"]
    with http_client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
        chunks = events(response.iter_lines())
        for _ in range(3):
            next(chunks)
        assert http_client.get("/health").json()["slots_busy"] == 1
    until(lambda: http_client.get("/health").json()["slots_idle"] == SLOTS)
    assert http_client.get("/health").json()["rounds"] - before < CONTEXT - 2
    request = {"messages": user(CLEAR_PROMPTS[1]), "temperature": 0}
    assert http_client.post("/v1/chat/completions", json=request).status_code == 200


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": "hot"},
        {"max_tokens": 0},
        {"max_tokens": -7},
        {"messages": []},
        {"messages": user("word " * 3000)},
        {"top_logprobs": 500, "logprobs": True},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}},
        {"tools": [{"type": "function", "function": {"name": "f f"}}]},
        {"tool_choice": "required"},
    ],
    ids=lambda field: str(field)[:40],
)
def test_what_is_wrong_is_a_400_in_openais_shape(
    http_client: httpx.Client, field: dict[str, Any]
) -> None:
    response = http_client.post("/v1/chat/completions", json={"messages": user("Hi"), **field})
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_nan_is_a_400_in_openais_shape(http_client: httpx.Client) -> None:
    response = http_client.post(
        "/v1/completions",
        content=json.dumps({"prompt": "a", "temperature": float("nan")}),
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 400
    assert "NaN" in response.json()["error"]["message"]


def test_a_connection_serves_one_request_after_another(server: ServerProcess) -> None:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port)
    body = json.dumps({"prompt": "a", "max_tokens": 2})
    for path, method in (("/v1/completions", "POST"), ("/health", "GET")) * 2:
        content = body if method == "POST" else None
        connection.request(method, path, content, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200
        response.read()
        ours = connection.sock.getsockname()
        assert connection.sock.getsockname() == ours
    connection.close()


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM], ids=lambda by: by.name)
def test_a_signal_ends_the_server_cleanly_while_a_stream_runs(by: signal.Signals) -> None:
    with (
        ServerProcess("--parallel", "1", "--ctx-size", "4096", "--drain-timeout", "0") as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
        client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response,
    ):
        chunks = events(response.iter_lines())
        next(chunks)
        assert server.end(by) == 0
        *_, last = chunks
    assert "shutting down" in json.loads(last)["error"]["message"]
    assert "Traceback" not in "".join(server.log)
    assert server.log[-1] == "surefoot: stopped\n"


def test_a_signal_ends_an_idle_server_cleanly_with_connections_open() -> None:
    with (
        ServerProcess("--parallel", "1") as server,
        httpx.Client(base_url=server.url) as client,
    ):
        assert client.get("/health").status_code == 200
        assert server.end(signal.SIGINT) == 0
    assert "Traceback" not in "".join(server.log)


def test_a_port_in_use_is_an_error_in_words(server: ServerProcess) -> None:
    port = urlsplit(server.url).port
    second = run_server("--port", f"{port}")
    assert second.returncode == 1
    assert f"can't listen on 127.0.0.1:{port}: the port is in use" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("options", [["--host", "203.0.113.1"], ["--port", "70000"]], ids=str)
def test_an_impossible_address_is_an_error_in_words(options: list[str]) -> None:
    ended = run_server(*options)
    assert ended.returncode in (1, 2)
    assert "can't listen on" in ended.stderr
    assert "Traceback" not in ended.stderr
