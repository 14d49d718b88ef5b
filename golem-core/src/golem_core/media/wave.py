"""WAV by hand: its header, samples of 16 bits, and whether a file is as long as it says.

A header is written before it is known how much follows. Where the place can be written again the
sizes are put in at the end; into a pipe they stay at the largest number, which players take for
"until it ends".
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadRequest

__all__ = ["UNKNOWN", "check_wave", "header", "pcm16"]

UNKNOWN = 0xFFFFFFFF
# Pipes leave such sizes: the largest number, or one near it, or 2,000,000,000. No file that is read
# whole is that large, so a size from here on says nothing.
_STREAMED = 1_800_000_000
_FORMAT = struct.Struct("<HHIIHH")


def header(rate: int, channels: int = 1, frames: int | None = None) -> bytes:
    """44 bytes before 16-bit samples; `frames` None: as many as come."""
    size = UNKNOWN if frames is None else frames * channels * 2
    whole = UNKNOWN if frames is None else size + 36
    return b"".join(
        (
            b"RIFF", struct.pack("<I", whole), b"WAVE", b"fmt ", struct.pack("<I", 16),
            _FORMAT.pack(1, channels, rate, rate * channels * 2, channels * 2, 16),
            b"data", struct.pack("<I", size),
        )
    )  # fmt: skip


def pcm16(samples: npt.NDArray[np.float32]) -> bytes:
    """Samples within ±1 as 16-bit numbers, little end first; louder ones are held there.

    32767 is 1, and what is between two numbers goes to the one nearer zero, as the makers of Pocket
    TTS have it. Raises ValueError for what is no number.
    """
    if not np.isfinite(samples).all():
        raise ValueError("samples that are no numbers")
    held: bytes = (np.clip(samples, -1.0, 1.0) * np.float32(32767)).astype("<i2").tobytes()
    return held


def check_wave(data: bytes, called: str) -> None:
    """Refuses a WAV file that is shorter than it says, or has no sound; others are left alone.

    libsndfile reads what is there without a word, and a voice would be made of half a sentence.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        return
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        if name == b"data":
            there = len(data) - at - 8
            if there < size < _STREAMED:
                raise BadRequest(
                    f"{called} is cut off: it declares {size} bytes of sound and has {there}",
                    "recording",
                )
            return
        at += 8 + size + size % 2
    raise BadRequest(f"{called} is cut off: it is a WAV file without sound", "recording")
