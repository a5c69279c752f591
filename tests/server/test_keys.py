"""API keys: a 401 without one that is known, and everything as ever with it."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.process import ServerProcess
from tests.server.running import Running

KEYS = ("first", "deuxième clé, là")
CLOSED = ["/props", "/metrics", "/docs", "/openapi.json", "/v1/models/simulated", "/nothing"]


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    with Running(SimulatedRuntime(vocabulary_size=512), keys=KEYS) as running:
        yield running


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
def test_health_and_models_need_no_key(locked: Running, path: str) -> None:
    assert locked.client.get(path).status_code == 200


@pytest.mark.parametrize("path", CLOSED)
def test_all_other_paths_need_one(locked: Running, path: str) -> None:
    response = locked.client.get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "surefoot" not in response.text
    with_key = locked.client.get(path, headers={"Authorization": "Bearer first"})
    assert with_key.status_code == (404 if path == "/nothing" else 200)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer second",
        "Bearer firs",
        "Bearer first2",
        "Basic first",
        "first",
        "Bearer \xff",
    ],
)
def test_a_request_without_a_known_key_is_answered_in_openais_form(
    locked: Running, header: str | None
) -> None:
    headers = {} if header is None else {b"Authorization": header.encode("latin-1")}
    rounds = locked.engine.rounds
    response = locked.client.post(
        "/v1/completions", json={"prompt": [1], "max_tokens": 1}, headers=headers
    )
    assert response.status_code == 401
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "invalid_api_key"
    assert "Authorization: Bearer" in error["message"]
    assert locked.engine.rounds == rounds


@pytest.mark.parametrize("header", ["Bearer first", "bearer first", "Bearer  first"])
def test_a_request_with_a_known_key_is_served(locked: Running, header: str) -> None:
    headers = {"Authorization": header}
    response = locked.client.post(
        "/v1/completions", json={"prompt": [1], "max_tokens": 1}, headers=headers
    )
    assert response.status_code == 200


def test_a_key_is_bytes_in_utf_8(locked: Running) -> None:
    headers = {b"Authorization": b"Bearer " + KEYS[1].encode()}
    assert locked.client.get("/props", headers=headers).status_code == 200


def test_browsers_may_ask_what_is_allowed_without_a_key(locked: Running) -> None:
    asking = {
        "Origin": "http://a.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    assert locked.client.options("/v1/completions", headers=asking).status_code == 200
    refused = locked.client.post("/v1/completions", headers={"Origin": "http://a.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "*"


def test_openais_client_gives_its_key_and_learns_of_a_wrong_one(locked: Running) -> None:
    right, wrong = (
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key=key, max_retries=0)
        for key in ("first", "other")
    )
    with right, wrong:
        text = right.completions.create(model="any", prompt=[1, 2], max_tokens=3)
        assert text.usage is not None
        assert text.usage.completion_tokens == 3
        with pytest.raises(openai.AuthenticationError) as caught:
            wrong.completions.create(model="any", prompt=[1, 2], max_tokens=3)
        assert caught.value.code == "invalid_api_key"


def test_keys_come_from_the_command_line_and_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\nthird\n\n fourth \n", encoding="utf-8")
    options = ("--api-key", "a,b", "--api-key", "c", "--api-key-file", str(path), "-c", "512")
    with ServerProcess(*options) as server:
        for key, status in dict.fromkeys("abc", 200).items() | {
            ("third", 200),
            ("fourth", 200),
            ("# ours", 401),
            ("a,b", 401),
        }:
            client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
            with client:
                try:
                    client.completions.create(model="any", prompt="def", max_tokens=1)
                    answered = 200
                except openai.AuthenticationError:
                    answered = 401
            assert answered == status, key
        assert not any("third" in line for line in server.log)
