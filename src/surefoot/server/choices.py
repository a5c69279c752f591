"""How an answer is written: OpenAI's JSON, streamed or whole, for either endpoint."""

import secrets
import time
from typing import Any, Protocol

from surefoot import __version__
from surefoot.engine import Delta, Journal
from surefoot.server.report import Report

JSON = dict[str, Any]


class Dialect(Protocol):
    """How one endpoint writes its choices; made for one request."""

    prefix: str
    """Begins its response ids."""

    whole_object: str
    """The `object` of its whole responses."""

    chunk_object: str
    """The `object` of its streamed chunks."""

    def whole(self, index: int, generation: Journal, reason: str) -> JSON:
        """A whole choice."""

    def opening(self, index: int, generation: Journal) -> list[JSON]:
        """Choices that open a stream; none if there is nothing to say yet."""

    def pieces(self, index: int, delta: Delta) -> list[JSON]:
        """Choices with what is new."""

    def ending(self, index: int, reason: str) -> list[JSON]:
        """What was held back, and the choice that ends."""


class Envelope:
    """What is around the choices, the same in each chunk of a stream."""

    def __init__(self, dialect: Dialect, model_name: str) -> None:
        self._dialect = dialect
        self._id = f"{dialect.prefix}-{secrets.token_hex(12)}"
        self._created = int(time.time())
        self._model_name = model_name

    def response(self, choices: list[JSON], report: Report) -> JSON:
        """A whole response."""
        return self._around(self._dialect.whole_object, choices) | {
            "usage": report.usage,
            "timings": report.timings,
            "surefoot": report.details,
        }

    def chunk(self, choices: list[JSON]) -> JSON:
        """A chunk of a stream."""
        return self._around(self._dialect.chunk_object, choices)

    def _around(self, kind: str, choices: list[JSON]) -> JSON:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model_name,
            "system_fingerprint": f"surefoot-{__version__}",
            "choices": choices,
        }
