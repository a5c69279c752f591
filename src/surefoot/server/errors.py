"""Errors as HTTP clients see them: OpenAI's shape, whatever went wrong."""

from typing import Any

from surefoot.chat import ChatTemplateError
from surefoot.decoding import InvalidParameterError, SurefootError
from surefoot.engine import EngineStoppedError, PromptTooLongError, QueueFullError
from surefoot.runtime.base import TokenizerMissingError

INVALID = "invalid_request_error"
FAILED = "server_error"
LIMITED = "rate_limit_error"
UNAVAILABLE = "unavailable_error"


class ApiError(Exception):
    """An answer that says what went wrong.

    Args:
        status: HTTP status.
        message: what was asked, what is wrong, what to do.
        kind: OpenAI's `type`; follows from the status if left out.
        param: the request field at fault.
        code: a word for programs.
        retry_after: seconds after which the same request may be tried again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or (INVALID if status < 500 else FAILED)
        self.param = param
        self.code = code
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    @property
    def body(self) -> dict[str, Any]:
        """The answer's JSON."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def invalid(param: str, problem: str, code: str | None = None) -> ApiError:
    """A 400 for one field."""
    return ApiError(400, f"{param}: {problem}", param=param, code=code)


def overloaded(status: int, message: str, retry_after: int) -> ApiError:
    """A 429 (the queue is full) or a 503 (a request has waited too long)."""
    kind, code = UNAVAILABLE, "queue_timeout"
    if status == 429:
        kind, code = LIMITED, "queue_full"
    return ApiError(status, message, kind=kind, code=code, retry_after=retry_after)


def unavailable() -> ApiError:
    """A 503: the server is on its way out."""
    return ApiError(503, "the server is shutting down", kind=UNAVAILABLE)


def internal() -> ApiError:
    """A 500 that gives nothing away."""
    return ApiError(500, "internal error; the server's log says more")


def api_error(error: SurefootError) -> ApiError:
    """What a client is told about an error of ours."""
    message = str(error)
    match error:
        case InvalidParameterError():
            return ApiError(400, message, param=error.name)
        case PromptTooLongError():
            return ApiError(400, message, code="context_length_exceeded")
        case ChatTemplateError():
            return ApiError(400, message, param="messages", code="chat_template_error")
        case TokenizerMissingError():
            return ApiError(400, message, code="no_tokenizer")
        case QueueFullError():
            return overloaded(429, message, error.retry_after)
        case EngineStoppedError():
            return unavailable()
        case _:
            return ApiError(500, message)
