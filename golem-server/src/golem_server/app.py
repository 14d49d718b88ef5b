"""The application: its routes and what stands before them."""

from __future__ import annotations

import pkgutil
from collections.abc import AsyncIterator
from importlib import import_module

from aiohttp import web

from golem_server import routes
from golem_server.errors import ENVELOPES, FAILURE, REQUEST_ID, error_middleware
from golem_server.keys import add_cors, cors_middleware, keys_middleware
from golem_server.limits import Limits
from golem_server.logs import logs_middleware
from golem_server.metrics import Metrics
from golem_server.models import Models
from golem_server.settings import ServeSettings

__all__ = ["LIMITS", "METRICS", "MODELS", "SETTINGS", "make_app", "make_runner"]

MODELS: web.AppKey[Models] = web.AppKey("models", Models)
SETTINGS: web.AppKey[ServeSettings] = web.AppKey("settings", ServeSettings)
LIMITS: web.AppKey[Limits] = web.AppKey("limits", Limits)
METRICS: web.AppKey[Metrics] = web.AppKey("metrics", Metrics)


def make_app(settings: ServeSettings) -> web.Application:
    """A server's application; nothing is loaded until a request, or `Models.begin`, wants it.

    Every module of `golem_server.routes` adds its own. Raises `BadRequest` and `NotFound` for
    models that cannot be offered.
    """
    limits = Limits(settings)
    app = web.Application(
        client_max_size=settings.max_body,
        middlewares=[
            logs_middleware(settings.log_prompts),
            error_middleware,
            cors_middleware(settings.cors, bool(settings.api_keys)),
            keys_middleware(settings.api_keys),
            limits.middleware,
        ],
    )
    app[SETTINGS] = settings
    app[LIMITS] = limits
    app[METRICS] = Metrics()
    app[MODELS] = Models(settings, app[METRICS])
    app[ENVELOPES] = {}
    for module in pkgutil.iter_modules(routes.__path__):
        import_module(f"{routes.__name__}.{module.name}").add(app)
    app.on_response_prepare.append(_headers)
    app.cleanup_ctx.append(_models)
    return app


def make_runner(app: web.Application) -> web.AppRunner:
    """What serves the application: a handler is cancelled when its client has left."""
    return web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)


async def _headers(request: web.Request, response: web.StreamResponse) -> None:
    """What every response has, an error's and a stream's too."""
    response.headers["x-request-id"] = request[REQUEST_ID]
    response.headers["Server"] = "golem"
    if FAILURE in request:
        failure = request[FAILURE]
        request.app[METRICS].refused.labels(failure.code or str(failure.status)).inc()
    add_cors(request.app[SETTINGS].cors, request, response)


async def _models(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[MODELS].close()
