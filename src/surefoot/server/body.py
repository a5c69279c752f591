"""Reading a request's body: size, type, JSON, and then its fields."""

from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from surefoot.server.errors import ApiError

Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request, model: type[Body], most_bytes: int) -> Body:
    """The body as a model. It must be JSON; what its content-type says does not matter, so that
    `curl -d` works as it does with llama-server.

    Raises:
        ApiError: 413 if it is too large, 400 if it is not what the model describes.
    """
    value = _object(await _read(request, most_bytes))
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _problem(error) from error


async def _read(request: Request, most_bytes: int) -> bytes:
    """All of the body. One that is too large is read to its end, so that its sender gets to hear
    of it rather than of a broken connection; nothing of it is kept."""
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most_bytes:
            body += chunk
        else:
            body.clear()
    if size > most_bytes:
        raise ApiError(413, f"the body has {size} bytes; at most {most_bytes} are read")
    return bytes(body)


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ApiError(
            400,
            f"the body is no valid JSON (NaN and Infinity aren't): {error}",
            code="invalid_json",
        ) from error
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return value


def _problem(error: ValidationError) -> ApiError:
    """All that is wrong with the fields, in one message."""
    problems = [(_path(fault["loc"]), _words(fault)) for fault in error.errors()]
    message = "; ".join(f"{path}: {words}" if path else words for path, words in problems)
    return ApiError(400, message, param=problems[0][0] or None)


def _path(location: tuple[str | int, ...]) -> str:
    """A place in the body, such as `messages[0].role`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return "".join(parts).removeprefix(".")


def _words(fault: ErrorDetails) -> str:
    match fault["type"]:
        case "missing":
            return "is missing"
        case "too_short":
            return "must not be empty"
        case _:
            return fault["msg"].replace("Input should be", "must be")
