"""From an order to a response, streamed or whole."""

import asyncio
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from surefoot.server.answer import Answer
from surefoot.server.choices import Dialect, Envelope
from surefoot.server.order import Order
from surefoot.server.service import Service
from surefoot.server.streaming import EventStream, events

CLIENT_GONE = 499
"""nginx's status for a client that closed the connection; only the log gets to see it."""


class JsonResponse(Response):
    """JSON, written by orjson."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The body's bytes."""
        return orjson.dumps(content)


async def respond(
    service: Service,
    request: Request,
    order: Order,
    dialect: Dialect,
    *,
    stream: bool,
    include_usage: bool = False,
) -> Response:
    """Generate what was ordered. If the client goes, the generations are cancelled.

    Raises:
        ApiError: a generation failed.
        SurefootError: the engine did not take the order.
    """
    answer = Answer(service.engine, order)
    envelope = Envelope(dialect, service.model_name)
    if stream:
        produced = events(
            answer,
            order,
            dialect,
            envelope,
            include_usage=include_usage,
            ping_seconds=service.ping_seconds,
        )
        return EventStream(produced, on_close=answer.cancel)
    try:
        if not await _finished_before_the_client_went(answer, request):
            return Response(status_code=CLIENT_GONE)
    finally:
        answer.cancel()
    choices = [
        dialect.whole(number, answer.generations[index], answer.reason(index))
        for number, index in enumerate(answer.chosen)
    ]
    return JsonResponse(envelope.response(choices, order.report(answer.summary)))


async def _finished_before_the_client_went(answer: Answer, request: Request) -> bool:
    finished = asyncio.create_task(answer.finished())
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({finished, gone}, return_when=asyncio.FIRST_COMPLETED)
        if finished.done():
            finished.result()
        return finished.done()
    finally:
        for task in (finished, gone):
            task.cancel()
        await asyncio.gather(finished, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Return once the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
