"""How the server is: ``/health``."""

from __future__ import annotations

from aiohttp import web

__all__ = ["add"]


def add(app: web.Application) -> None:
    """Adds what is asked of a server rather than of a model."""
    app.router.add_get("/health", health)
    app.router.add_get("/v1/health", health)


async def health(request: web.Request) -> web.Response:
    """200 when it can answer."""
    return web.json_response({"status": "ok"})
