"""What is counted, as Prometheus reads it; each server has a registry of its own."""

from __future__ import annotations

from golem_core.engine import Engine, Result, Token

__all__ = ["Metrics", "Watch"]


class Watch:
    """Counts one answer."""

    def event(self, event: Token | Result) -> None:
        """A token or the result, as it reaches the event loop."""


class Metrics:
    """All counts of a server."""

    def add(self, name: str, engine: Engine) -> None:
        """Counts a model that was loaded."""

    def remove(self, name: str) -> None:
        """Keeps what was counted of a model that is about to be unloaded."""

    def watch(self, name: str) -> Watch:
        """Counts one answer of a model."""
        return Watch()
