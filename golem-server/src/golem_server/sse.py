"""Server-sent events: one response, an event at a time, kept alive while the model thinks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from golem_server.errors import STREAM, ApiError, envelope

__all__ = ["EventStream", "Gone", "encoded"]

KEEP_ALIVE = 15.0  # seconds of silence after which a comment shows that the server lives


class Gone(ConnectionError):
    """The client has left; there is nobody to write to."""


def encoded(value: object) -> bytes:
    """JSON in UTF-8 on one line; a lone surrogate stays an escape, NaN raises ValueError."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


class EventStream:
    """A response of server-sent events.

        stream = EventStream()
        await stream.prepare(request)
        await stream.send({...})            # or send({...}, name="message_start")
        await stream.done()                 # data: [DONE], or end() without it
        return stream.response

    Writing waits for a reader that is slow, and raises `Gone` for one that has left. What a handler
    raises after `prepare` is written by `fail` and needs no care of its own. A subclass whose
    clients expect failures in another form overrides `fail`.
    """

    def __init__(self, keep_alive: float = KEEP_ALIVE) -> None:
        self.response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
            }
        )
        self._interval = keep_alive
        self._keeper: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._written = 0.0  # the loop's time

    async def prepare(self, request: web.Request) -> None:
        """Sends the headers; from here on the status is 200."""
        request[STREAM] = self
        try:
            await self.response.prepare(request)
        except ConnectionError as error:
            raise Gone("the client has left") from error
        self._written = asyncio.get_running_loop().time()
        self._keeper = asyncio.create_task(self._keep_alive())

    async def send(self, event: object, name: str | None = None) -> None:
        """One event: `event` as JSON, or text as it stands."""
        data = event.encode() if isinstance(event, str) else encoded(event)
        head = f"event: {name}\n".encode() if name else b""
        await self._write(head + b"data: " + data + b"\n\n")

    async def comment(self, text: str = "") -> None:
        """A line that clients ignore."""
        await self._write(f": {text}\n\n".encode())

    async def done(self) -> None:
        """OpenAI's last event, and the end."""
        await self.send("[DONE]")
        await self.end()

    async def end(self) -> None:
        """The end of the response."""
        self.close()
        try:
            await self.response.write_eof()
        except ConnectionError as error:
            raise Gone("the client has left") from error

    async def fail(self, error: ApiError) -> None:
        """Says an error in the middle, as OpenAI's clients look for it, and ends."""
        body: dict[str, Any] = envelope(error)
        body["error"]["status"] = error.status
        await self.send(body)
        await self.done()

    async def _write(self, data: bytes) -> None:
        async with self._lock:
            try:
                await self.response.write(data)
            except ConnectionError as error:
                self.close()
                raise Gone("the client has left") from error
            self._written = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Stops the comments; what was raised or cancelled has no need to say so."""
        if self._keeper is not None and self._keeper is not asyncio.current_task():
            self._keeper.cancel()

    async def _keep_alive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._written + self._interval - loop.time())
            if loop.time() >= self._written + self._interval:
                try:
                    await self.comment("still here")
                except Gone:
                    return
