"""A server in a thread of the test's own process, with a client beside it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import httpx
import uvicorn

from surefoot.decoding import Drafter
from surefoot.engine import Engine, EngineThread, Generation, LaneOpener, QueueSettings
from surefoot.engine.cache import CacheSettings
from surefoot.runtime.base import Runtime
from surefoot.server import bind, create_app
from surefoot.server.listening import listen, url
from tests.server.gate import Gate


class Running:
    """A server of a runtime; options are those of `create_app`."""

    def __init__(
        self,
        runtime: Runtime,
        drafter: Drafter | None = None,
        *,
        gate: Gate | None = None,
        cache: CacheSettings | None = None,
        queue: QueueSettings | None = None,
        opener: LaneOpener | None = None,
        engine: Engine | None = None,
        **options: Any,
    ) -> None:
        self.thread = EngineThread(
            engine or Engine(runtime, drafter, opener=opener, cache=cache, queue=queue)
        )
        self.engine = self.thread.engine
        app = create_app(self.thread, model_name="simulated", **options)
        self._gate = gate
        self._listener = bind("127.0.0.1", 0)
        listen(self._listener)
        self.url = url(self._listener)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, lifespan="off", log_config=None, ws="none", timeout_graceful_shutdown=5
            )
        )
        self._loop = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]})
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def __enter__(self) -> Self:
        self.thread.start()
        self._loop.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        if self._gate is not None:
            self._gate.open()
        self.thread.stop()
        self._server.should_exit = True
        self._loop.join()
        self._listener.close()

    def post(self, path: str, body: Any) -> httpx.Response:
        return self.client.post(f"/v1/{path}", json=body)

    def answer(self, path: str, **body: Any) -> dict[str, Any]:
        """A whole answer, which must be one."""
        response = self.post(path, body)
        assert response.status_code == 200, response.text
        value: dict[str, Any] = response.json()
        return value

    def complete(self, prompt: Any, **body: Any) -> str:
        """The text of a whole completion."""
        text: str = self.answer("completions", prompt=prompt, **body)["choices"][0]["text"]
        return text

    def stream(self, path: str, **body: Any) -> list[dict[str, Any]]:
        """The chunks of a stream, which must end with [DONE]."""
        with self.client.stream("POST", f"/v1/{path}", json={**body, "stream": True}) as response:
            assert response.status_code == 200
            *chunks, last = list(events(response.iter_lines()))
        assert last == "[DONE]"
        return [json.loads(chunk) for chunk in chunks]

    def generation(self, slot: int = 0) -> Generation:
        """The generation in a slot."""
        generation = self.engine.slots[slot].generation
        assert generation is not None
        return generation

    @property
    def idle_slots(self) -> int:
        return sum(slot.generation is None for slot in self.engine.slots)


def events(lines: Iterator[str]) -> Iterator[str]:
    """The data of server-sent events, comments left out."""
    for line in lines:
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds; it must at some time."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.002)
