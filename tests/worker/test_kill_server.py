"""kill -9 at random moments under streaming clients: no text changes, no token comes twice."""

import json
import os
import random
import signal
import threading
import time
from typing import Any

import httpx

from surefoot.decoding import Sampling
from surefoot.runtime.libllama import LibllamaRuntime
from tests.server.process import ServerProcess
from tests.server.running import events
from tests.support.acceptance_prompts import PROMPTS
from tests.support.near_ties import compare

CLIENTS = 8
TOKENS = 150
OPTIONS = ["-np", "4", "-c", "8192", "--spec-type", "ngram-simple,draft-mtp"]


class Client(threading.Thread):
    """Streams the same request again and again until it is told to finish.

    Attributes:
        answers: text and tokens of each answer.
        error: what went wrong, if something did.
    """

    def __init__(self, url: str, body: dict[str, Any]) -> None:
        super().__init__()
        self._url = url
        self._body = body
        self.finish = threading.Event()
        self.answers: list[tuple[str, list[int]]] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=120) as client:
                while not (self.answers and self.finish.is_set()):
                    self.answers.append(stream(client, self._body))
        except BaseException as error:
            self.error = error


def stream(client: httpx.Client, body: dict[str, Any]) -> tuple[str, list[int]]:
    """Text and tokens of a streamed answer."""
    text, tokens = "", list[int]()
    with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        assert response.status_code == 200, response.read()
        *chunks, last = list(events(response.iter_lines()))
    assert last == "[DONE]", last
    for chunk in map(json.loads, chunks):
        for choice in chunk["choices"]:
            text += choice["text"]
            tokens += choice.get("token_ids") or []
    return text, tokens


def bodies(exact: str) -> list[dict[str, Any]]:
    return [
        {
            "prompt": PROMPTS[number % len(PROMPTS)],
            "seed": number,
            "temperature": 0.0 if number % 2 else 0.8,
            "max_tokens": TOKENS,
            # A text that ends at once would have been through no kill; but the oracle of fast
            # texts knows nothing of ends.
            "ignore_eos": exact == "strict",
            "exact": exact,
            "return_token_ids": True,
        }
        for number in range(CLIENTS)
    ]


def kill_again_and_again(server: ServerProcess, clients: list[Client], kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for client in clients:
        client.start()
    for kill in range(1, kills + 1):
        time.sleep(dice.uniform(0.1, 1.2))
        [worker] = server.workers
        os.kill(worker, signal.SIGKILL)
        while restarts(server) < kill:
            time.sleep(0.02)
    for client in clients:
        client.finish.set()
    for client in clients:
        client.join(120)
        assert client.error is None, repr(client.error)


def restarts(server: ServerProcess) -> int:
    """How often the worker was started again and is there."""
    health = httpx.get(f"{server.url}/health", timeout=60).json()
    return int(health["restarts"]) if health["status"] != "restarting" else -1


def test_20_kills_change_no_strict_text() -> None:
    with ServerProcess(*OPTIONS) as server:
        with httpx.Client(base_url=server.url, timeout=120) as quiet:
            undisturbed = [stream(quiet, body) for body in bodies("strict")]
        clients = [Client(server.url, body) for body in bodies("strict")]
        kill_again_and_again(server, clients, 20)
        for client, expected in zip(clients, undisturbed, strict=True):
            assert len(expected[1]) == TOKENS
            assert client.answers == [expected] * len(client.answers)


def test_kills_change_no_fast_text_but_at_near_ties(trained: LibllamaRuntime) -> None:
    with ServerProcess(*OPTIONS) as server:
        clients = [Client(server.url, body) for body in bodies("fast")]
        kill_again_and_again(server, clients, 5)
    for client, body in zip(clients, bodies("fast"), strict=True):
        prompt = trained.tokenizer.encode(body["prompt"])
        sampling = Sampling(seed=body["seed"], temperature=body["temperature"])
        for text, tokens in client.answers[:3]:
            agreement = compare(trained, prompt, tokens, sampling)
            assert not agreement.wrong, (body, agreement)
            shown = b"".join(map(trained.tokenizer.piece, tokens)).decode(errors="replace")
            assert shown == text
