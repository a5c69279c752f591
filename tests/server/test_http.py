"""HTTP itself: bodies, routes, models, health, and failures in one shape."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from surefoot.decoding import Widths
from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.gate import Gate
from tests.server.running import Running, events, until
from tests.support.opener import Opener

JSON = {"content-type": "application/json"}


def error_of(response: httpx.Response, status: int, kind: str = "invalid_request_error") -> str:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == kind
    message: str = error["message"]
    return message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"prompt": "a", "temperature": NaN}',
        b'{"prompt": "a", "temperature": Infinity}',
        b'{"prompt": "a", "temperature": 1e999}',
        b'{"prompt": "\xff"}',
        b"[" * 100_000,
    ],
    ids=lambda body: repr(body[:40]),
)
def test_what_is_no_json_is_refused(server: Running, body: bytes) -> None:
    response = server.client.post("/v1/completions", content=body, headers=JSON)
    assert "no valid JSON" in error_of(response, 400)


@pytest.mark.parametrize("body", [b"[]", b"3", b"null", b'"prompt"'])
def test_a_body_that_is_no_object_is_refused(server: Running, body: bytes) -> None:
    response = server.client.post("/v1/completions", content=body, headers=JSON)
    assert error_of(response, 400) == "the body must be a JSON object"


def test_json_is_read_whatever_its_content_type_says(server: Running) -> None:
    """As `curl -d` sends it."""
    body = b'{"prompt": "a", "max_tokens": 2}'
    for kind in ("application/x-www-form-urlencoded", "application/json; charset=utf-8", None):
        headers = {"content-type": kind} if kind else {}
        response = server.client.post("/v1/completions", content=body, headers=headers)
        assert response.status_code == 200
    response = server.client.post("/v1/completions", data={"prompt": "a"})
    assert "no valid JSON" in error_of(response, 400)


def test_a_huge_body_is_refused_and_the_connection_goes_on() -> None:
    with Running(SimulatedRuntime(vocabulary_size=512), most_bytes=100_000) as server:
        for content in (b" " * 8_000_000, iter([b" " * 100_000] * 20)):
            response = server.client.post("/v1/completions", content=content, headers=JSON)
            assert "at most 100000" in error_of(response, 413)
        assert server.complete("a", max_tokens=1)


def test_an_unknown_route_and_a_wrong_method_are_told_in_the_same_shape(server: Running) -> None:
    assert "GET /v1/nothing" in error_of(server.client.get("/v1/nothing"), 404)
    response = server.client.get("/v1/completions")
    assert "Method Not Allowed" in error_of(response, 405)
    assert response.headers["allow"] == "POST"


def test_the_one_model_is_listed_and_described(server: Running) -> None:
    listed = server.client.get("/v1/models").json()
    assert listed["object"] == "list"
    [model] = listed["data"]
    assert model["id"] == "simulated"
    assert model["meta"]["n_ctx"] == 256
    assert server.client.get("/v1/models/simulated").json() == model
    assert "'gpt/4'" in error_of(server.client.get("/v1/models/gpt/4"), 404)


def test_health_tells_what_is_free(server: Running) -> None:
    health = server.client.get("/health").json()
    assert health == {
        "status": "ok",
        "live": True,
        "reason": None,
        "slots_idle": 2,
        "slots_busy": 0,
        "strict_busy": 0,
        "waiting": 0,
        "rounds": server.engine.rounds,
        "stalled": [],
        "restarts": 0,
    }


def test_strict_requests_are_told_apart_from_slots() -> None:
    gate = Gate()
    runtime = SimulatedRuntime(vocabulary_size=512, decode_seconds=gate)
    body = {"prompt": [300], "stream": True, "max_tokens": 40, "exact": "strict"}
    with Running(runtime, gate=gate, opener=Opener(runtime, Widths((2, 3, 4)))) as server:

        def health() -> dict[str, int]:
            told = server.client.get("/health").json()
            return {name: told[name] for name in ("slots_idle", "slots_busy", "strict_busy")}

        idle = {"slots_idle": 1, "slots_busy": 0, "strict_busy": 0}
        assert health() == idle
        with server.client.stream("POST", "/v1/completions", json=body):
            until(lambda: health() == idle | {"strict_busy": 1})
            assert "surefoot_slots_busy 0.0" in server.client.get("/metrics").text
            assert "surefoot_strict_busy 1.0" in server.client.get("/metrics").text
        gate.open()
        until(lambda: health() == idle)


def test_browsers_of_any_origin_may_ask(server: Running) -> None:
    response = server.client.options(
        "/v1/chat/completions",
        headers={
            "origin": "http://elsewhere",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, content-type",
        },
    )
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "*"


def test_the_openapi_page_describes_the_fields(server: Running) -> None:
    paths = server.client.get("/openapi.json").json()["paths"]
    body = paths["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]
    assert "max_completion_tokens" in body["schema"]["properties"]
    assert body["schema"]["properties"]["messages"]["items"]["properties"]["role"]["enum"]


def test_a_generation_that_keeps_failing_is_a_500_or_an_event_in_the_stream() -> None:
    body = {"prompt": [300], "temperature": 0, "max_tokens": 50}

    def failing_runtime() -> SimulatedRuntime:
        return SimulatedRuntime(vocabulary_size=512, end_rate=0, fail_decode=lambda n: n > 5)

    with Running(failing_runtime()) as server:
        response = server.post("completions", body)
        assert "failed, as planned (3 times in a row)" in error_of(response, 500, "server_error")
    with (
        Running(failing_runtime()) as server,
        server.client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response,
    ):
        *chunks, last = list(events(response.iter_lines()))
    assert len(chunks) == 6
    assert '"error"' in last
    assert "failed, as planned" in last


def test_an_internal_error_gives_nothing_away_and_the_next_request_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = True

    def broken(_tokens: int) -> float:
        if failing:
            raise RuntimeError("a secret path")
        return 0.0

    with Running(SimulatedRuntime(vocabulary_size=512, decode_seconds=broken)) as server:
        request = {"prompt": "a", "max_tokens": 3}
        message = error_of(server.post("completions", request), 500, "server_error")
        assert message == "internal error; see the server's log"
        assert "a secret path" in caplog.text
        failing = False
        assert server.complete("a", max_tokens=3)


def test_a_bug_in_a_route_is_a_500_in_the_same_shape(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: str, **_: bool) -> list[int]:
        raise RuntimeError(f"can't encode {text}")

    monkeypatch.setattr(server.engine.runtime.tokenizer, "encode", broken)
    response = server.post("completions", {"prompt": "a secret"})
    message = error_of(response, 500, "server_error")
    assert "secret" not in message


def test_a_generation_that_the_end_of_the_server_cuts_off_is_a_503() -> None:
    gate = Gate()
    runtime = SimulatedRuntime(vocabulary_size=512, decode_seconds=gate)
    with Running(runtime, gate=gate) as server, ThreadPoolExecutor(1) as threads:
        response = threads.submit(server.post, "completions", {"prompt": [300], "temperature": 0})
        gate.let(2)
        gate.open()
        server.thread.stop()
        assert "shutting down" in error_of(response.result(), 503, "unavailable_error")


def test_a_stopped_engine_is_a_503() -> None:
    with Running(SimulatedRuntime(vocabulary_size=512)) as server:
        server.thread.stop()
        response = server.post("completions", {"prompt": "a"})
        assert "shutting down" in error_of(response, 503, "unavailable_error")
        error_of(server.client.get("/health"), 503, "unavailable_error")
