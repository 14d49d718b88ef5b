"""Servers for tests, in this process, on a free port of the loopback."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from golem_core.testing import decoder
from golem_server import ServeSettings, make_app
from golem_server.app import MODELS, make_runner
from golem_server.models import Models


@dataclass
class Server:
    """A server under test; `url` has no slash at its end."""

    url: str
    app: web.Application
    models: Models


Serve = Callable[..., AbstractAsyncContextManager[Server]]


@asynccontextmanager
async def _serve(models: Any = (), wait: bool = True, **settings: Any) -> AsyncIterator[Server]:
    """Serves models by path (one, several, or ``ID=PATH``); `settings` are of ServeSettings.

    With `wait` the first model is loaded when the block is entered.
    """
    paths = [models] if isinstance(models, (str, Path)) else list(models)
    given = {"threads": 1, "context": None, **settings}
    app = make_app(ServeSettings(models=tuple(str(path) for path in paths), port=0, **given))
    runner = make_runner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        app[MODELS].begin()
        if wait and app[MODELS].started is not None:
            await app[MODELS].started
        yield Server(f"http://127.0.0.1:{port}", app, app[MODELS])
    finally:
        await runner.cleanup()


@pytest.fixture
def serve() -> Serve:
    """``async with serve(path, max_queue=1) as server`` in a test that is ``async def``."""
    return _serve


@contextmanager
def _serve_in_thread(models: Any = (), **settings: Any) -> Iterator[Server]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = _serve(models, **settings)
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(60)
    finally:
        ended = asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop)
        ended.result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def serve_in_thread() -> Callable[..., Any]:
    """``with serve_in_thread(path) as server`` for clients that block."""
    return _serve_in_thread


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows nothing and answers at once; its template knows system and user."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    decoder("llama").write(path)
    return path


@pytest.fixture(scope="session")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `tiny_model`, with a context that takes long to fill."""
    path = tmp_path_factory.mktemp("models") / "long.gguf"
    decoder("llama", context=1 << 17).write(path)
    return path


@pytest.fixture(scope="session")
def trained_model() -> Path:
    """A small trained model that chats, thinks and calls tools."""
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if folder is None:
        pytest.skip("GOLEM_TEST_MODELS names no folder of trained models")
    return Path(folder) / "qwen3" / "qwen3-q8_0.gguf"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is ``async def`` in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters

    async def run() -> None:
        await pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        await asyncio.sleep(0.01)  # for connections that were closed to be gone

    asyncio.run(run())
    return True


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (dependency group server)"
    )
    path = os.environ.get("GOLEM_CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    with playwright.sync_playwright() as started:
        try:
            opened = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(f"no Chromium: apt-get install chromium ({str(error).splitlines()[0]})")
        yield opened
        opened.close()
