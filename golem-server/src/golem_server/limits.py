"""How much at a time, and for how long: the queue, the time of a request, the way to the end."""

from __future__ import annotations

import asyncio
import math
from collections import deque

from aiohttp import web

from golem_server.errors import NO_RETRY, ApiError, Handler
from golem_server.settings import ServeSettings

__all__ = ["Limits"]

REMEMBERED = 32  # requests whose times say how long one takes
LONGEST_RETRY = 60  # seconds; the clients take no more than 120 from a server


class Limits:
    """Counts the requests that make a model work: all that are no GET.

    As many as the models draw at a time may run, `max_queue` more may wait, and the next is
    refused with 429 and the time after which a place should be free.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._active: set[asyncio.Task[object]] = set()
        self._times: deque[float] = deque(maxlen=REMEMBERED)
        self._empty = asyncio.Event()
        self._empty.set()
        self.draining = False

    @property
    def active(self) -> int:
        """Requests that run or wait."""
        return len(self._active)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Lets a request in, or refuses it; and ends it when its time is up."""
        if request.method in ("GET", "HEAD", "OPTIONS"):
            return await handler(request)
        if self.draining:
            raise ApiError(
                503,
                "the server is about to end and takes no more requests",
                code="shutting_down",
                headers={"Retry-After": "5", "Connection": "close"},
            )
        places = self._settings.max_sequences + self._settings.max_queue
        if len(self._active) >= places:
            raise ApiError(
                429,
                f"{len(self._active)} requests run or wait, and there is room for {places} "
                f"(--max-sequences {self._settings.max_sequences}, --max-queue "
                f"{self._settings.max_queue}); try again later",
                code="queue_full",
                headers={"Retry-After": str(self._retry_after())},
            )
        task = asyncio.current_task()
        assert task is not None
        self._active.add(task)
        self._empty.clear()
        begun = asyncio.get_running_loop().time()
        try:
            return await self._timed(task, request, handler)
        finally:
            self._times.append(asyncio.get_running_loop().time() - begun)
            self._active.discard(task)
            if not self._active:
                self._empty.set()

    async def _timed(
        self, task: asyncio.Task[object], request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        seconds = self._settings.timeout
        if seconds is None:
            return await handler(request)
        late = False

        def end() -> None:
            nonlocal late
            late = True
            task.cancel()

        timer = asyncio.get_running_loop().call_later(seconds, end)
        try:
            return await handler(request)
        except asyncio.CancelledError:
            if not late:
                raise
            if hasattr(task, "uncancel"):  # from Python 3.11 on
                task.uncancel()
            raise ApiError(
                504,
                f"the request took more than {seconds:g} seconds, which --timeout allows",
                code="request_timeout",
                headers=NO_RETRY,
            ) from None
        finally:
            timer.cancel()

    def _retry_after(self) -> int:
        """Seconds until a place should be free, by how long requests took lately."""
        if not self._times:
            return 1
        mean = sum(self._times) / len(self._times)
        return max(1, min(LONGEST_RETRY, math.ceil(mean / self._settings.max_sequences)))

    async def drain(self, seconds: float) -> bool:
        """Takes no more requests and waits for those there are; says whether all ended in time."""
        self.draining = True
        try:
            await asyncio.wait_for(self._empty.wait(), seconds)
        except asyncio.TimeoutError:  # another class before Python 3.11
            return False
        return True

    def cancel(self) -> None:
        """Ends the requests that there are."""
        for task in list(self._active):
            task.cancel()
