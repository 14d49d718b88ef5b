"""``/v1/models``: the models that can be asked for."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from golem_server.app import MODELS
from golem_server.models import Offer

__all__ = ["add"]


def add(app: web.Application) -> None:
    """Adds the list, and one model by its id, which may have slashes; /v1 may be left out."""
    for prefix in ("/v1", ""):
        app.router.add_get(f"{prefix}/models", every)
        app.router.add_get(f"{prefix}/models/{{id:.+}}", one)


async def every(request: web.Request) -> web.Response:
    """All models, those named first at the start first."""
    data = [described(offer) for offer in request.app[MODELS].offers()]
    return web.json_response({"object": "list", "data": data})


async def one(request: web.Request) -> web.Response:
    """One model, or 404."""
    return web.json_response(described(request.app[MODELS].find(request.match_info["id"])))


def described(offer: Offer) -> dict[str, Any]:
    """A model as the clients know it."""
    return {"id": offer.id, "object": "model", "created": offer.created, "owned_by": "golem"}
