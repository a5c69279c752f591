"""`GET /health`: whether the server works, and how busy it is; `GET /props`: what it runs."""

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from surefoot.server.errors import UNAVAILABLE, ApiError, unavailable
from surefoot.server.responding import JsonResponse
from surefoot.server.service import Service


def health_router(service: Service) -> APIRouter:
    """The endpoint."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> Response:
        """Tell how the server is."""
        if service.engine.stopping:
            raise unavailable()
        state = service.engine.health()
        if state.live:
            return JsonResponse(asdict(state))
        error = ApiError(503, f"nothing moves: {state.reason}", kind=UNAVAILABLE)
        return JsonResponse(asdict(state) | error.body, error.status)

    @router.get("/props")
    async def props() -> Response:
        """Tell what is served, how it drafts, and how rejected drafts are undone."""
        engine, info = service.engine.engine, service.runtime.info
        rollback = service.runtime.rollback
        return JsonResponse(
            {
                "model": service.model_name,
                "architecture": info.architecture,
                "memory": info.memory,
                "total_slots": service.runtime.slots,
                "n_ctx": service.runtime.context_length,
                "chat_template": info.chat_template,
                "speculation": {
                    "drafters": service.drafters,
                    "n_max": engine.max_draft,
                    "off": service.speculation_off(None),
                    "synthetic": engine.synthetic is not None,
                },
                "rollback": {
                    "kind": rollback.kind,
                    "cut": rollback.cut,
                    "fork": rollback.fork,
                },
                "cache": engine.cache.describe(),
                "logit_noise": service.runtime.logit_noise,
                "exact": {"default": service.exact, **engine.exactness},
                "verify": service.rule,
                "tool_format": service.format.name,
                "reasoning_format": service.reasoning_format,
                "default_generation_settings": {
                    **asdict(service.defaults),
                    "seed": -1 if service.seed is None else service.seed,
                },
            }
        )

    return router
