"""Sound written as it comes: encoders that give bytes for samples, for files, pipes and answers.

    encoder = open_encoder("mp3", 24000)
    for sound in speech:
        send(encoder.write(sound))
    send(encoder.finish())

WAV and bare samples are written here, FLAC, MP3 and Opus by libsndfile (soundfile), and AAC by the
program ffmpeg where it is installed. What only becomes known at the end, such as the length in a
header, is in `patches`: a file that can be written again takes them, a pipe does without.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from golem_core.closing import Closing
from golem_core.errors import BadRequest, GolemError, Unsupported
from golem_core.media import wave
from golem_core.media.audio import sndfile

__all__ = ["FORMATS", "Encoder", "Format", "format_of", "open_encoder", "write_file"]

Samples = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Format:
    """A way to write sound.

    media     of HTTP; of bare samples it says their rate too
    endings   of files, without the dot
    rates     samples a second that it can have; None: any
    """

    name: str
    media: str
    endings: tuple[str, ...]
    rates: tuple[int, ...] | None = None


_MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
FORMATS = {
    form.name: form
    for form in (
        Format("wav", "audio/wav", ("wav", "wave")),
        Format("flac", "audio/flac", ("flac",)),
        Format("mp3", "audio/mpeg", ("mp3",), _MPEG_RATES),
        Format("opus", "audio/opus", ("opus", "ogg", "oga"), (8000, 12000, 16000, 24000, 48000)),
        Format("aac", "audio/aac", ("aac",), (*_MPEG_RATES, 64000, 88200, 96000)),
        Format("pcm", "audio/pcm", ("pcm", "raw")),
    )
}


def format_of(path: str | Path) -> str:
    """The format of a file's name. Raises `BadRequest` for an ending that says none."""
    ending = Path(path).suffix.removeprefix(".").lower()
    for form in FORMATS.values():
        if ending in form.endings:
            return form.name
    known = ", ".join(f".{form.endings[0]}" for form in FORMATS.values())
    raise BadRequest(f"{path} has the ending {ending!r}, expected one of {known}", "format")


class Encoder(Closing):
    """Bytes for samples, in order."""

    def __init__(self) -> None:
        self.patches: list[tuple[int, bytes]] = []  # place and bytes, once it is finished

    @abstractmethod
    def write(self, samples: Samples) -> bytes:
        """The bytes that become certain with these samples: float32 [samples] within ±1."""

    @abstractmethod
    def finish(self) -> bytes:
        """The last bytes."""

    def close(self) -> None:  # most have nothing to give back
        """Gives back what it holds, finished or not."""


def open_encoder(name: str, rate: int, *, again: bool = False) -> Encoder:
    """An encoder of one channel of `rate` samples a second.

    `again` says that the place can be written again, so that `patches` will be put in. Raises
    `BadRequest` for an unknown format or a rate that it cannot have, `Unsupported` where a library
    or a program is not installed.
    """
    form = FORMATS.get(name)
    if form is None:
        raise BadRequest(f"format is {name!r}, expected one of {', '.join(FORMATS)}", "format")
    if form.rates is not None and rate not in form.rates:
        raise BadRequest(
            f"{name} cannot have {rate} samples a second, only {', '.join(map(str, form.rates))}",
            "format",
        )
    if name in ("wav", "pcm"):
        return _Plain(rate if name == "wav" else None, again)
    if name == "aac":
        return _Aac(rate)
    return _Sndfile(name, rate, again)


def write_file(path: Path, pieces: Iterable[Samples], rate: int, name: str) -> None:
    """Writes pieces of sound to a file; one that was begun and failed is deleted."""
    try:
        with path.open("wb") as file, open_encoder(name, rate, again=True) as encoder:
            for piece in pieces:
                file.write(encoder.write(piece))
            file.write(encoder.finish())
            put_in(file, encoder)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def put_in(file: BinaryIO, encoder: Encoder) -> None:
    """Writes what became known at the end where it belongs."""
    for place, data in encoder.patches:
        file.seek(place)
        file.write(data)
    file.seek(0, os.SEEK_END)


class _Plain(Encoder):
    """16-bit samples, after a header where there is a `rate` to say."""

    def __init__(self, rate: int | None, again: bool) -> None:
        super().__init__()
        self._rate, self._again = rate, again
        self._head = b"" if rate is None else wave.header(rate)
        self._frames = 0

    def write(self, samples: Samples) -> bytes:
        self._frames += len(samples)
        head, self._head = self._head, b""
        return head + wave.pcm16(samples)

    def finish(self) -> bytes:
        if self._rate is not None and self._again:
            self.patches.append((0, wave.header(self._rate, frames=self._frames)))
        head, self._head = self._head, b""
        return head


class _Sink:
    """What libsndfile takes for a file: keeps what is new apart from what is written again."""

    def __init__(self) -> None:
        self.new = bytearray()
        self.patches: list[tuple[int, bytes]] = []
        self._at = self._end = 0

    def write(self, data: Any) -> int:
        written = bytes(data)
        if self._at == self._end:
            self.new += written
            self._end += len(written)
        else:
            self.patches.append((self._at, written))
        self._at += len(written)
        return len(written)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, _count: int = -1) -> bytes:
        return b""

    def take(self) -> bytes:
        found = bytes(self.new)
        self.new.clear()
        return found


# Of libsndfile: format, kind of samples, quality of MP3 (128 kbit/s at 24,000 Hz, always the same,
# so that a player knows how long a piece of a stream lasts).
_BY_SNDFILE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "flac": ("FLAC", "PCM_16", {}),
    "mp3": ("MP3", "MPEG_LAYER_III", {"compression_level": 0.25, "bitrate_mode": "CONSTANT"}),
    "opus": ("OGG", "OPUS", {}),
}
_PAGE_LATENCY = 0x1302  # SFC_SET_OGG_PAGE_LATENCY_MS of sndfile.h
_PAGE = 80.0  # milliseconds of sound in a page of Ogg; by itself a second, which nobody waits for


class _Sndfile(Encoder):
    """FLAC, MP3 and Opus."""

    def __init__(self, name: str, rate: int, again: bool) -> None:
        super().__init__()
        library = sndfile()
        self._sink = _Sink()
        self._again = again
        self._mp3 = name == "mp3"
        self._held: bytearray | None = bytearray() if self._mp3 and not again else None
        form, samples, how = _BY_SNDFILE[name]
        try:
            self._file = library.SoundFile(self._sink, "w", rate, 1, samples, format=form, **how)
        except (library.LibsndfileError, TypeError) as error:
            raise Unsupported(
                f"the soundfile that is installed writes no {name}: {error}"
            ) from None
        if name == "opus":
            latency = library._ffi.new("double *", _PAGE)
            library._snd.sf_command(
                self._file._file, _PAGE_LATENCY, latency, library._ffi.sizeof("double")
            )

    def write(self, samples: Samples) -> bytes:
        if not np.isfinite(samples).all():
            raise ValueError("samples that are no numbers")
        self._file.write(np.clip(samples, -1.0, 1.0).astype(np.float32, copy=False))
        return self._taken()

    def finish(self) -> bytes:
        self._file.close()
        if self._again:
            self.patches = self._sink.patches
        return self._taken()

    def _taken(self) -> bytes:
        """The new bytes; of an MP3 that is never written again without the empty first frame.

        That frame is kept for the length, which is known at the end.
        """
        found = self._sink.take()
        if self._held is None:
            return found
        self._held += found
        size = _mp3_frame(self._held)
        if size is None or len(self._held) < size:
            return b""
        found, self._held = bytes(self._held[size:]), None
        return found

    def close(self) -> None:
        self._file.close()


def _mp3_frame(data: bytearray) -> int | None:
    """Bytes of the first frame of MPEG audio, layer III; None where less than its head is there."""
    if len(data) < 4:
        return None
    version, rate_at, bits_at = data[1] >> 3 & 3, data[2] >> 2 & 3, data[2] >> 4
    first = version == 3  # MPEG-1; 2 is MPEG-2 and 0 MPEG-2.5
    rates = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
    bits = (
        (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
        if first
        else (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
    )
    padding = data[2] >> 1 & 1
    return (144 if first else 72) * bits[bits_at] * 1000 // rates[version][rate_at] + padding


class _Aac(Encoder):
    """AAC in ADTS frames, by ffmpeg: samples in at one end, bytes out at the other."""

    def __init__(self, rate: int) -> None:
        super().__init__()
        program = shutil.which("ffmpeg")
        if program is None:
            raise Unsupported("aac needs the program ffmpeg, which is not installed")
        self._process = subprocess.Popen(
            [
                *(program, "-v", "error", "-fflags", "nobuffer", "-probesize", "32"),
                *("-analyzeduration", "0", "-f", "s16le", "-ar", str(rate), "-ac", "1"),
                *("-i", "pipe:0", "-c:a", "aac", "-b:a", "96k", "-f", "adts"),
                *("-flush_packets", "1", "pipe:1"),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._lock = threading.Lock()
        self._new = bytearray()
        self._reader = threading.Thread(target=self._read, name="golem-aac", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := self._process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            with self._lock:
                self._new += data

    def write(self, samples: Samples) -> bytes:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(wave.pcm16(samples))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise GolemError("ffmpeg ended before the sound did") from None
        return self._taken()

    def finish(self) -> bytes:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._reader.join()
        if self._process.wait():
            raise GolemError(f"ffmpeg ended with {self._process.returncode}")
        return self._taken()

    def _taken(self) -> bytes:
        with self._lock:
            found = bytes(self._new)
            self._new.clear()
        return found

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
