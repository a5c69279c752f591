"""From start to a clean end: uvicorn around the application, the engine's thread beside it."""

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator

import uvicorn

from surefoot.decoding import Sampling
from surefoot.engine import Engine, EngineThread
from surefoot.server.answer_settings import AnswerSettings
from surefoot.server.app import create_app
from surefoot.server.listening import BACKLOG, listen, url

SECONDS_TO_CLOSE = 5
"""How long connections may take to close once the engine has stopped."""


def serve(
    engine: Engine,
    listener: socket.socket,
    *,
    model_name: str,
    defaults: Sampling | None = None,
    seed: int | None = None,
    max_tokens: int | None = None,
    answers: AnswerSettings | None = None,
    keys: Collection[str] = (),
    keep_alive_seconds: int = 75,
    ready: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve an engine until SIGINT or SIGTERM, after which it returns.

    What runs then ends with an error that says so; the socket is closed, the engine's runtime is
    not.

    Args:
        engine: used by this server alone.
        listener: from `bind`.
        model_name: what the server calls its model.
        defaults: sampling parameters for what requests leave out; its seed is not used.
        seed: the seed of requests that give none; None or -1 draws one for each.
        max_tokens: most tokens of requests that set no limit; None for the rest of the context.
        answers: how answers are made and read where requests say nothing else.
        keys: API keys, one of which a request must have; none to let everybody in.
        keep_alive_seconds: how long an idle connection is kept. The default is longer than the
            60 seconds of most load balancers, which must not meet a connection just closed.
        ready: called with the server's URL once it answers.

    Raises:
        ListenError: another process listens there by now.
        ChatTemplateError: the model file's chat template is not valid.
    """
    thread = EngineThread(engine)
    app = create_app(
        thread,
        model_name=model_name,
        defaults=defaults,
        seed=seed,
        max_tokens=max_tokens,
        answers=answers,
        keys=keys,
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
    server = _Server(config, thread, lambda: ready(url(listener)))
    thread.start()
    try:
        server.run(sockets=[listener])
    finally:
        thread.stop()
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn, with the engine stopped first, and an end on a signal that is no error."""

    def __init__(
        self, config: uvicorn.Config, thread: EngineThread, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._thread = thread
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say when it is done."""
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the engine, so that no response is left to wait for."""
        await asyncio.to_thread(self._thread.stop)
        await super().shutdown(sockets)

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
