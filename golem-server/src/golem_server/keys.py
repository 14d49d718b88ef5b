"""Who is let in: API keys, compared in constant time, and pages of other origins."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Middleware

from golem_core.errors import BadRequest, NotFound
from golem_server.errors import ApiError, Handler

__all__ = ["PUBLIC", "add_cors", "cors_middleware", "keys_middleware", "read_keys"]

# Open to everybody: a supervisor asks these, and the page asks for the key itself.
PUBLIC = {"/health", "/v1/health", "/"}
PUBLIC_BELOW = ("/ui/",)

ALLOWED_METHODS = "GET, POST, OPTIONS"
DAY = "86400"  # seconds that a browser may remember what it was allowed


def read_keys(path: str) -> tuple[str, ...]:
    """The keys of a file, one a line; empty lines and those that begin with # are left out.

    Raises `NotFound` and, for a file without a key or not in UTF-8, `BadRequest`.
    """
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise NotFound(f"the file of API keys {path} cannot be read: {error}") from None
    keys = tuple(key for line in lines if (key := line.strip()) and not key.startswith("#"))
    if not keys:
        # An empty list would let everybody in.
        raise BadRequest(f"{path} has no API key; expected one a line", "api_key_file")
    return keys


def keys_middleware(keys: Sequence[str]) -> Middleware:
    """Lets in who sends one of `keys`, as OpenAI's clients do or as Anthropic's."""
    # Of equal length, so that the comparison tells nothing of a key's own.
    known = [_digest(key) for key in keys]

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        open_to_all = request.path in PUBLIC or request.path.startswith(PUBLIC_BELOW)
        if not known or open_to_all or request.method == "OPTIONS":
            return await handler(request)
        sent = _sent(request)
        if sent is None:
            raise _refusal("no API key was sent; send Authorization: Bearer KEY", "missing_api_key")
        digest = _digest(sent)
        # All of them, whichever it is.
        if not max([hmac.compare_digest(digest, one) for one in known]):
            raise _refusal("the API key is not one that this server knows", "invalid_api_key")
        return await handler(request)

    return check


def _sent(request: web.Request) -> str | None:
    kind, _, key = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer" and key.strip():
        return key.strip()
    return request.headers.get("X-Api-Key") or None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _refusal(message: str, code: str) -> ApiError:
    return ApiError(401, message, code=code, headers={"WWW-Authenticate": "Bearer"})


def cors_middleware(origins: Sequence[str], keyed: bool) -> Middleware:
    """Refuses pages of origins that are not allowed, and answers what browsers ask first.

    A browser sends a simple request before it asks whether it may read the answer, so without the
    refusal any page could have this machine compute. Nor is a page this server's own because the
    name it came by leads here: whoever has a name can have it lead anywhere. Without keys (`keyed`)
    it has to be an address or localhost.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is None or request.path in ("/health", "/v1/health"):
            return await handler(request)
        if not (_is_own(request, origin, keyed) or "*" in origins or origin in origins):
            raise ApiError(
                403,
                f"pages of {origin} may not use this server; --cors {origin} allows it",
                code="origin_not_allowed",
            )
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            asked = request.headers.get("Access-Control-Request-Headers", "*")
            return web.Response(
                status=204,
                headers={
                    "Access-Control-Allow-Methods": ALLOWED_METHODS,
                    "Access-Control-Allow-Headers": asked,
                    "Access-Control-Max-Age": DAY,
                },
            )
        return await handler(request)

    return check


def add_cors(
    origins: Sequence[str], request: web.BaseRequest, response: web.StreamResponse
) -> None:
    """Adds what lets a page of an allowed origin read the response."""
    origin = request.headers.get("Origin")
    if origin is not None and ("*" in origins or origin in origins):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = "x-request-id, retry-after"
        response.headers["Vary"] = "Origin"


def _is_own(request: web.Request, origin: str, keyed: bool) -> bool:
    """Whether the page came from this server."""
    place = urlsplit(origin)
    if place.netloc.lower() != request.host.lower():
        return False
    return keyed or _is_address(place.hostname or "")


def _is_address(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(host))
    return False
