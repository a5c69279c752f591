"""`/slots`: llama-server's actions, with what may go wrong told by its status, and `id_slot`."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from surefoot.runtime.simulated import SimulatedRuntime
from tests.server.gate import Gate
from tests.server.process import ServerProcess, run_server
from tests.server.running import Running

PROMPT = list(range(300, 340))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slots").mkdir()
    return tmp_path / "slots"


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    with Running(hybrid(), slot_folder=folder) as running:
        yield running


def hybrid(**settings: Any) -> SimulatedRuntime:
    return SimulatedRuntime("hybrid", vocabulary_size=512, slots=2, **settings)


def act(server: Running, slot: int, action: str, **body: Any) -> httpx.Response:
    return server.client.post(f"/slots/{slot}", params={"action": action}, json=body)


def answer(server: Running, slot: int) -> dict[str, Any]:
    facts = {"prompt": PROMPT, "max_tokens": 8, "seed": 1, "id_slot": slot}
    return server.answer("completions", **facts)


def test_a_slot_is_saved_erased_and_restored(server: Running, folder: Path) -> None:
    first = answer(server, 1)
    assert first["surefoot"]["id_slot"] == 1
    saved = act(server, 1, "save", filename="chat.bin").json()
    tokens = saved["n_saved"]
    assert len(PROMPT) <= tokens < len(PROMPT) + 8
    assert saved.keys() == {"id_slot", "filename", "n_saved", "n_written", "timings"}
    assert (saved["id_slot"], saved["filename"]) == (1, "chat.bin")
    assert saved["n_written"] == (folder / "chat.bin").stat().st_size
    assert act(server, 1, "erase").json() == {"id_slot": 1, "n_erased": tokens}
    restored = act(server, 0, "restore", filename="chat.bin").json()
    assert (restored["n_restored"], restored["n_read"]) == (tokens, saved["n_written"])
    assert [slot["n_tokens"] for slot in server.client.get("/slots").json()] == [tokens, 0]
    again = server.answer("completions", prompt=[*PROMPT, *range(400, 420)], max_tokens=1)
    assert again["surefoot"]["id_slot"] == 0


@pytest.mark.parametrize(
    ("slot", "action", "body", "status", "reason"),
    [
        (0, "save", {"filename": "../out"}, 400, "plain name of a file"),
        (0, "restore", {"filename": "/etc/passwd"}, 400, "plain name of a file"),
        (0, "restore", {"filename": "none"}, 404, "there is no file none"),
        (0, "restore", {"filename": "bad"}, 400, "bad can't be restored: it is no slot"),
        (0, "save", {"filename": "new"}, 400, "holds nothing that could be saved"),
        (2, "erase", {}, 404, "there is no slot 2; they are 0 to 1"),
        (-1, "erase", {}, 404, "there is no slot -1"),
        (0, "save", {}, 400, "filename"),
        (0, "save", {"filename": 3}, 400, "filename"),
        (0, "paint", {}, 400, "must be one of save, restore, erase"),
        (0, "", {}, 400, "must be one of save, restore, erase"),
    ],
)
def test_what_can_not_be_done_is_a_4xx_with_the_reason(
    server: Running,
    folder: Path,
    slot: int,
    action: str,
    body: dict[str, Any],
    status: int,
    reason: str,
) -> None:
    (folder / "bad").write_bytes(b"?")
    response = act(server, slot, action, **body)
    assert response.status_code == status, response.text
    assert reason in response.json()["error"]["message"]
    assert [path.name for path in folder.parent.rglob("*")] == ["slots", "bad"]


def test_without_a_folder_there_are_no_files() -> None:
    with Running(hybrid()) as server:
        response = act(server, 0, "save", filename="a")
        assert response.status_code == 501
        assert "--slot-save-path" in response.json()["error"]["message"]
        assert act(server, 0, "erase").status_code == 200


def test_a_busy_slot_is_a_409() -> None:
    gate = Gate()
    runtime = hybrid(decode_seconds=gate, end_rate=0)
    body = {"prompt": PROMPT, "id_slot": 1, "max_tokens": 3000, "stream": True}
    statuses = []
    with Running(runtime, gate=gate) as server:
        with server.client.stream("POST", "/v1/completions", json=body):
            gate.let(2)
            for slot in (0, 1):
                asking = threading.Thread(
                    target=lambda: statuses.append(act(server, slot, "erase").status_code)  # noqa: B023
                )
                asking.start()
                while asking.is_alive():
                    gate.let(1)
                asking.join()
        gate.open()
    assert statuses == [200, 409]


@pytest.mark.parametrize("slot", [2, -2])
def test_a_slot_that_is_not_there_is_refused(server: Running, slot: int) -> None:
    response = server.post("completions", {"prompt": PROMPT, "id_slot": slot})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "id_slot"


def test_a_strict_request_ignores_the_slot_with_a_warning(server: Running) -> None:
    response = server.post("completions", {"prompt": PROMPT, "id_slot": 1, "n": 2})
    assert "several texts" in response.json()["error"]["message"]


# surefoot serve


def complete(server: ServerProcess, prompt: str) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0}
    response = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    value: dict[str, Any] = response.json()
    return value


@pytest.mark.parametrize("inside", [[], ["--in-process"]], ids=["worker", "in process"])
def test_a_server_that_is_resumed_goes_on_where_it_ended(folder: Path, inside: list[str]) -> None:
    options = ["-np", "2", "-c", "2048", "--slot-save-path", str(folder), "--resume", *inside]
    prompt = "def add(first, second):\n    return first + second\n\n" * 4
    with ServerProcess(*options) as server:
        first = complete(server, prompt)
        url = f"{server.url}/slots/{first['surefoot']['id_slot']}?action=save"
        saved = httpx.post(url, json={"filename": "mine"}, timeout=60).json()
        assert saved["n_saved"] > 20
        assert server.end(signal.SIGTERM) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["mine", "resume-0.slot"]
    with ServerProcess(*options) as server:
        text = first["choices"][0]["text"]
        second = complete(server, prompt + text + " and")
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] >= saved["n_saved"] - 2


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--resume"], "--resume: needs a folder (--slot-save-path)"),
        (["--slot-save-path", "/no/such/folder"], "--slot-save-path: /no/such/folder is no folder"),
    ],
)
def test_folders_that_can_not_be_used_are_an_error_at_the_start(
    options: list[str], problem: str
) -> None:
    ended = run_server("--port", "0", *options)
    assert ended.returncode == 2
    assert problem in ended.stderr
    assert "Traceback" not in ended.stderr
