"""Server-sent events: an answer as it comes, until it ends or the client goes."""

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

import anyio
import orjson
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from surefoot.server.answer import Answer
from surefoot.server.choices import JSON, Dialect, Envelope
from surefoot.server.errors import ApiError, internal
from surefoot.server.order import Order

log = logging.getLogger(__name__)

PING = b": still working\n\n"
"""A comment, which clients skip; it keeps proxies from taking a long prefill for a dead stream."""

DONE = b"data: [DONE]\n\n"

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""No cache may keep the stream, and no nginx collect it."""


class EventStream(StreamingResponse):
    """A stream of events that stops at once when the client has gone.

    Starlette's own listens for that, too, but only under servers of an older ASGI version.

    Args:
        events: the events, ready to be sent.
        on_close: called in the end, however it comes.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes], on_close: Callable[[], None]) -> None:
        super().__init__(events, headers=HEADERS)
        self._events = events
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events."""
        try:
            async with aclosing(self._events), anyio.create_task_group() as tasks:

                async def listen() -> None:
                    await self.listen_for_disconnect(receive)
                    tasks.cancel_scope.cancel()

                tasks.start_soon(listen)
                with suppress(OSError):  # how some servers tell that the client has gone
                    await self.stream_response(send)
                tasks.cancel_scope.cancel()
        finally:
            self._on_close()


async def events(
    answer: Answer,
    order: Order,
    dialect: Dialect,
    envelope: Envelope,
    *,
    include_usage: bool,
    ping_seconds: float,
) -> AsyncGenerator[bytes]:
    """An answer as events: a chunk for each round with text, a last one for each choice.

    The very last of these has the figures. What goes wrong on the way is an event of its own, and
    no `[DONE]` follows.
    """
    nothing: JSON = {"usage": None} if include_usage else {}
    held: list[bytes] = []

    def tell(choices: list[JSON]) -> None:
        held.extend(event(envelope.chunk([choice]) | nothing) for choice in choices)

    try:
        for index, generation in enumerate(answer.generations):
            tell(dialect.opening(index, generation))
        while answer.running:
            # Whatever is there by now goes out at once, so a busy server writes less often.
            if held and not answer.has_news:
                yield _taken(held)
            news = await answer.news(patience=ping_seconds)
            if news is None:
                yield PING
                continue
            tell(dialect.pieces(news.index, news.delta))
            if news.delta.state.over:
                *others, last = dialect.ending(news.index, answer.reason(news.index))
                tell(others)
                figures: JSON = {}
                if not answer.running:
                    report = order.report(answer.summary)
                    figures = {"timings": report.timings, "surefoot": report.details}
                held.append(event(envelope.chunk([last]) | nothing | figures))
        if include_usage:
            usage = order.report(answer.summary).usage
            held.append(event(envelope.chunk([]) | {"usage": usage}))
        yield _taken(held) + DONE
    except ApiError as error:
        yield _taken(held) + event(error.body)
    except Exception:
        log.exception("a stream failed")
        yield _taken(held) + event(internal().body)


def _taken(held: list[bytes]) -> bytes:
    """What was held, which is held no longer."""
    data = b"".join(held)
    held.clear()
    return data


def event(value: JSON) -> bytes:
    """One event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"
