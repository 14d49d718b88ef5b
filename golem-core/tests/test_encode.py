"""Sound written as it comes: every format, into files and into pipes, read again."""

from __future__ import annotations

import io
import shutil
import wave as standard
from pathlib import Path

import numpy as np
import pytest

from golem_core.errors import BadRequest, Unsupported
from golem_core.media import wave
from golem_core.media.audio import read
from golem_core.media.encode import FORMATS, format_of, open_encoder, put_in, write_file

pytest.importorskip("soundfile")

RATE = 24000
AT = np.arange(RATE * 2) / RATE
SOUND = (0.4 * np.sin(2 * np.pi * (200 + 300 * AT) * AT)).astype(np.float32)
PIECES = [SOUND[i : i + 1920] for i in range(0, len(SOUND), 1920)]
FFMPEG = shutil.which("ffmpeg") and shutil.which("ffprobe")
MADE = [
    pytest.param(
        name, marks=pytest.mark.skipif(name == "aac" and not FFMPEG, reason="ffmpeg is missing")
    )
    for name in FORMATS
]


def decoded(data: bytes, name: str) -> np.ndarray:
    if name == "pcm":
        data = wave.header(RATE) + data
    return read(data).samples


def likeness(found: np.ndarray) -> float:
    """The best correlation with what was written, at any delay up to a tenth of a second."""
    wanted = SOUND[8000:12000]
    return max(
        float(np.corrcoef(wanted, found[8000 + lag : 12000 + lag])[0, 1]) for lag in range(0, 2400)
    )


@pytest.mark.parametrize("name", MADE)
def test_into_a_pipe(name: str) -> None:
    with open_encoder(name, RATE) as encoder:
        pieces = [encoder.write(piece) for piece in PIECES]
        last = encoder.finish()
        assert encoder.patches == []
    data = b"".join([*pieces, last])
    found = decoded(data, name)
    if FORMATS[name].rates is None:  # what loses nothing
        assert len(found) == len(SOUND)
        assert np.abs(found - SOUND).max() < 1e-4
    else:
        assert len(SOUND) <= len(found) < len(SOUND) + 4000
        assert likeness(found) > 0.98


@pytest.mark.parametrize("name", MADE)
def test_bytes_come_with_the_samples(name: str) -> None:
    """A third of a second of sound is enough for something that can be played."""
    with open_encoder(name, RATE) as encoder:
        first = b"".join(encoder.write(piece) for piece in PIECES[:4])
        sizes = [len(encoder.write(piece)) for piece in PIECES[4:20]]
        if name != "aac":  # whose bytes come when another process has made them
            assert len(first) > 500
            assert sum(1 for size in sizes if size) >= 8
        encoder.finish()


@pytest.mark.parametrize("name", MADE)
def test_into_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"sound.{FORMATS[name].endings[0]}"
    assert format_of(path) == name
    write_file(path, iter(PIECES), RATE, name)
    found = decoded(path.read_bytes(), name)
    if name in ("mp3", "opus"):
        assert len(found) == len(SOUND)  # its length is in the file, and what was put before
    if name == "mp3":
        assert np.corrcoef(found[8000:32000], SOUND[8000:32000])[0, 1] > 0.98
    if name == "wav":
        with standard.open(str(path)) as file:
            assert file.getparams()[:4] == (1, 2, RATE, len(SOUND))
    if name == "flac":
        import soundfile

        assert soundfile.info(str(path)).frames == len(SOUND)


def test_a_file_that_failed_is_not_left(tmp_path: Path) -> None:
    def pieces():
        yield PIECES[0]
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        write_file(tmp_path / "a.wav", pieces(), RATE, "wav")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", MADE)
def test_nothing_at_all_and_nothing_finished(name: str) -> None:
    with open_encoder(name, RATE) as encoder:
        data = encoder.write(np.zeros(0, np.float32)) + encoder.finish()
    if name == "wav":
        assert data == wave.header(RATE)
    encoder = open_encoder(name, RATE)
    encoder.write(PIECES[0])
    encoder.close()
    encoder.close()


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "aac"])
def test_loud_samples_are_held_and_no_numbers_refused(name: str) -> None:
    with open_encoder(name, RATE) as encoder:
        data = encoder.write(np.full(9600, 3.0, np.float32)) + encoder.finish()
        assert 0.9 < np.median(decoded(data, name)[2000:8000]) < 1.1 or name in ("mp3", "opus")
    with open_encoder(name, RATE) as encoder, pytest.raises(ValueError, match="no numbers"):
        encoder.write(np.full(9, np.nan, np.float32))


def test_sixteen_bits_go_towards_zero() -> None:
    given = np.array([0, 1, -1, 2, -2, 0.5, -0.5, 1 / 32767, -0.99999], np.float32)
    found = np.frombuffer(wave.pcm16(given), "<i2")
    assert found.tolist() == [0, 32767, -32767, 32767, -32767, 16383, -16383, 1, -32766]


def test_the_standard_library_reads_a_stream_of_wav() -> None:
    with open_encoder("wav", RATE) as encoder:
        data = encoder.write(SOUND) + encoder.finish()
    with standard.open(io.BytesIO(data)) as file:
        assert file.readframes(-1) == wave.pcm16(SOUND)


def test_put_in_leaves_the_place_at_the_end() -> None:
    held = io.BytesIO()
    with open_encoder("wav", RATE, again=True) as encoder:
        held.write(encoder.write(SOUND))
        held.write(encoder.finish())
        put_in(held, encoder)
    assert held.tell() == len(held.getvalue())
    assert held.getvalue()[:44] == wave.header(RATE, frames=len(SOUND))


def test_what_cannot_be_written_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match="format is 'ogv', expected one of wav, flac, mp3"):
        open_encoder("ogv", RATE)
    with pytest.raises(BadRequest, match="opus cannot have 22050 samples a second, only 8000"):
        open_encoder("opus", 22050)
    with pytest.raises(BadRequest, match=r"a\.txt has the ending 'txt', expected one of \.wav"):
        format_of("a.txt")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unsupported, match="aac needs the program ffmpeg"):
        open_encoder("aac", RATE)
