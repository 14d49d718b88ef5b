"""``/v1/audio``: refused by name as long as no model that is offered speaks or hears."""

from __future__ import annotations

from aiohttp import web

from golem_server.app import MODELS
from golem_server.errors import ApiError
from golem_server.params import model_name
from golem_server.parse import read_json

_NO_RETRY = {"x-should-retry": "false"}


def add(app: web.Application) -> None:
    """Adds the routes."""
    app.router.add_post("/v1/audio/speech", speak)
    app.router.add_post("/v1/audio/transcriptions", transcribe)


async def speak(request: web.Request) -> web.StreamResponse:
    """Says which model was asked for what it cannot do."""
    body = await read_json(request)
    offer = request.app[MODELS].find(model_name(body))
    raise ApiError(
        501,
        f"{offer.id} writes text and does not speak",
        param="model",
        code="unsupported",
        headers=_NO_RETRY,
    )


async def transcribe(request: web.Request) -> web.StreamResponse:
    """Says that nobody listens."""
    raise ApiError(
        503,
        "no model that is offered can transcribe",
        param="model",
        code="unsupported",
        headers=_NO_RETRY,
    )
