"""`POST /v1/completions`."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence as Series

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from surefoot.constraints import ControlSpec
from surefoot.engine import Delta, Entry, Journal
from surefoot.server import logprobs
from surefoot.server.body import read_body
from surefoot.server.choices import JSON
from surefoot.server.errors import invalid
from surefoot.server.order import Order, known_tokens, order
from surefoot.server.responding import respond
from surefoot.server.rules import checked, grammar_of
from surefoot.server.schemas import MAX_PROMPTS, CompletionBody, body_schema
from surefoot.server.service import Service


class CompletionDialect:
    """Choices of text completions, n for each prompt.

    Args:
        service: the server.
        body: the request.
    """

    prefix = "cmpl"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, service: Service, body: CompletionBody) -> None:
        self._piece = service.tokenizer.piece
        self._body = body
        self._offsets: defaultdict[int, logprobs.Offsets] = defaultdict(logprobs.Offsets)
        self._echoes: dict[int, Journal] = {}

    def whole(self, index: int, generation: Journal, reason: str) -> JSON:
        """The text, behind the prompt if that is wanted."""
        entries, text = list(generation.entries), generation.text
        if self._body.echo:
            prompt = self._prompt(generation)
            entries, text = [*generation.prompt_entries, *entries], prompt + text
        return self._choice(index, text, reason) | self._facts(entries, logprobs.Offsets())

    def opening(self, index: int, generation: Journal) -> list[JSON]:
        """The prompt, if it is wanted and nothing is told of its tokens, which takes a while to
        find out; else a text begins with its first piece."""
        if not self._body.echo:
            return []
        self._echoes[index] = generation
        return [] if self._body.top is not None else self._echo(index)

    def pieces(self, index: int, delta: Delta) -> list[JSON]:
        """More of the text."""
        choices = self._echo(index)
        facts = self._facts(delta.entries, self._offsets[index])
        if delta.text or (delta.entries and any(facts.values())):
            choices.append(self._choice(index, delta.text, None) | facts)
        return choices

    def _echo(self, index: int) -> list[JSON]:
        """The prompt, once, if it is wanted."""
        generation = self._echoes.pop(index, None)
        if generation is None:
            return []
        text = self._prompt(generation)
        facts = self._facts(generation.prompt_entries, self._offsets[index])
        return [self._choice(index, text, None) | facts]

    def ending(self, index: int, reason: str) -> list[JSON]:
        """The end of the text."""
        return [self._choice(index, "", reason)]

    def _prompt(self, generation: Journal) -> str:
        tokens = generation.request.prompt
        return b"".join(map(self._piece, tokens)).decode(errors="replace")

    def _facts(self, entries: Series[Entry], offsets: logprobs.Offsets) -> JSON:
        facts: JSON = {"logprobs": None}
        if self._body.n_probs:
            post = bool(self._body.post_sampling_probs)
            content = logprobs.content(entries, self._piece, post_sampling=post)
            facts["logprobs"] = {"content": content}
        elif self._body.top is not None:
            facts["logprobs"] = logprobs.legacy(entries, self._piece, offsets)
        if self._body.return_token_ids:
            facts["token_ids"] = [entry.token for entry in entries]
        return facts

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
            CompletionDialect(service, body),
            stream=bool(body.stream),
            include_usage=body.include_usage,
        )

    return router


def _order(service: Service, body: CompletionBody) -> Order:
    if not body.prompts:
        raise invalid("prompt", "must not be empty")
    if len(body.prompts) > MAX_PROMPTS:
        raise invalid("prompt", f"at most {MAX_PROMPTS} prompts, and there are {len(body.prompts)}")
    if body.best_of is not None and body.best_of < (body.n or 1):
        raise invalid("best_of", f"must be at least n, which is {body.n or 1}")
    if body.best_of is not None and body.best_of > (body.n or 1) and body.stream:
        raise invalid("best_of", "can't be streamed: which texts are the best shows in the end")
    slots = service.facts.slots
    if body.best_of is not None and body.best_of > slots:
        raise invalid("best_of", f"must be at most {slots}, the number of slots (-np)")
    ruled = grammar_of(body)
    control, warnings = None, list[str]()
    if ruled is not None:
        control = ControlSpec(ruled.grammar)
        warnings = checked(service, control, ruled.field)
    prompts = [
        service.encode(prompt)
        if isinstance(prompt, str)
        else known_tokens(service, "prompt", prompt)
        for prompt in body.prompts
    ]
    score_prompt = bool(body.echo) and body.top is not None
    ordered = order(
        service, body, prompts, control, score_prompt=score_prompt, best_of=body.best_of
    )
    ordered.warnings.extend(warnings)
    return ordered
