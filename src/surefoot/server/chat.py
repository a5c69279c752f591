"""`POST /v1/chat/completions`."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from surefoot.server.body import read_body
from surefoot.server.choices import JSON
from surefoot.server.errors import invalid
from surefoot.server.order import Order, order
from surefoot.server.responding import respond
from surefoot.server.schemas import ChatBody, body_schema
from surefoot.server.service import Service

RESERVED = ("messages", "tools")
"""Template variables that have fields of their own."""


class ChatDialect:
    """Choices of chat completions."""

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def whole(self, index: int, text: str, reason: str) -> JSON:
        """The assistant's message."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": reason}

    def opening(self, index: int) -> JSON:
        """The assistant takes the floor."""
        return self._choice(index, {"role": "assistant", "content": ""}, None)

    def piece(self, index: int, text: str) -> JSON:
        """More of the message."""
        return self._choice(index, {"content": text}, None)

    def ending(self, index: int, reason: str) -> JSON:
        """The end of the message."""
        return self._choice(index, {}, reason)

    def _choice(self, index: int, delta: JSON, reason: str | None) -> JSON:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def chat_router(service: Service) -> APIRouter:
    """The endpoint."""
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=body_schema(ChatBody))
    async def create_chat_completion(request: Request) -> Response:
        """Answer a conversation."""
        body = await read_body(request, ChatBody, service.most_bytes)
        # Long conversations take a while to tokenize; other requests go on meanwhile.
        ordered = await asyncio.to_thread(_order, service, body)
        return await respond(
            service,
            request,
            ordered,
            ChatDialect(),
            stream=bool(body.stream),
            include_usage=body.include_usage,
        )

    return router


def _order(service: Service, body: ChatBody) -> Order:
    variables = dict(body.chat_template_kwargs or {})
    if taken := next((name for name in RESERVED if name in variables), None):
        raise invalid("chat_template_kwargs", f"{taken} is not a variable to be set here")
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    messages = [message.model_dump(exclude_unset=True) for message in body.messages]
    prompt = service.encode(service.template.render(messages, **variables))
    ordered = order(service, body, [prompt])
    known = service.template.variables | {"add_generation_prompt"}
    ordered.warnings.extend(
        f"chat_template_kwargs: the model's template does not use {name!r}"
        for name in variables
        if name not in known
    )
    return ordered
