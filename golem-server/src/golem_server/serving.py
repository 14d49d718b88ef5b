"""A server from its start to its end: where it listens, what it says, which signals end it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from aiohttp import web

from golem_core.errors import BadRequest, GolemError, NotFound
from golem_server import logs
from golem_server.app import LIMITS, MODELS, make_app, make_runner
from golem_server.settings import ServeSettings

__all__ = ["run", "serve"]

log = logging.getLogger("golem.server")

# Seconds after which a thread that wants the interpreter gets it. What takes long in Python runs
# beside the event loop, which asks for the interpreter several times to answer one request; with
# CPython's 5 ms each, /health would take 30.
SWITCH = 0.001

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(settings: ServeSettings) -> int:
    """Serves until a signal ends it; gives the process's exit code.

    Raises `GolemError`: a model that cannot be loaded, a place to listen on that cannot be had.
    """
    logs.set_up(settings.log_json)
    sys.setswitchinterval(SWITCH)
    return asyncio.run(serve(settings))


async def serve(
    settings: ServeSettings, listening: Callable[[str], None] = lambda url: None
) -> int:
    """As `run`; `listening` is told the URL once there is one."""
    app = make_app(settings)
    context = tls(settings)
    if not app[MODELS].offers():
        raise NotFound(
            "no model to serve: name one, or pull one first (golem pull); `golem ls` lists them"
        )
    runner = make_runner(app)
    await runner.setup()
    try:
        site = await listen(runner, settings, context)
        for line in warnings(settings):
            log.warning(line)
        url = address(runner, settings)
        app[MODELS].begin()
        log.info("listening on %s, models: %s", url, _names(app))
        listening(url)
        return await _until_the_end(app, site, settings)
    finally:
        await runner.cleanup()


async def _until_the_end(app: web.Application, site: web.BaseSite, settings: ServeSettings) -> int:
    """Waits for a signal and for the answers to end; or for the first model to fail."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, signals.put_nowait, number)
    try:
        first = asyncio.create_task(signals.get())
        started = app[MODELS].started
        waited: set[asyncio.Task[Any]] = {first}
        if started is not None:
            waited.add(started)
        while not first.done():
            done, waited = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if started in done and started is not None and started.exception() is not None:
                first.cancel()
                raise started.exception() or GolemError("the model could not be loaded")
        await site.stop()
        limits = app[LIMITS]
        log.info(
            "%s: no more requests; %d to end within %g s, a second signal ends at once",
            signal.Signals(first.result()).name, limits.active, settings.drain,
        )  # fmt: skip
        second = asyncio.create_task(signals.get())
        drained = asyncio.create_task(limits.drain(settings.drain))
        await asyncio.wait({second, drained}, return_when=asyncio.FIRST_COMPLETED)
        if second.done():
            drained.cancel()
            limits.cancel()
            return 128 + second.result()
        second.cancel()
        if not drained.result():
            log.warning("%d requests did not end in time and are cut off", limits.active)
            limits.cancel()
        return 0
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def listen(
    runner: web.AppRunner, settings: ServeSettings, context: ssl.SSLContext | None
) -> web.BaseSite:
    """Begins to listen. Raises `GolemError`, saying which option chooses another place."""
    site: web.BaseSite
    if settings.unix is not None:
        if _is_alive(settings.unix):
            raise GolemError(f"another program listens on {settings.unix}; --unix takes another")
        site = web.UnixSite(runner, settings.unix, ssl_context=context)
        place, option = settings.unix, "--unix"
    else:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=context)
        place, option = f"port {settings.port} of {settings.host}", "--port"
    try:
        await site.start()
    except socket.gaierror as error:
        raise BadRequest(f"--host {settings.host} is no address here: {error}", "host") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = " (0 for a free one)" if option == "--port" else ""
            raise GolemError(f"{place} is in use; {option} takes another{hint}") from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise BadRequest(
                f"--host {settings.host} is no address of this machine", "host"
            ) from None
        reason = error.strerror or str(error)
        raise GolemError(f"cannot listen on {place}: {reason}; {option} takes another") from None
    if settings.unix is not None:
        os.chmod(settings.unix, 0o600)  # who may connect is who may read
    return site


def tls(settings: ServeSettings) -> ssl.SSLContext | None:
    """The certificate and its key, ready to be used; None where there are none."""
    if settings.tls_cert is None:
        if settings.tls_key is not None:
            raise BadRequest("--tls-key has no --tls-cert beside it", "tls_cert")
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key, _no_password)
    except FileNotFoundError:
        files = " or ".join(filter(None, (settings.tls_cert, settings.tls_key)))
        raise NotFound(f"no file {files}") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadRequest(
            f"--tls-cert {settings.tls_cert} and its key cannot be used: {error}", "tls_cert"
        ) from None
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted, and a server has nobody to ask for its password")


def warnings(settings: ServeSettings) -> list[str]:
    """What whoever starts this server should know."""
    found = []
    opened = settings.unix is None and not _is_loopback(settings.host)
    if opened and not settings.api_keys:
        found.append(
            f"everybody who reaches {settings.host} can use this server; "
            "--api-key or --api-key-file lets in only who knows a key"
        )
    elif opened and settings.tls_cert is None:
        found.append("keys and texts travel unencrypted; --tls-cert serves HTTPS")
    if "*" in settings.cors and not settings.api_keys:
        found.append("--cors '*' without an API key: any page that a browser opens can use it")
    return found


def address(runner: web.AppRunner, settings: ServeSettings) -> str:
    """Where clients find the server."""
    if settings.unix is not None:
        return f"unix:{settings.unix}"
    scheme = "https" if settings.tls_cert else "http"
    host, port = runner.addresses[0][:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _is_alive(path: str) -> bool:
    """Whether somebody listens on a socket file; one that was left behind is no obstacle."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def _names(app: web.Application) -> str:
    ids = [offer.id for offer in app[MODELS].offers()]
    return ", ".join(ids[:8]) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
