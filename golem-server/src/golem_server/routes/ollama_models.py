"""``/api/tags``, ``show``, ``ps`` and ``version``: what ollama's clients ask about models."""

from __future__ import annotations

import asyncio
from importlib.metadata import version as version_of
from typing import Any

from aiohttp import web

from golem_core.errors import GolemError
from golem_server.app import MODELS
from golem_server.described import Description, File, describe, file_of
from golem_server.errors import ApiError
from golem_server.held import ServedEmbedder
from golem_server.models import Offer
from golem_server.parse import field, read_json, required
from golem_server.routes.ollama import KEPT, resolved, stamp
from golem_server.sse import encoded

__all__ = ["add"]

Json = dict[str, Any]

# The version of ollama whose routes these are. Its clients ask for one that is new enough.
API_VERSION = "0.33.0"
NEVER = "9999-12-31T23:59:59Z"

# What was read of the files' headers.
DETAILS: web.AppKey[dict[File, Json]] = web.AppKey("ollama_details", dict)


def add(app: web.Application) -> None:
    """Adds the routes that compute nothing."""
    app[DETAILS] = {}
    app.router.add_get("/api/tags", tags)
    app.router.add_get("/api/ps", running)
    app.router.add_post("/api/show", show)
    app.router.add_get("/api/version", version)


async def version(request: web.Request) -> web.Response:
    """The version of the API, and golem's own."""
    return web.json_response({"version": API_VERSION, "golem": version_of("golem-server")})


async def tags(request: web.Request) -> web.Response:
    """The models that can be asked for."""
    models = [await _entry(request.app, offer) for offer in request.app[MODELS].offers()]
    return web.json_response({"models": models})


async def running(request: web.Request) -> web.Response:
    """The models that are loaded, and when they will not be any more."""
    models = request.app[MODELS]
    entries = []
    for served in models.loaded():
        entry = await _entry(request.app, models.find(served.id))
        expires = request.app[KEPT].expires(served)
        del entry["modified_at"]
        if isinstance(served, ServedEmbedder):  # as it runs, not as its file has it
            entry["details"] = entry["details"] | {"quantization_level": served.embedding.precision}
        entry |= {
            "expires_at": NEVER if expires is None else stamp(expires),
            "size_vram": 0,
            "context_length": served.context or 0,
        }
        entries.append(entry)
    return web.json_response({"models": entries})


async def show(request: web.Request) -> web.Response:
    """What the file of a model says."""
    body = await read_json(request)
    name = field(body, "name", str) or required(body, "model", str)
    verbose = field(body, "verbose", bool) is True
    models = request.app[MODELS]
    offer = models.find(resolved(models, name))
    file = await asyncio.to_thread(file_of, offer)
    if file is None:
        raise ApiError(
            404, f"{offer.id} was not fetched yet; its first use does", code="model_not_found"
        )
    found = await asyncio.to_thread(describe, file, everything=verbose)
    can = {"completion": True, "tools": found.calls, "thinking": found.thinks}
    answer = {
        "modelfile": f"FROM {offer.id}\n",
        "parameters": "\n".join(f"{key} {value}" for key, value in found.recommended.items()),
        "template": found.template,
        "license": found.license,
        "details": details(found),
        "model_info": {**found.metadata, "general.parameter_count": found.parameters},
        "capabilities": [name for name, able in can.items() if able],
        "modified_at": stamp(file.modified),
    }
    return web.Response(body=encoded(answer), content_type="application/json")


def details(found: Description) -> Json:
    """What lists say of a model."""
    return {
        "parent_model": "",
        "format": found.container,
        "family": found.architecture,
        "families": [found.architecture],
        "parameter_size": _counted(found.parameters),
        "quantization_level": found.quantization,
    }


async def _entry(app: web.Application, offer: Offer) -> Json:
    """A model in a list; what would have to be fetched first is listed without its details."""
    file = await asyncio.to_thread(file_of, offer)
    known: Json = {}
    if file is not None:
        if file not in app[DETAILS]:
            app[DETAILS][file] = await asyncio.to_thread(_details, file)
        known = app[DETAILS][file]
    return {
        "name": offer.id,
        "model": offer.id,
        "modified_at": stamp(offer.created if file is None else file.modified),
        "size": 0 if file is None else file.size,
        "digest": "" if file is None else file.digest,
        "details": known,
    }


def _details(file: File) -> Json:
    """The details of a file; none of one that golem cannot run."""
    try:
        return details(describe(file))
    except GolemError:
        return {}


def _counted(parameters: int) -> str:
    """A count of parameters as lists write it: 494.03M, 7.62B."""
    if parameters >= 1_000_000_000:
        return f"{parameters / 1e9:.2f}B"
    return f"{parameters / 1e6:.2f}M"
