"""``/v1/audio``: texts spoken as OpenAI's clients ask, and the voices there are.

What a model cannot do is refused by its name: one that writes text does not speak, and nothing that
is offered listens.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from golem_core.media.encode import FORMATS
from golem_core.speech import Delivery
from golem_server.app import MODELS
from golem_server.errors import NO_RETRY, ApiError
from golem_server.params import model_name, refuse
from golem_server.parse import Body, field, read_json, required
from golem_server.routes.models import described
from golem_server.speech import Spoken, send_audio, send_events, voice_named

# What golem's models do not do, the values that do not ask for it, and what to say.
REFUSED = {
    "instructions": (
        lambda value: isinstance(value, str) and not value.strip(),
        "how a text is spoken follows from the voice",
    ),
    "speed": (
        lambda value: isinstance(value, (int, float)) and value == 1,
        "a model speaks at the pace of its voice",
    ),
}


def add(app: web.Application) -> None:
    """Adds the routes."""
    app.router.add_post("/v1/audio/speech", speak)
    app.router.add_get("/v1/audio/models", models)
    app.router.add_get("/v1/audio/voices", voices)
    app.router.add_post("/v1/audio/transcriptions", transcribe)


async def speak(request: web.Request) -> web.StreamResponse:
    """Speaks a text, in any format, as sound or as events."""
    body = await read_json(request)
    name, text = model_name(body), required(body, "input", str)
    refuse(body, REFUSED)
    form = field(body, "response_format", str, choices=tuple(FORMATS)) or "mp3"
    events = field(body, "stream_format", str, choices=("audio", "sse")) == "sse"
    delivery, voice = _delivery(body), _voice(body)
    async with request.app[MODELS].use_speaker(name) as served:
        who = await served.in_thread(voice_named, served, voice, "voice")
        async with await Spoken.begin(served, text, who, delivery, form) as spoken:
            if not events:
                return await send_audio(request, spoken)
            lines = await served.in_thread(served.speaking.lines, text, delivery.max_tokens)
            return await send_events(request, spoken, sum(len(line.ids) for line in lines))


def _voice(body: Body) -> str | None:
    """A name, or an object with one as its id."""
    given = body.get("voice")
    if isinstance(given, dict):
        return required(given, "id", str, within="voice")
    return field(body, "voice", str) or None


def _delivery(body: Body) -> Delivery:
    """What a request says of how it is spoken; golem's own fields."""
    return Delivery(
        seed=field(body, "seed", int),
        temperature=field(body, "temperature", float, low=0),
        noise_clamp=field(body, "noise_clamp", float, low=0),
        eos_threshold=field(body, "eos_threshold", float),
        frames_after_eos=field(body, "frames_after_eos", int, low=0, high=1000),
        max_tokens=field(body, "max_tokens", int, low=1, high=1000) or Delivery.max_tokens,
        apart=field(body, "apart", bool) or False,
    )


async def models(request: web.Request) -> web.Response:
    """The models that speak; none is loaded to find out."""
    speakers = await request.app[MODELS].speakers()
    data = [described(offer) for offer in speakers]
    # The same again, as some clients look for it.
    names = [{"id": offer.id} for offer in speakers]
    return web.json_response({"object": "list", "data": data, "models": names})


async def voices(request: web.Request) -> web.Response:
    """The voices of a model, ``?model=`` or the first that speaks, which it loads."""
    asked = request.query.get("model") or None
    async with request.app[MODELS].use_speaker(asked) as served:
        names = await served.in_thread(served.speaking.voices)
        found: dict[str, Any] = {
            "object": "list",
            "model": served.id,
            "default": served.speaking.default_voice,
            "clones": served.speaking.clones,
            "sample_rate": served.speaking.sample_rate,
            "data": [{"id": name, "object": "audio.voice", "name": name} for name in names],
        }
        # The same again, as some clients look for it.
        found["voices"] = [{"id": name, "name": name} for name in names]
        return web.json_response(found)


async def transcribe(request: web.Request) -> web.StreamResponse:
    """Says that nobody listens."""
    raise ApiError(
        503,
        "no model that is offered can transcribe",
        param="model",
        code="unsupported",
        headers=NO_RETRY,
    )
