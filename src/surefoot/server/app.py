"""The FastAPI application: all endpoints, and errors in one shape."""

from collections.abc import Collection, Mapping
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from surefoot import __version__
from surefoot.chat import template_for
from surefoot.chat.formats import FORMATS, Format, detect_format
from surefoot.decoding import Sampling, SurefootError
from surefoot.engine import EngineHandle
from surefoot.server.answer_settings import AnswerSettings
from surefoot.server.chat import chat_router
from surefoot.server.completions import completion_router
from surefoot.server.errors import ApiError, api_error, internal
from surefoot.server.health import health_router
from surefoot.server.keys import KeyCheck
from surefoot.server.metrics import metrics_router
from surefoot.server.models import model_router
from surefoot.server.responding import CLIENT_GONE, JsonResponse
from surefoot.server.service import Service
from surefoot.server.slots import slot_router


def create_app(
    engine: EngineHandle,
    *,
    model_name: str,
    defaults: Sampling | None = None,
    seed: int | None = None,
    max_tokens: int | None = None,
    answers: AnswerSettings | None = None,
    keys: Collection[str] = (),
    slot_folder: Path | None = None,
    most_bytes: int = 32 << 20,
    ping_seconds: float = 10.0,
) -> FastAPI:
    """The application for an engine, which the caller starts and stops.

    Args:
        engine: the engine.
        model_name: what the server calls its model.
        defaults: sampling parameters for what requests leave out; its seed is not used.
        seed: the seed of requests that give none; None or -1 draws one for each.
        max_tokens: most tokens of requests that set no limit; None for the rest of the context.
        answers: how answers are made and read where requests say nothing else.
        keys: API keys, one of which a request must have; none to let everybody in.
        slot_folder: where slots may be saved; None for nowhere.
        most_bytes: largest request body.
        ping_seconds: a stream that has been silent so long sends a comment.

    Raises:
        ChatTemplateError: the model file's chat template is not valid.
        InvalidParameterError: the defaults have a bias for a token that is none.
    """
    facts, info = engine.facts, engine.facts.info
    answers = answers or AnswerSettings()
    defaults = defaults or Sampling()
    defaults.check_tokens(facts.vocabulary_size)
    service = Service(
        engine=engine,
        template=template_for(info.chat_template, info.bos_text, info.eos_text),
        model_name=model_name,
        defaults=defaults,
        seed=seed,
        max_tokens=max_tokens,
        format=_format(answers.tool_format, info.chat_template),
        exact=answers.exact,
        rule=answers.rule,
        reasoning_format=answers.reasoning_format,
        reasoning_budget=answers.reasoning_budget,
        slot_folder=slot_folder,
        most_bytes=most_bytes,
        ping_seconds=ping_seconds,
    )
    app = FastAPI(title="surefoot", version=__version__)
    if keys:
        app.add_middleware(KeyCheck, keys=keys)
    # Outermost, since browsers ask what is allowed without a key.
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]
    )
    for make_router in (
        chat_router,
        completion_router,
        model_router,
        health_router,
        metrics_router,
        slot_router,
    ):
        app.include_router(make_router(service))
    _handle_errors(app)
    return app


def _format(name: str, template: str | None) -> Format:
    """A format by its name; that of the template for "auto"."""
    return detect_format(template) if name == "auto" else FORMATS[name]


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def told(_request: Request, error: ApiError) -> Response:
        return _response(error)

    @app.exception_handler(SurefootError)
    async def known(_request: Request, error: SurefootError) -> Response:
        return _response(api_error(error))

    @app.exception_handler(HTTPException)
    async def from_the_framework(request: Request, error: HTTPException) -> Response:
        message = f"{request.method} {request.url.path}: {error.detail}"
        return _response(ApiError(error.status_code, message), error.headers)

    @app.exception_handler(ClientDisconnect)
    async def gone(_request: Request, _error: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_GONE)

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, _error: Exception) -> Response:
        return _response(internal())


def _response(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    return JsonResponse(error.body, error.status, headers or error.headers)
