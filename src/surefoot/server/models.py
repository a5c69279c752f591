"""`GET /v1/models`: the one model that there is."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from surefoot.server.errors import ApiError
from surefoot.server.responding import JsonResponse
from surefoot.server.service import Service


def model_router(service: Service) -> APIRouter:
    """The endpoints."""
    router = APIRouter()

    @router.get("/v1/models")
    async def list_models() -> Response:
        """List the model."""
        return JsonResponse({"object": "list", "data": [_model(service)]})

    @router.get("/v1/models/{name:path}")
    async def retrieve_model(name: str) -> Response:
        """Describe the model."""
        if name != service.model_name:
            raise ApiError(
                404,
                f"there is no model {name!r}; this server has {service.model_name!r}",
                param="model",
                code="model_not_found",
            )
        return JsonResponse(_model(service))

    return router


def _model(service: Service) -> dict[str, Any]:
    facts, info = service.facts, service.facts.info
    return {
        "id": service.model_name,
        "object": "model",
        "created": service.started,
        "owned_by": "surefoot",
        "meta": {
            "architecture": info.architecture,
            "description": info.description,
            "n_vocab": facts.vocabulary_size,
            "n_ctx": facts.context_length,
            "n_ctx_train": info.training_context,
            "n_params": info.parameters,
            "size": info.size,
        },
    }
