"""How the server is: ``/health``, ``/metrics``, ``/props``, ``/slots``, ``/version``.

None of them loads a model or counts as a use of one.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from golem_server.app import LIMITS, METRICS, MODELS, SETTINGS
from golem_server.errors import ApiError
from golem_server.models import Held, Served

__all__ = ["add"]

VERSION = metadata.version("golem-server")


def add(app: web.Application) -> None:
    """Adds what is asked of a server rather than of a model."""
    app.router.add_get("/health", health)
    app.router.add_get("/v1/health", health)
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/props", props)
    app.router.add_get("/slots", slots)
    app.router.add_get("/version", version)


async def health(request: web.Request) -> web.Response:
    """200 when it can answer.

    503 while the first model is loaded, after one has ended, and once the server is to end.
    """
    models = request.app[MODELS]
    message = None
    if request.app[LIMITS].draining:
        message = "the server is about to end"
    elif models.starting:
        message = "Loading model"
    elif models.failed:
        message = f"{models.failed[0].id} has ended: {models.failed[0].ended}"
    if message is None:
        return web.json_response({"status": "ok"})
    # With the status as the code, which is what is looked for here.
    error = {"code": 503, "message": message, "type": "unavailable_error"}
    return web.json_response({"error": error}, status=503)


async def metrics(request: web.Request) -> web.Response:
    """All counts, in Prometheus's text."""
    text = generate_latest(request.app[METRICS].registry)
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def props(request: web.Request) -> web.Response:
    """What a model is and can do, as llama.cpp's clients ask; ``?model=`` names one."""
    models, settings = request.app[MODELS], request.app[SETTINGS]
    offer = models.find(request.query.get("model"))
    found: dict[str, Any] = {
        "model_alias": offer.id,
        "model_path": offer.reference,
        "total_slots": settings.max_sequences,
        "build_info": f"golem {VERSION}",
        "is_sleeping": True,
        "max_queue": settings.max_queue,
    }
    served = models.peek(offer.id)
    if served is not None:
        found |= _described(served)
    return web.json_response(found)


def _described(served: Held) -> dict[str, Any]:
    if not isinstance(served, Served):
        return {"is_sleeping": False, "capabilities": sorted(served.capabilities)}
    model = served.model
    tokenizer, metadata = model.tokenizer, model.weights.metadata
    template = model.template

    def text(key: str) -> str:
        token = metadata.get(f"tokenizer.ggml.{key}_token_id")
        return "" if token is None else tokenizer.token_text(int(token))  # type: ignore[call-overload]

    return {
        "is_sleeping": False,
        "default_generation_settings": {"n_ctx": model.context},
        "chat_template": "" if template is None else template.source,
        "bos_token": text("bos"),
        "eos_token": text("eos"),
        "modalities": {"vision": False, "audio": False},
        "capabilities": sorted(served.capabilities),
        "device": model.device,
    }


async def slots(request: web.Request) -> web.Response:
    """The places of a model's passes, and how many are taken.

    With ``?fail_on_no_slot=1`` it is a 503 when none is free.
    """
    models, settings = request.app[MODELS], request.app[SETTINGS]
    served = models.peek(request.query.get("model"))
    running = 0 if served is None else served.running
    context = None if served is None else served.context
    if request.query.get("fail_on_no_slot") == "1" and running >= settings.max_sequences:
        raise ApiError(
            503, "no slot is free", code="no_slot_available", headers={"Retry-After": "1"}
        )
    return web.json_response(
        [
            {"id": i, "n_ctx": context, "is_processing": i < running}
            for i in range(settings.max_sequences)
        ]
    )


async def version(request: web.Request) -> web.Response:
    """The versions of the server and of what it runs on."""
    found = {"version": VERSION, "golem_core": metadata.version("golem-core")}
    return web.json_response(found)
