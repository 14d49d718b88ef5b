"""Recordings, read from any file that somebody has: float32 samples, one channel.

libsndfile (soundfile) reads WAV in all its kinds, FLAC, Ogg, MP3, AIFF, CAF and the like. What it
does not know, MP4 (m4a), WebM and bare AAC, goes through pydub to the program ffmpeg where that is
installed; what a file is shows in its first bytes and never in its name, so nothing that names
other files or addresses, as a playlist does, ever reaches that program.
"""

from __future__ import annotations

import io
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadRequest, NotFound, Unsupported
from golem_core.media.resample import HIGHEST, LOWEST, resample
from golem_core.media.wave import check_wave

__all__ = ["MOST_BYTES", "MOST_SECONDS", "Recording", "read"]

MOST_BYTES = 64 << 20
MOST_SECONDS = 600.0
MOST_CHANNELS = 64
_BLOCK = 1 << 16  # frames read at a time

# What goes to ffmpeg: its name of the format, and the bytes at a place that show it.
_THROUGH_FFMPEG = (
    ("mp4", 4, b"ftyp"),
    ("matroska", 0, b"\x1a\x45\xdf\xa3"),
    ("aac", 0, b"\xff\xf1"),
    ("aac", 0, b"\xff\xf9"),
    ("asf", 0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"),
    ("amr", 0, b"#!AMR"),
)


@dataclass(frozen=True)
class Recording:
    """Sound: float32 [samples], one channel, `rate` samples a second, mostly within ±1."""

    samples: npt.NDArray[np.float32]
    rate: int

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / self.rate

    def at(self, rate: int) -> Recording:
        """The same at another rate."""
        return Recording(resample(self.samples, self.rate, rate), rate)


def read(
    source: str | Path | bytes,
    *,
    first: float | None = None,
    most_bytes: int = MOST_BYTES,
    most_seconds: float = MOST_SECONDS,
    name: str | None = None,
) -> Recording:
    """Reads a recording, its channels averaged.

    source        a file's path, or its bytes
    first         only so many seconds from its start, however long it is
    most_bytes    of a file; a larger one is refused
    most_seconds  of a recording that is read whole; a longer one is refused
    name          what messages call it; a path's own where it is one

    Raises `NotFound` for a file that is not there and `BadRequest`, naming it and what is wrong,
    for one that is empty, damaged, cut off, too long, or no recording; `Unsupported` for one that
    needs a library or a program that is not installed.
    """
    called = name or (str(source) if isinstance(source, (str, Path)) else "the recording")
    data = source if isinstance(source, bytes) else _bytes(Path(source), most_bytes, called)
    if len(data) > most_bytes:
        raise _bad(called, f"has {len(data)} bytes; at most {most_bytes} are read")
    if not data:
        raise _bad(called, "is empty")
    kind = next((k for k, at, mark in _THROUGH_FFMPEG if data[at : at + len(mark)] == mark), None)
    if kind is not None:
        return _by_ffmpeg(data, kind, called, first, most_seconds)
    check_wave(data, called)
    return _by_sndfile(data, called, first, most_seconds)


def _bad(called: str, what: str) -> BadRequest:
    return BadRequest(f"{called} {what}", "recording")


def _bytes(path: Path, most: int, called: str) -> bytes:
    try:
        size = path.stat().st_size
        if size <= most:
            return path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"no file {called}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NotFound(f"{called} cannot be read: {reason}") from None
    raise _bad(called, f"has {size} bytes; at most {most} are read")


def sndfile() -> Any:
    """The library that reads and writes files of sound. Raises `Unsupported` without it."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its library is not there
        raise Unsupported(
            f"files of sound need soundfile: pip install soundfile ({error})"
        ) from None
    return soundfile


def _by_sndfile(data: bytes, called: str, first: float | None, most: float) -> Recording:
    library = sndfile()
    try:
        with library.SoundFile(io.BytesIO(data)) as file:
            _check(file.samplerate, file.channels, called)
            return _read(library, file, called, first, most)
    except library.LibsndfileError as error:
        reason = error.error_string.rstrip(".")
        raise _bad(called, f"is no recording that can be read: {reason}") from None


def _check(rate: int, channels: int, called: str) -> None:
    if not LOWEST <= rate <= HIGHEST:
        raise _bad(called, f"has {rate} samples a second, expected {LOWEST} to {HIGHEST}")
    if channels > MOST_CHANNELS:
        raise _bad(called, f"has {channels} channels; at most {MOST_CHANNELS} are read")


def _block(library: Any, file: Any) -> npt.NDArray[np.float32]:
    """The next frames: float32 [frames, channels], none at the end.

    Not by the file's own `read`, which seeks after every block: what was written to a pipe, with no
    length in it, cannot be sought in.
    """
    block = np.empty((_BLOCK, file.channels), np.float32)
    into = library._ffi.from_buffer("float[]", block, require_writable=True)
    count = library._snd.sf_readf_float(file._file, into, _BLOCK)
    code = library._snd.sf_error(file._file)
    if code:
        raise library.LibsndfileError(code)
    return block[:count]


def _read(library: Any, file: Any, called: str, first: float | None, most: float) -> Recording:
    """Block by block, since the number of frames that a file declares may be anything."""
    rate: int = file.samplerate
    wanted = None if first is None else int(first * rate)
    limit = int(most * rate) if wanted is None else wanted
    blocks: list[npt.NDArray[np.float32]] = []
    count = 0
    while count <= limit and len(block := _block(library, file)):
        blocks.append(block.mean(axis=1))
        count += len(block)
    declared = file.frames
    if wanted is None and count > limit:
        raise _bad(called, f"lasts longer than {most:g} s, which is the most that is read")
    # Only what is compressed without loss says exactly how much there should be,
    # and not even these where they were written to a pipe: then it is the largest number.
    exact = file.format in ("FLAC", "CAF", "AIFF", "W64", "RF64") and declared < 1 << 60
    if exact and count < min(declared, limit):
        raise _bad(called, f"is cut off: it declares {declared} frames and has {count}")
    return _whole(blocks, rate, called, wanted)


def _whole(
    blocks: list[npt.NDArray[np.float32]], rate: int, called: str, wanted: int | None
) -> Recording:
    samples = np.concatenate(blocks)[:wanted] if blocks else np.zeros(0, np.float32)
    if not len(samples):
        raise _bad(called, "holds no sound")
    if not np.isfinite(samples).all():
        raise _bad(called, "holds samples that are no numbers")
    return Recording(np.ascontiguousarray(samples, np.float32), rate)


def _by_ffmpeg(data: bytes, kind: str, called: str, first: float | None, most: float) -> Recording:
    """Through pydub, which has ffmpeg turn the file into WAV; the format is said, not guessed."""
    for program in ("ffmpeg", "ffprobe"):
        if shutil.which(program) is None:
            raise Unsupported(f"{called} is {kind}, which needs the program {program}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old escapes in its source
        try:
            from pydub import AudioSegment
            from pydub.exceptions import CouldntDecodeError
        except ImportError as error:
            raise Unsupported(
                f"{called} is {kind}, which needs pydub: pip install pydub ({error})"
            ) from None
    until = first if first is not None else most + 1.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of pipes that it leaves open
            found = AudioSegment.from_file(io.BytesIO(data), format=kind, duration=until)
    except (CouldntDecodeError, OSError, ValueError, LookupError, TypeError) as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else type(error).__name__
        raise _bad(called, f"is no recording that can be read: {reason}") from None
    _check(found.frame_rate, found.channels, called)
    if first is None and found.duration_seconds > most:
        raise _bad(called, f"lasts longer than {most:g} s, which is the most that is read")
    width = found.sample_width
    whole = np.frombuffer(found.raw_data, {1: "<i1", 2: "<i2", 4: "<i4"}[width])
    frames = whole.reshape(-1, found.channels).astype(np.float32) / np.float32(1 << (8 * width - 1))
    return _whole([frames.mean(axis=1)], found.frame_rate, called, None)
