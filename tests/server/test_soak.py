"""Mixed requests over HTTP, many at once: all end, none is wrong, and nothing is left behind."""

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from surefoot import models
from surefoot.decoding import Sampling
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.engine.cache import CacheSettings
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.engine.playing import oracle_of, runtime_of
from tests.server.running import Running, until
from tests.support.acceptance_prompts import PROMPTS
from tests.support.near_ties import compare

AT_ONCE = 12
SLOTS = 4
CONTEXT = 512


class World(Protocol):
    """Knows prompts, and what is right."""

    def prompt(self, dice: random.Random) -> list[int]:
        """A prompt as tokens."""

    def check(self, prompt: list[int], tokens: list[int], sampling: Sampling) -> None:
        """Raise AssertionError if the model does not say that."""


class SimulatedWorld:
    """The toy hybrid, whose oracle knows each text to the token."""

    def __init__(self) -> None:
        self._oracle = oracle_of("hybrid")

    def prompt(self, dice: random.Random) -> list[int]:
        return [dice.randrange(300, 500) for _ in range(dice.randint(1, 60))]

    def check(self, prompt: list[int], tokens: list[int], sampling: Sampling) -> None:
        assert tokens == self._oracle.text(prompt, len(tokens), sampling)


class TrainedWorld:
    """The embedded hybrid, decoded one token at a time."""

    def __init__(self, runtime: LibllamaRuntime) -> None:
        self._runtime = runtime

    def prompt(self, dice: random.Random) -> list[int]:
        return self._runtime.tokenizer.encode(dice.choice(PROMPTS))

    def check(self, prompt: list[int], tokens: list[int], sampling: Sampling) -> None:
        assert not compare(self._runtime, prompt, tokens, sampling).wrong


@dataclass
class Soak:
    """Plays requests of all sorts against a server.

    Attributes:
        seen: how many of each sort there were.
    """

    url: str
    world: World
    dice: random.Random
    seen: Counter[str] = field(default_factory=Counter)

    def play(self, count: int) -> None:
        asyncio.run(self._play(count))

    async def _play(self, count: int) -> None:
        turns = asyncio.Semaphore(AT_ONCE)
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:

            async def one() -> None:
                async with turns:
                    await self._one(client)

            await asyncio.gather(*(one() for _ in range(count)))

    async def _one(self, client: httpx.AsyncClient) -> None:
        sorts = (self._whole, self._streamed, self._left, self._cancelled, self._bad, self._held)
        sort = self.dice.choices(sorts, [4, 4, 2, 1, 2, 2])[0]
        self.seen[sort.__name__] += 1
        prompt = self.world.prompt(self.dice)
        sampling = Sampling(
            seed=self.dice.randrange(1 << 31), temperature=self.dice.choice([0.0, 0.8])
        )
        await sort(client, prompt, sampling)

    def _body(self, prompt: list[int], sampling: Sampling) -> dict[str, Any]:
        return {
            "prompt": prompt,
            "seed": sampling.seed,
            "temperature": sampling.temperature,
            "max_tokens": self.dice.randint(1, 60),
            "return_token_ids": True,
            "speculative": self.dice.random() < 0.8,
            "stop": self.dice.choice([None, [" b"], ["zz zz"]]),
        }

    async def _whole(
        self, client: httpx.AsyncClient, prompt: list[int], sampling: Sampling
    ) -> None:
        body = self._body(prompt, sampling) | {"n": self.dice.choice([1, 1, 2])}
        response = await client.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        choices = response.json()["choices"]
        assert len(choices) == body["n"]
        for choice in choices:
            seed = sampling.seed + choice["index"]
            assert choice["finish_reason"] in ("stop", "length")
            assert len(choice["token_ids"]) <= body["max_tokens"]
            own = Sampling(seed=seed, temperature=sampling.temperature)
            self.world.check(prompt, choice["token_ids"], own)

    async def _streamed(
        self, client: httpx.AsyncClient, prompt: list[int], sampling: Sampling
    ) -> None:
        body = self._body(prompt, sampling) | {"stream": True}
        tokens: list[int] = []
        last = ""
        async with client.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                last = line.removeprefix("data: ") or last
                if line.startswith("data: {"):
                    for choice in json.loads(last)["choices"]:
                        tokens += choice.get("token_ids") or []
        assert last == "[DONE]"
        self.world.check(prompt, tokens, sampling)

    async def _left(self, client: httpx.AsyncClient, prompt: list[int], sampling: Sampling) -> None:
        """Somebody who goes away after a few chunks."""
        body = self._body(prompt, sampling) | {"stream": True, "max_tokens": 300}
        async with client.stream("POST", "/v1/completions", json=body) as response:
            lines = response.aiter_lines()
            for _ in range(self.dice.randint(0, 6)):
                await anext(lines, None)

    async def _cancelled(
        self, client: httpx.AsyncClient, prompt: list[int], sampling: Sampling
    ) -> None:
        """Somebody who does not even wait for the answer to begin."""
        body = self._body(prompt, sampling) | {"max_tokens": 300}
        asking = asyncio.create_task(client.post("/v1/completions", json=body))
        await asyncio.sleep(self.dice.random() * 0.02)
        asking.cancel()
        await asyncio.wait([asking])

    async def _bad(self, client: httpx.AsyncClient, prompt: list[int], sampling: Sampling) -> None:
        changes: dict[str, Any] = self.dice.choice(
            [
                {"prompt": []},
                {"prompt": prompt * CONTEXT},
                {"temperature": -1},
                {"max_tokens": "many"},
                {"grammar": "root ::= ("},
                {"json_schema": {"type": "oddity"}},
                {"stop": [""]},
                {"n": 99},
                {"logit_bias": {"99999999": 1}},
            ]
        )
        response = await client.post(
            "/v1/completions", json={**self._body(prompt, sampling), **changes}
        )
        assert response.status_code == 400, (changes, response.text)
        assert response.json()["error"]["message"]

    async def _held(self, client: httpx.AsyncClient, prompt: list[int], sampling: Sampling) -> None:
        """A text that is held to a form."""
        body = {**self._body(prompt, sampling), "stop": None, "max_tokens": 60}
        words = self.dice.sample([" ba", " be", " bi", " bo bu"], 2)
        response = await client.post("/v1/completions", json={**body, "choice": words})
        assert response.status_code == 200, response.text
        assert response.json()["choices"][0]["text"] in words


def resources() -> tuple[int, int]:
    """Open files, and bytes of memory."""
    files = len(list(Path("/proc/self/fd").iterdir()))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return files, pages * os.sysconf("SC_PAGE_SIZE")


def soak(server: Running, world: World, first: int, rest: int, growth: int) -> None:
    """Play requests; what the first few leave behind may not grow with the others."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    play = Soak(server.url, world, random.Random(seed))
    play.play(first)
    until(lambda: server.idle_slots == len(server.engine.slots))
    files, memory = resources()
    play.play(rest)
    until(lambda: server.idle_slots == len(server.engine.slots))
    files_after, memory_after = resources()
    assert files_after <= files + 3
    assert memory_after <= memory + growth
    assert not server.engine.waiting
    assert sum(play.seen.values()) == first + rest
    assert server.engine.totals.ended["failed"] == 0


@pytest.fixture
def cache(tmp_path: Path) -> CacheSettings:
    return CacheSettings(1 << 20, 1 << 20, 1 << 20, tmp_path)


def test_500_mixed_requests_on_the_simulated_model(cache: CacheSettings) -> None:
    runtime = runtime_of("hybrid", slots=SLOTS, context_length=CONTEXT, checkpoints=8)
    with Running(runtime, NgramSimple(), cache=cache) as server:
        soak(server, SimulatedWorld(), first=100, rest=400, growth=48 << 20)


@pytest.fixture
def hybrid() -> Iterator[LibllamaRuntime]:
    settings = LoadSettings(
        models.TARGET, slots=SLOTS, context_length=CONTEXT, threads=1, checkpoint_bytes=32 << 20
    )
    with load(settings) as runtime:
        yield runtime


def test_60_mixed_requests_on_the_trained_model(
    hybrid: LibllamaRuntime, trained: LibllamaRuntime, cache: CacheSettings
) -> None:
    with Running(hybrid, NgramSimple(), cache=cache) as server:
        soak(server, TrainedWorld(trained), first=20, rest=40, growth=48 << 20)
