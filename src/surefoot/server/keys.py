"""API keys: who may use the server, asked before anything else is done for a request."""

import hashlib
import secrets
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from surefoot.server.errors import ApiError
from surefoot.server.responding import JsonResponse

OPEN = frozenset({"/health", "/v1/models"})
"""Paths that need no key, so that load balancers and lists of models work without one."""


class KeyCheck:
    """ASGI middleware that answers requests without a known key by a 401.

    Args:
        app: what answers all others.
        keys: the keys, any of which will do.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] != "http" or scope["path"] in OPEN or self._lets_in(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            401,
            "this server wants an API key that it knows, as `Authorization: Bearer KEY`",
            code="invalid_api_key",
        )
        response = JsonResponse(error.body, error.status, {"WWW-Authenticate": "Bearer"})
        await response(scope, receive, send)

    def _lets_in(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = _digest(key.strip(" \t"), "latin-1")  # HTTP's, in which Starlette reads headers
        # All are compared, and in constant time, so that the time tells nothing.
        found = [secrets.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(found)


def _digest(key: str, encoding: str = "utf-8") -> bytes:
    return hashlib.sha256(key.encode(encoding)).digest()
