"""`/slots`: what they hold, and llama-server's actions on them, `POST /slots/{id}?action=...`."""

import asyncio
from pathlib import Path
from typing import Any, get_args

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from surefoot.engine import SlotError, SlotOrder
from surefoot.engine.slot_actions import Action, check_file_name
from surefoot.server.body import read_body
from surefoot.server.errors import ApiError, invalid
from surefoot.server.responding import JsonResponse
from surefoot.server.service import Service

_STATUS = {"missing": 404, "busy": 409, "unusable": 400, "disk": 500}
_MOST_BYTES = 1 << 16
ACTIONS: tuple[str, ...] = get_args(Action)


class SlotBody(BaseModel):
    """Body of an action that reads or writes a file."""

    model_config = ConfigDict(strict=True, extra="ignore")

    filename: str = Field(description="A plain name; the file lies in --slot-save-path.")


def slot_router(service: Service) -> APIRouter:
    """The endpoints."""
    router = APIRouter()

    @router.get("/slots")
    async def slots() -> Response:
        """Tell what each slot holds, and whether it is at work."""
        return JsonResponse(
            [
                {
                    "id": number,
                    "n_ctx": service.facts.context_length,
                    "speculative": service.drafter is not None,
                    "is_processing": slot.request is not None,
                    "id_task": -1 if slot.request is None else slot.request,
                    "n_tokens": slot.tokens,
                }
                for number, slot in enumerate(service.engine.status().figures.slots)
            ]
        )

    @router.post("/slots/{slot}")
    async def act(slot: int, request: Request, action: str = "") -> Response:
        """Save a slot to a file, restore it from one, or erase it."""
        if action not in ACTIONS:
            raise invalid("action", f"must be one of {', '.join(ACTIONS)}, not {action!r:.40}")
        path = Path()
        if action != "erase":
            if service.slot_folder is None:
                raise ApiError(501, "start the server with --slot-save-path to do that")
            body = await read_body(request, SlotBody, _MOST_BYTES)
            path = service.slot_folder / check_file_name(body.filename)
        order = SlotOrder(action, slot, str(path))  # type: ignore[arg-type] # it is in ACTIONS
        try:
            done = await asyncio.to_thread(service.engine.slot, order)
        except SlotError as error:
            raise ApiError(_STATUS[error.problem], str(error)) from error
        facts: dict[str, Any] = {"id_slot": slot}
        if action == "erase":
            return JsonResponse(facts | {"n_erased": done.tokens})
        tokens, size = ("n_saved", "n_written") if action == "save" else ("n_restored", "n_read")
        facts |= {"filename": path.name, tokens: done.tokens, size: done.bytes}
        return JsonResponse(facts | {"timings": {f"{action}_ms": done.seconds * 1000}})

    return router
