"""Recordings of every kind that people have, and files that are none."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from golem_core.errors import BadRequest, NotFound, Unsupported
from golem_core.media import audio
from golem_core.media.audio import Recording, read
from golem_core.media.resample import resample

soundfile = pytest.importorskip("soundfile")

RATE = 24000
TONE = 0.5 * np.sin(2 * np.pi * 440 * np.arange(6000) / RATE)
FFMPEG = shutil.which("ffmpeg") and shutil.which("ffprobe")
needs_ffmpeg = pytest.mark.skipif(not FFMPEG, reason="ffmpeg and ffprobe are not installed")


def wav(tag: int, bits: int, data: bytes, *, channels=1, extended=False, junk=b"", size=None):
    """A WAV file by hand, as programs write them."""
    width = bits // 8 * channels
    form = struct.pack("<HHIIHH", tag, channels, RATE, RATE * width, width, bits)
    if extended:
        guid = struct.pack("<H", tag) + bytes.fromhex("000000001000800000aa00389b71")
        form = struct.pack("<HHIIHH", 0xFFFE, channels, RATE, RATE * width, width, bits)
        form += struct.pack("<HHI", 22, bits, 4) + guid
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + junk
    body += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def whole(dtype: str, scale: float) -> bytes:
    return np.round(TONE * scale).astype(dtype).tobytes()


def three_bytes() -> bytes:
    return b"".join(int(x).to_bytes(3, "little", signed=True) for x in np.round(TONE * 8388607))


def companded(kind: str) -> bytes:
    held = io.BytesIO()
    soundfile.write(held, TONE, RATE, kind, format="WAV")
    return held.getvalue()


KINDS = {
    "u8": lambda: wav(1, 8, np.round(TONE * 127 + 128).astype("u1").tobytes()),
    "s16": lambda: wav(1, 16, whole("<i2", 32767)),
    "s24": lambda: wav(1, 24, three_bytes()),
    "s32": lambda: wav(1, 32, whole("<i4", 2147483647)),
    "f32": lambda: wav(3, 32, TONE.astype("<f4").tobytes()),
    "f64": lambda: wav(3, 64, TONE.astype("<f8").tobytes()),
    "extended s24": lambda: wav(1, 24, three_bytes(), extended=True),
    "extended f32": lambda: wav(3, 32, TONE.astype("<f4").tobytes(), extended=True),
    "odd chunk": lambda: wav(
        1, 16, whole("<i2", 32767), junk=b"LIST" + struct.pack("<I", 5) + b"abcde\0"
    ),
    "A-law": lambda: companded("ALAW"),
    "mu-law": lambda: companded("ULAW"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_wav(kind: str) -> None:
    found = read(KINDS[kind]())
    assert (found.rate, len(found.samples), found.samples.dtype) == (RATE, 6000, np.float32)
    loose = 0.03 if "law" in kind else 0.008 if kind == "u8" else 0.004
    assert abs(np.abs(found.samples).max() - 0.5) < loose
    assert abs(found.samples.mean()) < 0.01
    assert np.abs(found.samples - TONE).max() < loose


def test_channels_are_averaged() -> None:
    stereo = np.stack([TONE, np.zeros(6000)], axis=1)
    found = read(wav(1, 16, np.round(stereo * 32767).astype("<i2").tobytes(), channels=2))
    assert abs(np.abs(found.samples).max() - 0.25) < 0.002
    many = np.repeat(TONE[:, None], 6, axis=1).astype("<f4")
    assert np.abs(read(wav(3, 32, many.tobytes(), channels=6)).samples - TONE).max() < 1e-6


@pytest.mark.parametrize(
    ("form", "kind"),
    [("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"),
     ("AIFF", "PCM_16"), ("CAF", "ALAC_16"), ("W64", "PCM_16"), ("AU", "PCM_16")],
)  # fmt: skip
def test_other_files_that_sndfile_knows(form: str, kind: str) -> None:
    held = io.BytesIO()
    soundfile.write(held, TONE, RATE, kind, format=form)
    found = read(held.getvalue())
    assert found.rate == RATE
    assert abs(len(found.samples) - 6000) <= 1
    # Opus shifts a tone's phase a little.
    assert np.corrcoef(found.samples[1000:5000], TONE[1000:5000])[0, 1] > 0.985


@needs_ffmpeg
@pytest.mark.parametrize(
    ("ending", "codec", "form"),
    [("m4a", "aac", "ipod"), ("webm", "libopus", "webm"), ("aac", "aac", "adts")],
)  # fmt: skip
def test_files_that_ffmpeg_turns(tmp_path: Path, ending: str, codec: str, form: str) -> None:
    pytest.importorskip("pydub")
    made = tmp_path / f"sound.{ending}"
    (tmp_path / "tone.wav").write_bytes(KINDS["s16"]())
    command = ["ffmpeg", "-v", "error", "-i", str(tmp_path / "tone.wav"), "-c:a", codec, "-f", form]
    subprocess.run([*command, str(made)], check=True, stdin=subprocess.DEVNULL)
    found = read(made)
    assert 0.2 < found.seconds < 0.4
    assert 0.35 < np.abs(found.samples).max() < 0.65
    with pytest.raises(BadRequest, match=r"lasts longer than 0\.1 s"):
        read(made, most_seconds=0.1)
    assert abs(read(made, first=0.1).seconds - 0.1) < 0.05


@needs_ffmpeg
def test_what_ffmpeg_cannot_turn() -> None:
    pytest.importorskip("pydub")
    with pytest.raises(BadRequest, match="is no recording that can be read"):
        read(b"\0\0\0\x20ftypM4A " + bytes(64))


def test_what_ffmpeg_reads_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unsupported, match="is mp4, which needs the program ffmpeg"):
        read(b"\0\0\0\x20ftypM4A " + bytes(64))


def test_lists_of_other_files_are_no_recording(tmp_path: Path) -> None:
    secret = tmp_path / "secret.wav"
    secret.write_bytes(KINDS["s16"]())
    for text in (
        f"#EXTM3U\n#EXTINF:1,\nfile://{secret}\n",
        f"ffconcat version 1.0\nfile {secret}\n",
        f"[playlist]\nFile1={secret}\n",
    ):
        path = tmp_path / "list.m4a"
        path.write_text(text)
        with pytest.raises(BadRequest, match=r"list\.m4a is no recording that can be read"):
            read(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    good = KINDS["s16"]()
    for data, message in (
        (b"", "is empty"),
        (b"<html>not found</html>" * 9, "is no recording that can be read"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is no recording"),
        (good[:20], "is cut off: it is a WAV file without sound"),
        (good[:44], "is cut off: it declares 12000 bytes of sound and has 0"),
        (good[:5000], "is cut off: it declares 12000 bytes of sound and has 4956"),
        (wav(1, 16, b""), "holds no sound"),
        (wav(3, 32, np.full(9, np.nan, "<f4").tobytes()), "holds samples that are no numbers"),
        (wav(3, 32, np.full(9, np.inf, "<f4").tobytes()), "holds samples that are no numbers"),
        (wav(1, 16, bytes(400), channels=100), "has 100 channels|is no recording"),
        (b"RIFF" + b"\xff" * 4 + b"WAVE" + b"junk" + b"\xff" * 4 + bytes(99), "is cut off"),
        (bytes(100_000), "is no recording that can be read"),
        (b"OggS" + bytes(1000), "is no recording that can be read"),
        (b"fLaC" + bytes(1000), "is no recording that can be read"),
    ):
        with pytest.raises(BadRequest, match=message) as refused:
            read(data, name="me.wav")
        assert str(refused.value).startswith("me.wav ")
        assert refused.value.field == "recording"
    with pytest.raises(NotFound, match=r"no file .*none\.wav"):
        read(tmp_path / "none.wav")
    with pytest.raises(NotFound, match="cannot be read: Is a directory"):
        read(tmp_path)
    with pytest.raises(NotFound, match="cannot be read: embedded null"):
        read("a\0b")


def test_rates_that_no_recording_has() -> None:
    for rate in (1, 999, 800_000, 4_000_000_000):
        data = bytearray(KINDS["s16"]())
        data[24:28] = struct.pack("<I", rate)
        with pytest.raises(BadRequest, match=f"has {rate} samples a second|is no recording"):
            read(bytes(data))
    with pytest.raises(BadRequest, match="800000 samples a second"):
        resample(np.zeros(4, np.float32), 800_000, 24000)


def test_every_cut_of_a_file_is_refused_or_sound() -> None:
    """No cut or changed byte gives anything but a refusal or numbers."""
    random = np.random.default_rng(0)
    for form, kind in (
        ("WAV", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("AIFF", "PCM_16"),
    ):
        held = io.BytesIO()
        soundfile.write(held, TONE, RATE, kind, format=form)
        data = held.getvalue()
        for _ in range(60):
            changed = bytearray(data[: int(random.integers(1, len(data)))])
            for place in random.integers(0, min(len(changed), 200), 2):
                changed[place] = random.integers(256)
            with contextlib.suppress(BadRequest):
                assert np.isfinite(read(bytes(changed)).samples).all()


def test_a_flac_that_is_cut_off_is_refused() -> None:
    held = io.BytesIO()
    noise = np.random.default_rng(1).normal(0, 0.1, 60_000)
    soundfile.write(held, noise, RATE, "PCM_16", format="FLAC")
    with pytest.raises(BadRequest, match=r"is cut off: it declares 60000 frames and has|be read"):
        read(held.getvalue()[:40_000])


def test_limits(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    path.write_bytes(wav(1, 16, bytes(2 * RATE * 3)))
    with pytest.raises(BadRequest, match=r"long\.wav lasts longer than 2 s"):
        read(path, most_seconds=2.0)
    assert read(path, most_seconds=3.0).seconds == 3.0
    assert read(path, first=1.25, most_seconds=2.0).seconds == 1.25
    assert read(path, first=30.0).seconds == 3.0
    for source in (path, path.read_bytes()):
        with pytest.raises(BadRequest, match="has 144044 bytes; at most 1000 are read"):
            read(source, most_bytes=1000)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 2_000_000_000])
def test_what_was_written_to_a_pipe_is_whole(size: int) -> None:
    found = read(wav(1, 16, whole("<i2", 32767), size=size))
    assert len(found.samples) == 6000


def test_without_the_library_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(Unsupported, match="need soundfile: pip install soundfile"):
        read(KINDS["s16"]())


RESAMPLED = json.loads((Path(__file__).parent / "vectors" / "resampled.json").read_text())


def wave(rate: int, seconds: float) -> np.ndarray:
    """As ref/pocket_text.py draws it."""
    t = np.arange(int(rate * seconds)) / rate
    tones = (110.0, 220.0, 1500.0, 3400.0)
    sound = sum(np.sin(2 * np.pi * f * t * (1 + 0.05 * t)) / f for f in tones)
    return (20 * sound * np.exp(-3 * t)).astype(np.float32)


@pytest.mark.parametrize("one", RESAMPLED, ids=lambda one: str(one["rate"]))
def test_other_rates_are_resampled_as_scipy_does(one: dict) -> None:
    found = Recording(wave(one["rate"], one["seconds"]), one["rate"]).at(24000)
    assert (found.rate, len(found.samples)) == (24000, one["samples"])
    assert found.samples.dtype == np.float32
    np.testing.assert_allclose(found.samples[one["places"]], one["values"], rtol=0, atol=1e-6)


def test_resampling_of_little_and_nothing() -> None:
    assert len(resample(np.zeros(0, np.float32), 48000, 24000)) == 0
    assert len(resample(np.ones(1, np.float32), 48000, 24000)) == 1
    assert len(resample(np.ones(1, np.float32), 8000, 24000)) == 3
    same = np.ones(5, np.float32)
    assert resample(same, 24000, 24000) is same
    assert audio.MOST_SECONDS * 24000 < 1 << 24  # what is held of the longest
