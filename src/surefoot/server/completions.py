"""`POST /v1/completions`."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from surefoot.server.body import read_body
from surefoot.server.choices import JSON
from surefoot.server.errors import invalid
from surefoot.server.order import Order, known_tokens, order
from surefoot.server.responding import respond
from surefoot.server.schemas import MAX_PROMPTS, CompletionBody, body_schema
from surefoot.server.service import Service


class CompletionDialect:
    """Choices of text completions, one for each prompt."""

    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def whole(self, index: int, text: str, reason: str) -> JSON:
        """The text."""
        return self._choice(index, text, reason)

    def opening(self, index: int) -> None:
        """Nothing: a text begins with its first piece."""

    def piece(self, index: int, text: str) -> JSON:
        """More of the text."""
        return self._choice(index, text, None)

    def ending(self, index: int, reason: str) -> JSON:
        """The end of the text."""
        return self._choice(index, "", reason)

    def _choice(self, index: int, text: str, reason: str | None) -> JSON:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


def completion_router(service: Service) -> APIRouter:
    """The endpoint."""
    router = APIRouter()

    @router.post("/v1/completions", openapi_extra=body_schema(CompletionBody))
    async def create_completion(request: Request) -> Response:
        """Go on with one prompt or several."""
        body = await read_body(request, CompletionBody, service.most_bytes)
        ordered = await asyncio.to_thread(_order, service, body)
        return await respond(
            service,
            request,
            ordered,
            CompletionDialect(),
            stream=bool(body.stream),
            include_usage=body.include_usage,
        )

    return router


def _order(service: Service, body: CompletionBody) -> Order:
    if not body.prompts:
        raise invalid("prompt", "must not be empty")
    if len(body.prompts) > MAX_PROMPTS:
        raise invalid("prompt", f"at most {MAX_PROMPTS} prompts, and there are {len(body.prompts)}")
    prompts = [
        service.encode(prompt)
        if isinstance(prompt, str)
        else known_tokens(service, "prompt", prompt)
        for prompt in body.prompts
    ]
    return order(service, body, prompts)
