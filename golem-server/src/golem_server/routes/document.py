"""``/openapi.json``: the document of every route."""

from __future__ import annotations

from aiohttp import web

from golem_server.app import SETTINGS
from golem_server.openapi import document

__all__ = ["add"]


def add(app: web.Application) -> None:
    """Adds the route."""
    app.router.add_get("/openapi.json", described)


async def described(request: web.Request) -> web.Response:
    """The document, of what this server really serves."""
    return web.json_response(document(request.app, keys=bool(request.app[SETTINGS].api_keys)))
