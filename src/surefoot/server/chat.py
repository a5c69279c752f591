"""`POST /v1/chat/completions`."""

import asyncio
from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from surefoot.chat.formats import Parser, opens_reasoning
from surefoot.constraints import Calls, ControlSpec, Grammar, Reasoning
from surefoot.engine import Delta, Entry, Generation
from surefoot.server import logprobs
from surefoot.server.body import read_body
from surefoot.server.choices import JSON
from surefoot.server.errors import invalid
from surefoot.server.message import MessageReader
from surefoot.server.order import Order, order
from surefoot.server.responding import respond
from surefoot.server.rules import grammar_of
from surefoot.server.schemas import ChatBody, ToolChoice, body_schema
from surefoot.server.service import Service

RESERVED = ("messages", "tools")
"""Template variables that have fields of their own."""


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
        self._piece = service.runtime.tokenizer.piece
        self._body = body
        self._parser = parser
        self._readers: dict[int, MessageReader] = {}

    def whole(self, index: int, generation: Generation, reason: str) -> JSON:
        """The assistant's message."""
        reader = MessageReader(self._parser())
        reader.feed(generation.text)
        reader.finish()
        return {
            "index": index,
            "message": reader.message,
            "finish_reason": _reason(reader, reason),
        } | self._facts(generation.entries)

    def opening(self, index: int, generation: Generation) -> list[JSON]:  # noqa: ARG002
        """The assistant takes the floor."""
        self._readers[index] = MessageReader(self._parser())
        return [self._choice(index, {"role": "assistant", "content": ""}, None)]

    def pieces(self, index: int, delta: Delta) -> list[JSON]:
        """More of the message. What is told of tokens goes with the first part of it."""
        deltas = self._readers[index].feed(delta.text)
        facts = self._facts(delta.entries)
        if not deltas and facts.get("logprobs") and delta.entries:
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
        if self._body.wanted_logprobs is not None:
            post = bool(self._body.post_sampling_probs)
            content = logprobs.content(entries, self._piece, post_sampling=post)
            facts["logprobs"] = {"content": content, "refusal": None}
        if self._body.return_token_ids:
            facts["token_ids"] = [entry.token for entry in entries]
        return facts

    def _choice(self, index: int, delta: JSON, reason: str | None) -> JSON:
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def _reason(reader: MessageReader, reason: str) -> str:
    return "tool_calls" if reader.calls and reason == "stop" else reason


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


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a chat asks for beyond a completion.

    Attributes:
        tools: the functions that may be called; none if calls are not told apart.
        choice: "auto", "required", or a function's name.
        shown: whether the template is told of the tools.
    """

    tools: list[dict[str, Any]]
    choice: str
    shown: list[dict[str, Any]] | None


def _tools(body: ChatBody) -> _Wanted:
    """The tools of a body.

    Raises:
        ApiError: the tool that must be called is not among them.
    """
    choice = body.tool_choice or "auto"
    functions = [tool.function.model_dump(exclude_unset=True) for tool in body.tools or []]
    names = [function["name"] for function in functions]
    if isinstance(choice, ToolChoice):
        if choice.function.name not in names:
            raise invalid("tool_choice", f"there is no tool called {choice.function.name!r}")
        chosen = choice.function.name
    else:
        chosen = choice
    if not functions:
        if chosen == "required":
            raise invalid("tool_choice", "required needs tools")
        return _Wanted([], "auto", None)
    if len(set(names)) < len(names):
        raise invalid("tools", "two functions have the same name")
    if chosen == "none":
        return _Wanted([], "auto", None)
    shown = [tool.model_dump(exclude_unset=True) for tool in body.tools or []]
    return _Wanted(functions, chosen, shown)


def _order(service: Service, body: ChatBody) -> tuple[Order, ChatDialect]:
    variables = dict(body.chat_template_kwargs or {})
    if taken := next((name for name in RESERVED if name in variables), None):
        raise invalid("chat_template_kwargs", f"{taken} is not a variable to be set here")
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)
    wanted = _tools(body)
    messages = [message.model_dump(exclude_unset=True) for message in body.messages]
    text = service.template.render(messages, tools=wanted.shown, **variables)
    style = body.reasoning_format or service.reasoning_format
    tells = style != "none"
    opened = opens_reasoning(text, service.format.reasoning)
    control, warnings = _control(service, body, wanted, opened=opened, tells=tells)
    markup = service.markup if tells or wanted.tools else frozenset()
    ordered = order(service, body, [service.encode(text)], control, markup)
    ordered.warnings.extend(warnings)
    known = service.template.variables | {"add_generation_prompt"}
    ordered.warnings.extend(
        f"chat_template_kwargs: the model's template does not use {name!r}"
        for name in variables
        if name not in known
    )
    if wanted.shown and "tools" not in service.template.variables:
        ordered.warnings.append("tools: the model's chat template does not show them to the model")

    def parser() -> Parser:
        return service.format.parser(
            wanted.tools, reasoning=tells, opened=opened, calls=bool(wanted.tools)
        )

    return ordered, ChatDialect(service, body, parser)


def _control(
    service: Service, body: ChatBody, wanted: _Wanted, *, opened: bool, tells: bool
) -> tuple[ControlSpec | None, list[str]]:
    """The rules for a chat's answer, and warnings about what can't be held to.

    Raises:
        ApiError: they contradict each other, or can't be held to where they must be.
    """
    grammar = grammar_of(body)
    if grammar is not None and wanted.tools:
        raise invalid("tools", "can't be used together with a grammar or response_format")
    calls, warnings = None, list[str]()
    if wanted.tools:
        named = [tool for tool in wanted.tools if tool["name"] == wanted.choice]
        rules = service.format.rules(named or wanted.tools, service.special_token)
        must = wanted.choice != "auto"
        if rules is not None:
            calls = Calls(
                rules.triggers,
                Grammar("lark", rules.grammar),
                required=must,
                parallel=body.parallel_tool_calls is not False,
            )
        elif must:
            raise invalid(
                "tool_choice", f"a call can't be required in the format {service.format.name}"
            )
        else:
            warnings.append(f"tools: calls are not held to their schemas ({service.format.name})")
    budget = body.thinking_budget_tokens
    budget = service.reasoning_budget if budget is None else budget
    tags = service.format.reasoning
    reasoning = None
    thinks = opened or service.thinks
    if tags is not None and thinks and (tells or opened) and (grammar or calls or budget >= 0):
        reasoning = Reasoning(
            tags.start, tags.end, opened=opened, budget=None if budget < 0 else budget
        )
    if grammar is None and calls is None and reasoning is None:
        return None, warnings
    spec = ControlSpec(grammar, reasoning, calls)
    try:
        warnings += service.controls.check(spec)
    except ValueError as error:
        # A tool's schema that can't be used is the tools' fault, whatever its grammar is called.
        if calls is not None and grammar is None:
            raise invalid("tools", str(error)) from error
        raise
    return spec, warnings
