"""`GET /health`: whether the server works, and how busy it is; `GET /props`: what it runs."""

from dataclasses import asdict

from fastapi import APIRouter
from starlette.responses import Response

from surefoot.server.errors import unavailable
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
        restarting = status.restarting is not None
        # Whoever can go elsewhere should; those who come are queued all the same.
        return JsonResponse(
            status_code=503 if restarting else 200,
            headers={"Retry-After": "1"} if restarting else None,
            content={
                "status": "restarting" if restarting else "ok",
                "restarts": status.restarts,
                "reason": status.restarting,
                "slots_idle": status.slots - status.busy,
                "slots_busy": status.busy,
                "waiting": status.waiting,
                "rounds": status.rounds,
            },
        )

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
                "logit_noise": facts.logit_noise,
                "exact": {"default": service.exact, **facts.exactness},
                "verify": service.rule,
                "tool_format": service.format.name,
                "reasoning_format": service.reasoning_format,
                "default_generation_settings": asdict(service.defaults),
            }
        )

    return router
