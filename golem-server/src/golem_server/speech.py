"""A text spoken to a client: sound is made and encoded in threads, and sent as it comes."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType

import numpy as np
from aiohttp import web

from golem_core.errors import NotFound
from golem_core.media.encode import FORMATS, open_encoder
from golem_core.speech import Delivery, Samples, Voice
from golem_server.errors import STREAM, ApiError
from golem_server.held import ServedSpeaker
from golem_server.metrics import SpeechWatch
from golem_server.parse import invalid
from golem_server.sse import EventStream, Gone

__all__ = ["AudioStream", "Spoken", "Stalled", "send_audio", "send_events", "voice_named"]

# Seconds that a listener may take nothing, paused or stuck, before its place goes to others.
PATIENCE = 60.0


class Stalled(Gone):
    """Who listens has taken nothing for too long."""


class Spoken:
    """One text that is being spoken, as bytes of a format.

    async with await Spoken.begin(served, text, voice, delivery, "mp3") as spoken:
        async for data in spoken: ...
    """

    def __init__(
        self,
        served: ServedSpeaker,
        text: str,
        voice: Voice | None,
        delivery: Delivery,
        form: str,
        after: float,
    ) -> None:
        self.form = form
        self.frames = 0
        self._served = served
        self._encoder = open_encoder(form, served.speaking.sample_rate)
        try:
            self._speech = served.speaking.speak(text, voice, delivery)
        except BaseException:
            self._encoder.close()
            raise
        self._after = _silence(int(after * self._speech.sample_rate))
        self._lock = threading.Lock()  # a step may still be going on when the client has left
        self._watch: SpeechWatch | None = None
        self._whole = False

    @classmethod
    async def begin(
        cls,
        served: ServedSpeaker,
        text: str,
        voice: Voice | None,
        delivery: Delivery,
        form: str,
        after: float = 0.0,
    ) -> Spoken:
        """Hands the text over; `after` seconds of silence follow it.

        Raises what `Speaking.speak` raises, and `Unsupported` for a format that cannot be had here.
        """
        making = asyncio.ensure_future(
            served.in_thread(cls, served, text, voice, delivery, form, after)
        )
        try:
            spoken = await asyncio.shield(making)
        except asyncio.CancelledError:  # the client has left; what is being made is not for anybody
            making.add_done_callback(_drop)
            raise
        spoken._watch = served.watch()
        return spoken

    async def __aenter__(self) -> Spoken:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self._speech.cancel()
        if self._watch is not None:
            left = "stalled" if isinstance(error, Stalled) else "cancelled"
            self._watch.end("stop" if self._whole else left)
        if not self._whole:  # a whole one gave back all it had, so its client may hang up at once
            await asyncio.shield(self._served.in_thread(self._close))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._whole:
            data, count = await self._served.made(self._step)
            if count and self._watch is not None:
                self._watch.sound(count / self._speech.sample_rate)
            if data:
                yield data

    def _step(self) -> tuple[bytes, int]:
        """The bytes of the next piece of sound, and its samples; marks the end."""
        with self._lock:
            samples = next(self._speech, None)
            if samples is not None:
                self.frames += 1
                return self._encoder.write(samples), len(samples)
            last = b"" if self._after is None else self._encoder.write(self._after)
            last += self._encoder.finish()
            self._encoder.close()
            self._whole = True
            return last, 0

    def _close(self) -> None:
        self._speech.cancel()
        with self._lock:
            self._encoder.close()


def _drop(making: asyncio.Future[Spoken]) -> None:
    """Ends what was begun for a client that has left meanwhile."""
    if not making.cancelled() and making.exception() is None:
        making.result()._close()


def _silence(count: int) -> Samples | None:
    return np.zeros(count, np.float32) if count else None


def voice_named(served: ServedSpeaker, name: str | None, param: str) -> Voice | None:
    """The voice of a name; None, or ``default`` where no voice is called so, is the usual one.

    Raises a 400 that lists those there are.
    """
    names = served.speaking.voices()
    if name is None or (name == "default" and name not in names):
        return None
    try:
        if name not in names:
            raise NotFound(f"{served.id} has no voice {name!r}")
        return served.voice(name)
    except NotFound as error:
        listed = ", ".join(names) or "none"
        raise invalid(f"{param} is {name!r}: {error}; there are: {listed}", param) from None


async def taken(request: web.Request, writing: Awaitable[None]) -> None:
    """Waits for what is being written; a listener who takes nothing for `PATIENCE` is hung up on.

    Raises `Stalled` then.
    """
    try:
        await asyncio.wait_for(writing, PATIENCE)
    except asyncio.TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise Stalled(f"the listener has taken no sound for {PATIENCE:g} seconds") from None


class AudioStream:
    """A response of sound; what fails in the middle breaks it off, since sound has no words."""

    def __init__(self, media: str, **headers: str) -> None:
        self.response = web.StreamResponse(
            headers={"Content-Type": media, "Cache-Control": "no-cache", **headers}
        )
        self._request: web.Request | None = None

    async def prepare(self, request: web.Request) -> None:
        """Sends the headers."""
        self._request = request
        request[STREAM] = self
        self.response.enable_chunked_encoding()
        try:
            await self.response.prepare(request)
        except ConnectionError as error:
            raise Gone("the client has left") from error

    async def write(self, data: bytes) -> None:
        """Sends bytes; waits for a reader that is slow, but not for ever."""
        assert self._request is not None
        try:
            await taken(self._request, self.response.write(data))
        except Stalled:
            raise
        except ConnectionError as error:
            raise Gone("the client has left") from error

    async def end(self) -> None:
        """The end."""
        try:
            await self.response.write_eof()
        except ConnectionError as error:
            raise Gone("the client has left") from error

    async def fail(self, error: ApiError) -> None:
        """Breaks the connection off, so that nobody takes what came for the whole."""
        assert self._request is not None
        if self._request.transport is not None:
            self._request.transport.abort()

    def close(self) -> None:
        """Has nothing that goes on by itself."""


async def send_audio(request: web.Request, spoken: Spoken, **headers: str) -> web.StreamResponse:
    """Answers with the sound itself; begins once there is some, so that errors can be told."""
    stream = AudioStream(FORMATS[spoken.form].media, **headers)
    begun = False
    async for data in spoken:
        if not begun:
            await stream.prepare(request)
            begun = True
        await stream.write(data)
    if not begun:
        await stream.prepare(request)
    await stream.end()
    return stream.response


async def send_events(request: web.Request, spoken: Spoken, tokens: int) -> web.StreamResponse:
    """Answers with OpenAI's events: sound in base64, then what it took."""
    stream: EventStream | None = None
    async for data in spoken:
        if stream is None:
            stream = EventStream()
            await stream.prepare(request)
        audio = base64.b64encode(data).decode("ascii")
        try:
            await taken(request, stream.send({"type": "speech.audio.delta", "audio": audio}))
        except Stalled:
            stream.close()
            raise
    if stream is None:
        stream = EventStream()
        await stream.prepare(request)
    usage = {
        "input_tokens": tokens,
        "output_tokens": spoken.frames,
        "total_tokens": tokens + spoken.frames,
    }
    await stream.send({"type": "speech.audio.done", "usage": usage})
    await stream.end()
    return stream.response
