"""How long clients want a model to stay loaded: ollama's `keep_alive`, a timer for each model.

The server's own idle time, where it has one, holds beside it: a model is unloaded by whichever
comes first.
"""

from __future__ import annotations

import asyncio
import time

from golem_server.models import Held, Models

__all__ = ["Kept"]

PAUSE = 0.25  # seconds between looks at a model that is in use


class Kept:
    """The timers of one server's models."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._seconds: dict[str, float] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}

    def keep(self, name: str, seconds: float) -> None:
        """From its last use on, a model stays for `seconds`; below 0 until somebody says else."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        self._seconds[name] = seconds
        if seconds >= 0:
            self._timers[name] = asyncio.create_task(self._wait(name, seconds))

    def expires(self, served: Held) -> float | None:
        """When a model will be unloaded if nobody uses it, in seconds since 1970; None: never."""
        idle = self._models.settings.idle_unload
        asked = self._seconds.get(served.id, -1.0)
        limits = [limit for limit in (idle, asked if asked >= 0 else None) if limit is not None]
        if not limits:
            return None
        return time.time() + served.used + min(limits) - time.monotonic()

    def close(self) -> None:
        """Ends the timers."""
        for timer in self._timers.values():
            timer.cancel()

    async def _wait(self, name: str, seconds: float) -> None:
        while (served := self._models.peek(name)) is not None:
            left = served.used + seconds - time.monotonic()
            if served.users:
                await asyncio.sleep(max(left, PAUSE))
            elif left > 0:
                await asyncio.sleep(left)
            else:
                await self._models.unload(name)
        self._timers.pop(name, None)
        self._seconds.pop(name, None)
