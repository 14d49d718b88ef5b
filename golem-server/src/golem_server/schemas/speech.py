"""The bodies of the routes that speak."""

from __future__ import annotations

from golem_core.media.encode import FORMATS
from golem_server.schemas.words import (
    BOOL,
    COUNT,
    INT,
    NUMBER,
    TEXT,
    Schema,
    array,
    either,
    maybe,
    number,
    obj,
    one,
    ref,
    says,
)

__all__ = ["SCHEMAS"]

_VOICE = obj("id name", id=TEXT, name=TEXT)

SCHEMAS: dict[str, Schema] = {
    "SpeechRequest": obj(
        "input",
        model=says(maybe(TEXT), "Without one the first that speaks."),
        input=says(TEXT, "As long as you like: it is spoken in pieces."),
        voice=says(
            maybe(either(TEXT, obj("id", id=TEXT))),
            "A name of /v1/audio/voices; default, or none, is the model's usual one.",
        ),
        response_format=says(maybe(one(*FORMATS)), "mp3 if none is given; aac needs ffmpeg."),
        stream_format=says(maybe(one("audio", "sse")), "Sound, or events with sound in base64."),
        speed=says(maybe(NUMBER), "Refused but for 1."),
        instructions=says(maybe(TEXT), "Refused where there are some."),
        seed=says(maybe(INT), "The same seed is the same sound."),
        temperature=maybe(number(0, 100)),
        noise_clamp=maybe(NUMBER),
        eos_threshold=maybe(NUMBER),
        frames_after_eos=maybe(number(0, 1000, "integer")),
        max_tokens=says(maybe(number(1, 1000, "integer")), "Of a line, not of the text."),
        apart=says(maybe(BOOL), "Draw the lines of the text in the same passes."),
    ),
    "SpeechEvent": obj(
        "type",
        type=one("speech.audio.delta", "speech.audio.done"),
        audio=says(TEXT, "Base64 of the next bytes."),
        usage=obj(
            "input_tokens output_tokens total_tokens",
            input_tokens=COUNT,
            output_tokens=says(COUNT, "Pieces of sound."),
            total_tokens=COUNT,
        ),
    ),
    "VoiceList": obj(
        "object model default clones sample_rate data voices",
        object=one("list"),
        model=TEXT,
        default=maybe(TEXT),
        clones=says(BOOL, "Whether a recording can be sent to /tts."),
        sample_rate=says(COUNT, "Samples a second; of pcm, which does not say it itself."),
        data=array(obj("id object name", id=TEXT, object=one("audio.voice"), name=TEXT)),
        voices=array(_VOICE),
    ),
    "SpeakerList": obj(
        "object data models",
        object=one("list"),
        data=array(ref("Model")),
        models=array(obj("id", id=TEXT)),
    ),
    "TtsRequest": obj(
        "text",
        model=says(TEXT, "Golem's own field: without it the first that speaks."),
        text=TEXT,
        voice_url=says(TEXT, "The name of a voice; addresses are refused."),
        voice_wav=says({"type": "string", "format": "binary"}, "A recording; 30 s of it count."),
    ),
    "TtsError": obj("detail", detail=TEXT),
}
