"""`GET /health`: whether the server works, and how busy it is."""

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
        engine = service.engine.engine
        busy = sum(slot.generation is not None for slot in engine.slots)
        return JsonResponse(
            {
                "status": "ok",
                "slots_idle": len(engine.slots) - busy,
                "slots_busy": busy,
                "waiting": service.engine.waiting,
                "rounds": engine.rounds,
            }
        )

    return router
