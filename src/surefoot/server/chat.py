"""`POST /v1/chat/completions`."""

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Series

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from surefoot.chat.formats import Parser, opens_reasoning
from surefoot.constraints import ControlSpec
from surefoot.engine import Delta, Entry, Journal
from surefoot.server import logprobs
from surefoot.server.body import read_body
from surefoot.server.choices import JSON
from surefoot.server.errors import invalid
from surefoot.server.message import MessageReader
from surefoot.server.message_starts import message_starts
from surefoot.server.order import Order, order
from surefoot.server.reasoning import Thought
from surefoot.server.responding import respond
from surefoot.server.rules import Ruled, checked, grammar_of
from surefoot.server.schemas import ChatBody, body_schema
from surefoot.server.service import Service
from surefoot.server.thinking import with_thinking
from surefoot.server.tools import Tools, calls_of, tools_of


class ChatDialect:
    """Choices of chat completions.

    Args:
        service: the server.
        body: the request.
        parser: makes a parser for one choice.
    """

    prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, service: Service, body: ChatBody, parser: Callable[[], Parser]) -> None:
        self._piece = service.tokenizer.piece
        self._body = body
        self._parser = parser
        self._readers: dict[int, MessageReader] = {}

    def whole(self, index: int, generation: Journal, reason: str) -> JSON:
        """The assistant's message."""
        reader = MessageReader(self._parser())
        reader.feed(generation.text)
        reader.finish()
        return {
            "index": index,
            "message": reader.message,
            "finish_reason": _reason(reader, reason),
        } | self._facts(generation.entries)

    def opening(self, index: int, generation: Journal) -> list[JSON]:  # noqa: ARG002
        """The assistant takes the floor."""
        self._readers[index] = MessageReader(self._parser())
        return [self._choice(index, {"role": "assistant", "content": ""}, None)]

    def pieces(self, index: int, delta: Delta) -> list[JSON]:
        """More of the message. What is told of tokens goes with the first part of it."""
        deltas = self._readers[index].feed(delta.text)
        facts = self._facts(delta.entries)
        if not deltas and delta.entries and any(facts.values()):
            deltas = [{}]
        choices = [self._choice(index, part, None) for part in deltas]
        if choices:
            choices[0] |= facts
        return choices

    def ending(self, index: int, reason: str) -> list[JSON]:
        """The end of the message."""
        reader = self._readers[index]
        choices = [self._choice(index, part, None) for part in reader.finish()]
        return [*choices, self._choice(index, {}, _reason(reader, reason))]

    def _facts(self, entries: Series[Entry]) -> JSON:
        """What is told of the tokens."""
        facts: JSON = {"logprobs": None}
        if self._body.top is not None:
            post = bool(self._body.post_sampling_probs)
            content = logprobs.content(entries, self._piece, post_sampling=post)
            facts["logprobs"] = {"content": content, "refusal": None}
        if self._body.return_token_ids:
            facts["token_ids"] = [entry.token for entry in entries]
        return facts

    def _choice(self, index: int, delta: JSON, reason: str | None) -> JSON:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def _reason(reader: MessageReader, reason: str) -> str:
    """OpenAI's finish reason: a client may carry calls out only if none was cut off."""
    called = reader.calls and not reader.parser.cut
    return "tool_calls" if called and reason == "stop" else reason


def chat_router(service: Service) -> APIRouter:
    """The endpoint."""
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=body_schema(ChatBody))
    async def create_chat_completion(request: Request) -> Response:
        """Answer a conversation."""
        body = await read_body(request, ChatBody, service.most_bytes)
        # Long conversations take a while to tokenize; other requests go on meanwhile.
        ordered, dialect = await asyncio.to_thread(_order, service, body)
        return await respond(
            service,
            request,
            ordered,
            dialect,
            stream=bool(body.stream),
            include_usage=body.include_usage,
        )

    return router


def _order(service: Service, body: ChatBody) -> tuple[Order, ChatDialect]:
    body = with_thinking(service, body)
    variables, tools = body.template_variables, tools_of(body)
    messages = [message.model_dump(exclude_unset=True) for message in body.messages]
    text = service.template.render(messages, tools=tools.shown, **variables)
    tells = (body.reasoning_format or service.reasoning_format) != "none"
    opened = opens_reasoning(text, service.format.reasoning)
    ruled = grammar_of(body)
    control, warnings = _control(service, body, tools, ruled, opened=opened, tells=tells)
    markup = service.markup if tells or tools.functions else frozenset()
    prompt = service.encode(text)
    starts = message_starts(
        service.template,
        messages,
        prompt,
        service.encode,
        opened=opened,
        **{**variables, "tools": tools.shown},
    )
    ordered = order(service, body, [prompt], control, markup, starts=starts)
    ordered.warnings.extend(warnings)
    ordered.warnings.extend(_unused(service, variables, tools))

    def parser() -> Parser:
        return service.format.parser(
            tools.functions,
            reasoning=tells,
            opened=opened,
            calls=bool(tools.functions),
            bound=ruled is not None or tools.required,
        )

    return ordered, ChatDialect(service, body, parser)


def _control(
    service: Service,
    body: ChatBody,
    tools: Tools,
    ruled: Ruled | None,
    *,
    opened: bool,
    tells: bool,
) -> tuple[ControlSpec | None, list[str]]:
    """The rules for a chat's answer, and warnings about what can't be held to.

    Raises:
        ApiError: they contradict each other, or can't be held to where they must be.
    """
    if ruled is not None and tools.functions:
        raise invalid(ruled.field, "can't be used together with tools")
    calls, warnings = calls_of(tools, service.format, service.special_token)
    thought = Thought.of(service, body, opened=opened, tells=tells)
    warnings += thought.warnings
    reasoning = thought.rules(bound=ruled is not None)
    grammar = None if ruled is None else ruled.grammar
    if grammar is None and calls is None and reasoning is None:
        return None, warnings
    spec = ControlSpec(grammar, reasoning, calls)
    warnings += checked(service, spec, "tools" if ruled is None else ruled.field)
    return spec, warnings


def _unused(service: Service, variables: Iterable[str], tools: Tools) -> list[str]:
    """Warnings about what the template does not show to the model."""
    known = service.template.variables | {"add_generation_prompt"}
    warnings = [
        f"chat_template_kwargs: the model's template does not use {name!r}"
        for name in variables
        if name not in known
    ]
    if tools.shown and "tools" not in known:
        warnings.append("tools: the model's chat template does not show them to the model")
    return warnings
