"""From start to a clean end: uvicorn around the application, the engine beside it."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType

import uvicorn

from surefoot.decoding import Sampling
from surefoot.engine import EngineHandle
from surefoot.server.answer_settings import AnswerSettings
from surefoot.server.app import create_app
from surefoot.server.listening import BACKLOG, listen, url

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LOOKS = 0.02
"""How often a drain looks whether anything is still open."""

SECONDS_TO_CLOSE = 5
"""How long connections may take to close once the engine has stopped."""


def serve(
    engine: EngineHandle,
    listener: socket.socket,
    *,
    model_name: str,
    defaults: Sampling | None = None,
    seed: int | None = None,
    max_tokens: int | None = None,
    answers: AnswerSettings | None = None,
    keys: Collection[str] = (),
    slot_folder: Path | None = None,
    drain_seconds: float = 0.0,
    keep_alive_seconds: int = 75,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve an engine until SIGINT or SIGTERM, after which it returns.

    No more requests are taken then. What runs and waits may go on for a while; what has not ended
    by then, or at a second signal, ends with an error that says so. The engine is stopped and the
    socket closed.

    Args:
        engine: at work, and used by this server alone.
        listener: from `bind`.
        model_name: what the server calls its model.
        defaults: sampling parameters for what requests leave out; its seed is not used.
        seed: the seed of requests that give none; None or -1 draws one for each.
        max_tokens: most tokens of requests that set no limit; None for the rest of the context.
        answers: how answers are made and read where requests say nothing else.
        keys: API keys, one of which a request must have; none to let everybody in.
        slot_folder: where slots may be saved; None for nowhere.
        drain_seconds: how long what runs may go on after a signal.
        keep_alive_seconds: how long an idle connection is kept. The default is longer than the
            60 seconds of most load balancers, which must not meet a connection just closed.
        ready: called with the server's URL once it answers.

    Raises:
        ListenError: another process listens there by now.
        ChatTemplateError: the model file's chat template is not valid.
    """
    app = create_app(
        engine,
        model_name=model_name,
        defaults=defaults,
        seed=seed,
        max_tokens=max_tokens,
        answers=answers,
        keys=keys,
        slot_folder=slot_folder,
    )
    listen(listener)
    config = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        ws="none",
        backlog=BACKLOG,
        server_header=False,
        timeout_keep_alive=keep_alive_seconds,
        timeout_graceful_shutdown=SECONDS_TO_CLOSE,
    )
    server = _Server(config, engine, drain_seconds, lambda: ready(url(listener)))
    try:
        server.run(sockets=[listener])
    finally:
        engine.stop()
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn, with the engine drained first, and an end on a signal that is no error."""

    def __init__(
        self,
        config: uvicorn.Config,
        engine: EngineHandle,
        drain_seconds: float,
        ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._engine = engine
        self._drain_seconds = drain_seconds
        self._ready = ready
        self._signals = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say when it is done."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain and stop the engine, so that no response is left to wait for."""
        self._engine.refuse()
        end = time.monotonic() + self._drain_seconds
        if self._engine.open and self._drain_seconds:
            log.info("draining: %d requests are open", self._engine.open)
        while self._engine.open and time.monotonic() < end and self._signals < 2:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
        await asyncio.to_thread(self._engine.stop)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take note of a signal: the first begins to drain, the second ends that."""
        self._signals += 1
        if self._signals != 2:  # uvicorn would not even wait for the last words at a second one
            super().handle_exit(sig, frame)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal is not raised again in the end, when all is done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in signals}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
