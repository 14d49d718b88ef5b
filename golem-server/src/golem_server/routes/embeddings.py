"""``/v1/embeddings``: refused by name as long as no model that is offered can embed."""

from __future__ import annotations

from aiohttp import web

from golem_server.app import MODELS
from golem_server.errors import ApiError
from golem_server.params import model_name
from golem_server.parse import read_json


def add(app: web.Application) -> None:
    """Adds the route; /v1 may be left out."""
    for prefix in ("/v1", ""):
        app.router.add_post(f"{prefix}/embeddings", embed)


async def embed(request: web.Request) -> web.StreamResponse:
    """Says which model was asked for what it cannot do."""
    body = await read_json(request)
    offer = request.app[MODELS].find(model_name(body))
    raise ApiError(
        501,
        f"{offer.id} writes text and makes no embeddings",
        param="model",
        code="unsupported",
        headers={"x-should-retry": "false"},
    )
