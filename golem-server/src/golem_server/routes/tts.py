"""``/tts``: a form with a text, and perhaps a voice, as Pocket TTS's own server has it."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_request import FileField

from golem_core.media.audio import read
from golem_core.speech import Delivery, Voice
from golem_server.app import MODELS
from golem_server.errors import ENVELOPES, ApiError
from golem_server.held import ServedSpeaker
from golem_server.parse import invalid
from golem_server.speech import Spoken, send_audio, voice_named

CLONED = 30.0  # seconds of a recording that a voice is made of
SILENCE = 0.2  # seconds after the text, which that server always sends
HEADERS = {"Content-Disposition": "attachment; filename=generated_speech.wav"}


def add(app: web.Application) -> None:
    """Adds the route; its errors are an object with ``detail``."""
    app[ENVELOPES]["/tts"] = lambda error: {"detail": error.message}
    app.router.add_post("/tts", speak)


async def speak(request: web.Request) -> web.StreamResponse:
    """Speaks ``text`` as WAV, by the voice named or recorded."""
    form = await _form(request)
    try:
        return await _spoken(request, form)
    finally:
        for value in form.values():
            if isinstance(value, FileField):
                value.file.close()


async def _spoken(request: web.Request, form: dict[str, Any]) -> web.StreamResponse:
    text = form.get("text")
    if not isinstance(text, str):
        raise ApiError(422, "text is missing", param="text", code="missing_required_parameter")
    if not text.strip():
        raise invalid("Text cannot be empty", "text")
    if "voice_url" in form and "voice_wav" in form:
        raise invalid("Cannot provide both voice_url and voice_wav", "voice_url")
    model = form.get("model")
    if model is not None and not isinstance(model, str):
        raise invalid("model is a file, expected a name", "model")
    async with request.app[MODELS].use_speaker(model) as served:
        voice = await served.in_thread(_voice, served, form)
        async with await Spoken.begin(
            served, text, voice, Delivery(), "wav", after=SILENCE
        ) as spoken:
            return await send_audio(request, spoken, **HEADERS)


async def _form(request: web.Request) -> dict[str, Any]:
    try:
        return {name: value for name, value in (await request.post()).items() if value != ""}
    except (ValueError, LookupError, AssertionError, HttpProcessingError) as error:
        reason = str(error) or type(error).__name__  # whatever its header says
        raise invalid(f"the body is no form: {reason}", None) from None


def _voice(served: ServedSpeaker, form: dict[str, Any]) -> Voice | None:
    url, upload = form.get("voice_url"), form.get("voice_wav")
    if upload is not None:
        if not isinstance(upload, FileField):
            raise invalid("voice_wav is no file", "voice_wav")
        called = upload.filename or "voice_wav"
        recording = read(upload.file.read(), first=CLONED, name=called)
        return served.speaking.voice(recording.at(served.speaking.sample_rate).samples)
    if url is not None and not isinstance(url, str):
        raise invalid("voice_url is a file, expected a name", "voice_url")
    if url is not None and "://" in url:
        raise invalid(
            "voice_url is an address, and golem fetches nothing that a request names; send the "
            "recording as voice_wav",
            "voice_url",
            "unsupported",
        )
    return voice_named(served, url, "voice_url")
