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
        status = service.engine.status()
        state = asdict(status.health) | {"restarts": status.restarts}
        if status.health.live:
            return JsonResponse(state)
        # Whoever can go elsewhere should; those who come are queued all the same.
        error = ApiError(503, f"nothing moves: {status.health.reason}", kind=UNAVAILABLE)
        return JsonResponse(state | error.body, error.status, {"Retry-After": "1"})

    @router.get("/props")
    async def props() -> Response:
        """Tell what is served, how it drafts, and how rejected drafts are undone."""
        facts, info = service.facts, service.facts.info
        rollback = facts.rollback
        return JsonResponse(
            {
                "model": service.model_name,
                "architecture": info.architecture,
                "memory": info.memory,
                "total_slots": facts.slots,
                "n_ctx": facts.context_length,
                "chat_template": info.chat_template,
                "speculation": {
                    "drafters": service.drafters,
                    "n_max": facts.max_draft,
                    "off": service.speculation_off(None),
                    "synthetic": facts.synthetic,
                },
                "rollback": {
                    "kind": rollback.kind,
                    "cut": rollback.cut,
                    "fork": rollback.fork,
                },
                "cache": service.engine.status().figures.cache,
                "logit_noise": facts.logit_noise,
                "exact": {"default": service.exact, **facts.exactness},
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
