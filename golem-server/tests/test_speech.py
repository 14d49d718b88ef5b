"""Texts spoken over HTTP, by a model that speaks in tones."""

from __future__ import annotations

import base64
import io
import json
import logging
import shutil
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from aiohttp import ClientPayloadError, ClientSession

from golem_core.errors import PassFailed
from golem_core.media import wave
from golem_core.media.audio import read
from golem_core.testing.speaker import FRAME, RATE, ToneSpeech, install_tones, write_tones

soundfile = pytest.importorskip("soundfile")

MEDIA = {
    "mp3": "audio/mpeg",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
FFMPEG = shutil.which("ffmpeg") and shutil.which("ffprobe")


@pytest.fixture(scope="module")
def server(tmp_path_factory, tiny_model, serve_in_thread):
    folder = tmp_path_factory.mktemp("speech")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(install_tones(folder / "plugin"))
        tones = write_tones(folder / "tones")
        with serve_in_thread([f"tiny={tiny_model}", tones], max_sequences=4) as server:
            yield server


def send(server: Any, path: str, data: Any = None, **headers: str) -> tuple[int, Any, bytes]:
    """Status, headers and body of an answer."""
    if isinstance(data, dict):
        data, headers = json.dumps(data).encode(), {"Content-Type": "application/json", **headers}
    asked = urllib.request.Request(server.url + path, data, headers)
    try:
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def speech(server: Any, **body: Any) -> tuple[int, Any, bytes]:
    return send(server, "/v1/audio/speech", {"model": "tones", "input": "one three", **body})


def refused(answer: tuple[int, Any, bytes]) -> tuple[int, str, str | None]:
    status, _, body = answer
    error = json.loads(body)["error"]
    return status, error["message"], error["param"]


def pitch(samples: np.ndarray) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * RATE / len(samples))


def speaking(server: Any) -> Any:
    return next(one for one in server.models.loaded() if one.id == "tones")


@pytest.mark.parametrize("form", MEDIA)
def test_every_format(server, form: str) -> None:
    if form == "aac" and not FFMPEG:
        pytest.skip("ffmpeg is not installed")
    text = " ".join(["eight888"] * 10)
    status, headers, data = speech(server, input=text, voice="high", response_format=form)
    assert status == 200
    assert headers["Content-Type"] == MEDIA[form]
    found = read(wave.header(RATE) + data if form == "pcm" else data)
    assert 10 * FRAME <= len(found.samples) < 10 * FRAME + 4000
    assert abs(pitch(found.samples[4000:12000]) - 440) < 10


def test_mp3_is_the_usual_format_and_the_usual_voice_is_the_model_s(server) -> None:
    status, headers, data = speech(server, input="eight888 " * 10)
    assert (status, headers["Content-Type"]) == (200, "audio/mpeg")
    assert abs(pitch(read(data).samples[4000:12000]) - 110) < 10
    assert headers["Transfer-Encoding"] == "chunked"


def test_events(server) -> None:
    sent = {"input": "one three five", "seed": 3}
    status, headers, data = speech(server, stream_format="sse", response_format="wav", **sent)
    assert status == 200
    assert headers["Content-Type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in data.decode().splitlines() if line[:5] == "data:"]
    assert [event["type"] for event in events] == [*["speech.audio.delta"] * 3, "speech.audio.done"]
    whole = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert whole == speech(server, response_format="wav", **sent)[2]
    assert events[-1]["usage"] == {"input_tokens": 3, "output_tokens": 3, "total_tokens": 6}


def test_openai_s_own_client(server, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        with client.audio.speech.with_streaming_response.create(
            model="tones", voice="low", input="one two three", response_format="wav"
        ) as response:
            response.stream_to_file(tmp_path / "a.wav")
        assert len(read(tmp_path / "a.wav").samples) == 3 * FRAME
        whole = client.audio.speech.create(
            model="tones", voice={"id": "high"}, input="x", speed=1.0, instructions=""
        )
        assert read(whole.content).rate == RATE
        with pytest.raises(openai.BadRequestError, match="speed is not supported"):
            client.audio.speech.create(model="tones", voice="low", input="x", speed=1.5)


@pytest.mark.parametrize(
    ("body", "status", "message", "param"),
    [
        ({"response_format": "ogv"}, 400, "response_format is 'ogv', expected one of wav", None),
        ({"stream_format": "x"}, 400, "expected one of audio, sse", "stream_format"),
        ({"voice": "alloy"}, 400, "has no voice 'alloy'; there are: high, low", "voice"),
        ({"voice": {"id": "x"}}, 400, "has no voice 'x'; there are: high, low", "voice"),
        ({"voice": {}}, 400, "voice.id is missing", "voice.id"),
        ({"voice": 3}, 400, "voice is 3, expected a string", "voice"),
        ({"speed": 0.5}, 400, "speed is not supported: a model speaks at the pace", "speed"),
        ({"instructions": "Whisper."}, 400, "instructions is not supported", "instructions"),
        ({"input": "  \n"}, 400, "there is nothing to speak in the text", "input"),
        ({"input": None}, 400, "input is missing", "input"),
        ({"input": 3}, 400, "input is 3, expected a string", "input"),
        ({"temperature": 3}, 400, "temperature is 3, not 0 to 2", "temperature"),
        ({"temperature": -1}, 400, "expected a number of at least 0", "temperature"),
        ({"max_tokens": 0}, 400, "expected an integer from 1 to 1000", "max_tokens"),
        ({"model": "tiny"}, 501, "tiny writes text and does not speak", "model"),
        ({"model": "tts-1"}, 404, "no model is named 'tts-1'", "model"),
    ],
)
def test_what_is_refused(server, body, status, message, param) -> None:
    found = refused(speech(server, **body))
    assert found[0] == status
    assert message in found[1]
    assert param is None or found[2] == param


def test_without_a_model_the_first_that_speaks_does(server) -> None:
    status, _, data = send(server, "/v1/audio/speech", {"input": "x", "response_format": "wav"})
    assert status == 200
    assert len(read(data).samples) == FRAME


def test_a_model_that_speaks_writes_no_text(server) -> None:
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/tokenize", {"content": "Hi"}),
    ):
        status, message, param = refused(send(server, path, {"model": "tones", **body}))
        assert (status, param) == (501, "model")
        assert message == "tones speaks and writes no text"


def test_voices_are_listed(server) -> None:
    for query in ("", "?model=tones"):
        status, _, data = send(server, f"/v1/audio/voices{query}")
        found = json.loads(data)
        assert status == 200
        assert [one["id"] for one in found["data"]] == ["high", "low"]
        assert found["voices"] == [{"id": n, "name": n} for n in ("high", "low")]
        assert (found["model"], found["sample_rate"]) == ("tones", RATE)
        assert (found["default"], found["clones"]) == ("low", True)
    listed = json.loads(send(server, "/v1/audio/models")[2])
    assert [one["id"] for one in listed["data"]] == ["tones"]
    assert listed["models"] == [{"id": "tones"}]
    assert refused(send(server, "/v1/audio/voices?model=tiny"))[0] == 501


def test_where_nobody_speaks(tiny_model: Path, serve_in_thread) -> None:
    with serve_in_thread(f"tiny={tiny_model}") as server:
        for answer in (
            send(server, "/v1/audio/voices"),
            send(server, "/v1/audio/speech", {"input": "x"}),
        ):
            assert refused(answer) == (501, "tiny writes text and does not speak", "model")
        status, _, data = send(server, "/tts", b"text=hi", **FORM)
        assert (status, json.loads(data)) == (
            501,
            {"detail": "tiny writes text and does not speak"},
        )


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def parts(**fields: Any) -> tuple[bytes, dict[str, str]]:
    """A form with files: a text, or (name of a file, bytes)."""
    body = b""
    for name, value in fields.items():
        given, data = value if isinstance(value, tuple) else (None, value.encode())
        file = f'; filename="{given}"' if given is not None else ""
        body += f'--line\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode()
        body += data + b"\r\n"
    return body + b"--line--\r\n", {"Content-Type": "multipart/form-data; boundary=line"}


def test_the_makers_own_route(server) -> None:
    status, headers, data = send(server, "/tts", b"text=one+two&voice_url=high", **FORM)
    assert status == 200
    assert headers["Content-Type"] == "audio/wav"
    assert headers["Content-Disposition"] == "attachment; filename=generated_speech.wav"
    found = read(data).samples
    assert len(found) == 2 * FRAME + 4800
    assert not found[-4800:].any()
    assert found[: 2 * FRAME].any()


def test_a_voice_is_made_of_what_is_uploaded(server) -> None:
    held = io.BytesIO()
    at = np.arange(44100 * 31) / 44100
    soundfile.write(
        held, 0.3 * np.sin(2 * np.pi * np.where(at < 30, 700, 3000) * at), 44100, format="FLAC"
    )
    body, headers = parts(text="eight888 eight888", voice_wav=("me.flac", held.getvalue()))
    status, _, data = send(server, "/tts", body, **headers)
    assert status == 200
    assert abs(pitch(read(data).samples[: 2 * FRAME]) - 700) < 10


@pytest.mark.parametrize(
    ("fields", "status", "detail"),
    [
        ({"text": "  "}, 400, "Text cannot be empty"),
        ({"voice_url": "high"}, 422, "text is missing"),
        ({"text": "x", "voice_url": "http://a/b.wav"}, 400, "golem fetches nothing"),
        ({"text": "x", "voice_url": "hf://a/b/c.wav"}, 400, "golem fetches nothing"),
        ({"text": "x", "voice_url": "nobody"}, 400, "there are: high, low"),
        ({"text": "x", "voice_url": "high", "voice_wav": ("a.wav", b"x")}, 400, "Cannot provide"),
        ({"text": "x", "voice_wav": ("a.wav", b"RIFF")}, 400, "a.wav is no recording"),
        ({"text": "x", "voice_wav": "words"}, 400, "voice_wav is no file"),
        ({"text": ("a.txt", b"x")}, 422, "text is missing"),
        ({"text": "x", "model": "tiny"}, 501, "tiny writes text and does not speak"),
        ({"text": "x", "model": "other"}, 404, "no model is named 'other'"),
        ({"text": "x", "model": ("a", b"x")}, 400, "model is a file"),
    ],
)
def test_what_the_makers_route_refuses(server, fields, status, detail) -> None:
    body, headers = parts(**fields)
    found, _, data = send(server, "/tts", body, **headers)
    assert found == status
    assert detail in json.loads(data)["detail"]


def test_a_file_that_was_not_chosen_is_none(server) -> None:
    """Browsers send an empty file without a name."""
    body, headers = parts(text="x", voice_wav=("", b""), voice_url="")
    assert send(server, "/tts", body, **headers)[0] == 200


def test_what_is_no_form(server) -> None:
    assert send(server, "/tts", {"text": "x"})[0] == 422
    for body, kind in (
        (b"garbage", "multipart/form-data; boundary=x"),
        (b"x", "multipart/form-data"),
    ):
        assert 400 <= send(server, "/tts", body, **{"Content-Type": kind})[0] < 500


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("kind", ["audio", "sse", "tts", "unread"])
def test_a_client_that_hangs_up_is_spoken_to_no_more(server, kind: str, reset: bool) -> None:
    speech(server)  # so that it is loaded
    held = speaking(server)
    held.speaking.delay = 0.005
    text = "word " * 20_000
    path, sent = "/v1/audio/speech", {"Content-Type": "application/json"}
    body = json.dumps({"model": "tones", "input": text, "stream_format": kind}).encode()
    if kind in ("tts", "unread"):
        path, (body, sent) = "/tts", parts(text=text)
    place = urlsplit(server.url)
    lines = [f"POST {path} HTTP/1.1", f"Host: {place.netloc}", f"Content-Length: {len(body)}"]
    head = "\r\n".join([*lines, *(f"{k}: {v}" for k, v in sent.items()), "", ""])
    try:
        with socket.create_connection((place.hostname, place.port), timeout=10) as client:
            client.sendall(head.encode() + body)
            size = 0
            while kind != "unread" and size < 4000:
                got = client.recv(4096)
                assert got
                size += len(got)
            if kind == "unread":  # a reader that never reads: sound is made a little ahead only
                time.sleep(0.3)
            assert len(held.speaking.speeches) == 1
            assert held.running == 1
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        left = time.monotonic()
        while held.speaking.speeches or held.users or held.running:
            assert time.monotonic() - left < 2, "its place is still taken"
            time.sleep(0.01)
    finally:
        held.speaking.delay = 0.0


@pytest.mark.parametrize("kind", ["audio", "sse"])
def test_who_hangs_up_after_the_end_has_not_left(server, kind: str, caplog) -> None:
    body = json.dumps({"model": "tones", "input": "one three", "stream_format": kind}).encode()
    place = urlsplit(server.url)
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    with caplog.at_level(logging.INFO, "golem.access"):
        for n in range(1, 11):
            with socket.create_connection((place.hostname, place.port), timeout=10) as client:
                client.sendall(head.encode() + body)
                got = b""
                while not got.endswith(b"\r\n0\r\n\r\n"):
                    piece = client.recv(4096)
                    assert piece
                    got += piece
            begun = time.monotonic()
            while len(caplog.records) < n:
                assert time.monotonic() - begun < 10
                time.sleep(0.005)
    assert {record.golem["status"] for record in caplog.records} == {200}


def test_a_slow_reader_is_not_run_ahead_of(server) -> None:
    """Twenty thousand characters: what is made waits in small buffers, not in memory."""
    speech(server)
    held = speaking(server)
    body, sent = parts(text="word " * 100_000)
    place = urlsplit(server.url)
    head = f"POST /tts HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += f"Content-Type: {sent['Content-Type']}\r\n\r\n"
    with socket.create_connection((place.hostname, place.port), timeout=10) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(head.encode() + body)
        time.sleep(0.3)
        [made] = held.speaking.speeches
        before, begun = 0.0, time.monotonic()
        while made.timings.sound > before:  # until the buffers of the two sockets are full
            assert time.monotonic() - begun < 20
            before = made.timings.sound
            time.sleep(0.3)
        assert before < 500  # of 8,000 seconds
    while held.users:
        time.sleep(0.01)


@pytest.mark.parametrize("kind", ["audio", "sse"])
def test_who_takes_nothing_is_hung_up_on(server, kind: str, monkeypatch) -> None:
    speech(server)
    held = speaking(server)
    monkeypatch.setattr("golem_server.speech.PATIENCE", 0.5)
    body = json.dumps(
        {"model": "tones", "input": "word " * 100_000, "response_format": "wav",
         "stream_format": kind}
    ).encode()  # fmt: skip
    place = urlsplit(server.url)
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\n\r\n"
    with socket.create_connection((place.hostname, place.port), timeout=10) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(head.encode() + body)
        begun = time.monotonic()
        while not held.users:
            assert time.monotonic() - begun < 10
            time.sleep(0.01)
        while held.speaking.speeches or held.users or held.running:  # paused, not gone
            assert time.monotonic() - begun < 20, "its place is still taken"
            time.sleep(0.05)
    text = send(server, "/metrics")[2].decode()
    assert 'finished_reason="stalled"' in text


def test_several_at_a_time(server) -> None:
    speech(server)
    held = speaking(server)
    held.speaking.delay = 0.01
    found: list[tuple[int, Any, bytes]] = []
    most = 0

    def ask() -> None:
        found.append(speech(server, input="word " * 20, response_format="wav", seed=1))

    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, len(held.speaking.speeches))
            time.sleep(0.002)
    finally:
        held.speaking.delay = 0.0
    assert most == 4
    assert len({data for _, _, data in found}) == 1
    assert [status for status, _, _ in found] == [200] * 4


def test_counts(server) -> None:
    speech(server)
    text = send(server, "/metrics")[2].decode()
    assert 'golem:speech_seconds_total{model_name="tones"}' in text
    assert 'golem:num_requests_running{model_name="tones"} 0.0' in text
    assert 'golem:request_success_total{finished_reason="stop",model_name="tones"}' in text
    assert 'golem:time_to_first_sound_seconds_count{model_name="tones"}' in text
    loaded = len(server.models.loaded())
    assert f"golem:models_loaded {float(loaded)}" in text


def test_what_is_said_of_it(server) -> None:
    speech(server)
    found = json.loads(send(server, "/props?model=tones")[2])
    assert found["capabilities"] == ["speech"]
    assert json.loads(send(server, "/slots?model=tones")[2])[0]["n_ctx"] is None
    models = json.loads(send(server, "/api/ps")[2])["models"]
    assert "tones" in [one["name"] for one in models]


async def test_it_is_unloaded_and_loaded_again(serve, tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(install_tones(tmp_path / "plugin"))
    async with serve(write_tones(tmp_path / "tones")) as server:
        [held] = server.models.loaded()
        assert await server.models.unload("tones")
        assert held.speaking.closed
        assert server.models.loaded() == []
        async with server.models.use_speaker(None) as again:
            assert again.voice("high").pitch == 440
            assert again.voice("high") is again.voice("high")
            assert not await server.models.unload("tones")
        async with ClientSession() as client:
            sent = {"input": "x", "response_format": "wav"}
            async with client.post(f"{server.url}/v1/audio/speech", json=sent) as answer:
                assert answer.status == 200
                assert len(read(await answer.read()).samples) == FRAME


async def test_what_fails_in_the_middle_breaks_off(serve, tmp_path, monkeypatch) -> None:
    """Nobody takes half a sentence for the whole."""
    monkeypatch.syspath_prepend(install_tones(tmp_path / "plugin"))
    made = iter(range(3))

    def fails(speech: ToneSpeech) -> np.ndarray:
        if next(made, None) is None:
            raise PassFailed("latent is not a number", "latent", "nan_latent")
        return np.zeros(FRAME, np.float32)

    monkeypatch.setattr(ToneSpeech, "__next__", fails)
    async with serve(write_tones(tmp_path / "tones")) as server, ClientSession() as client:
        sent = {"input": "a b c d e", "response_format": "wav"}
        async with client.post(f"{server.url}/v1/audio/speech", json=sent) as answer:
            assert answer.status == 200
            with pytest.raises(ClientPayloadError):
                await answer.read()
        async with client.post(f"{server.url}/v1/audio/speech", json=sent) as answer:
            assert answer.status == 500  # nothing had been sent
            assert (await answer.json())["error"]["code"] == "nan_latent"
        made = iter(range(3))
        sent["stream_format"] = "sse"
        async with client.post(f"{server.url}/v1/audio/speech", json=sent) as answer:
            text = await answer.text()
        assert text.count("speech.audio.delta") == 3
        assert '"code":"nan_latent"' in text
