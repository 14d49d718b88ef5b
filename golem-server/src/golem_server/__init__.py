"""Serves golem's models over HTTP as OpenAI's clients expect; `golem serve` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golem_server.settings import ServeSettings

if TYPE_CHECKING:
    from golem_server.app import make_app
    from golem_server.serving import run, serve

__all__ = ["ServeSettings", "make_app", "run", "serve"]

if not TYPE_CHECKING:  # a checker would take every unknown name for one that is found here

    def __getattr__(name: str) -> object:
        """What takes long to import, when it is first asked for: the command line starts here."""
        if name == "make_app":
            from golem_server.app import make_app

            return make_app
        if name in ("run", "serve"):
            from golem_server import serving

            return getattr(serving, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
