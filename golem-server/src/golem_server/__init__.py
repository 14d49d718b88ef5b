"""Serves golem's models over HTTP as OpenAI's clients expect; `golem serve` runs it."""

from __future__ import annotations

from golem_server.app import make_app
from golem_server.settings import ServeSettings

__all__ = ["ServeSettings", "make_app"]
