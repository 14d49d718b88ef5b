"""A server of a scripted model, for the clients of every API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golem_server import room

from .scripted import Script


@contextmanager
def scripted_server(
    path: Path, serve_in_thread: Callable[..., Any], **settings: Any
) -> Iterator[Script]:
    """Serves the file's tokenizer and template as ``scripted``; `url` is the server's."""
    script = Script(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "golem_core", SimpleNamespace(load=lambda *_, **__: script.model))
        served = serve_in_thread(f"scripted={path}", **settings)
        server = served.__enter__()  # which loads it; other servers load what they are told to
    try:
        script.url = server.url
        script.models = server.models
        yield script
    finally:
        served.__exit__(None, None, None)
