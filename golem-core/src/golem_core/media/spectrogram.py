"""A picture of sound: time to the right, frequency upwards, brighter where it is louder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadRequest, Unsupported

__all__ = ["Spectrogram"]

Samples = npt.NDArray[np.float32]

WINDOW, HOP = 1024, 256  # samples
RANGE = 80.0  # decibels from black to white
HEIGHT = 384  # of the picture of the sound, in pixels
WIDEST = 1600  # columns; a longer sound has several spectra in each, the loudest counts
MARGIN = (52, 10, 12, 26)  # left, top, right, bottom: for the numbers
# Black over violet and orange to a pale yellow, evenly brighter.
_COLOURS = (
    (0, 0, 4),
    (61, 15, 110),
    (148, 38, 103),
    (224, 81, 64),
    (252, 165, 10),
    (252, 255, 200),
)


class Spectrogram:
    """Takes sound as it comes and keeps its spectra, a hundred a second or so."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._rest = np.zeros(WINDOW - HOP, np.float32)  # so that the first sample has a spectrum
        self._columns: list[npt.NDArray[np.float32]] = []
        self._count = 0

    @property
    def seconds(self) -> float:
        """Of sound that it was given."""
        return self._count / self.rate

    def add(self, samples: Samples) -> None:
        """Takes the next samples: float32 [samples]."""
        self._count += len(samples)
        sound = np.concatenate([self._rest, samples])
        spectra = 1 + (len(sound) - WINDOW) // HOP if len(sound) >= WINDOW else 0
        if spectra:
            windows = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[: spectra * HOP : HOP]
            found = np.abs(np.fft.rfft(windows * np.hanning(WINDOW).astype(np.float32), axis=1))
            self._columns.append(found.astype(np.float32))
        self._rest = sound[spectra * HOP :]

    def levels(self) -> npt.NDArray[np.float32]:
        """Decibels below the loudest, 0 to -`RANGE`: float32 [spectra, WINDOW / 2 + 1]."""
        if not self._columns:
            raise BadRequest("there is too little sound for a picture")
        powers = np.concatenate(self._columns)
        loudest = float(powers.max())
        if not loudest:
            return np.full(powers.shape, -RANGE, np.float32)
        found: npt.NDArray[np.float32] = 20 * np.log10(np.maximum(powers / loudest, 1e-9))
        np.maximum(found, np.float32(-RANGE), out=found)
        return found

    def save(self, path: Path, title: str = "") -> None:
        """Writes a PNG. Raises `Unsupported` where pillow is not installed."""
        try:
            from PIL import Image, ImageDraw
        except ImportError as error:
            raise Unsupported(f"a picture needs pillow: pip install pillow ({error})") from None
        sound = Image.fromarray(_coloured(_narrowed(self.levels()).T[::-1]), "RGB")
        width = max(sound.width, 320)
        sound = sound.resize((width, HEIGHT), Image.Resampling.BILINEAR)
        left, top, right, bottom = MARGIN
        top += 16 if title else 0
        whole = Image.new("RGB", (left + width + right, top + HEIGHT + bottom), (255, 255, 255))
        whole.paste(sound, (left, top))
        draw = ImageDraw.Draw(whole)
        if title:
            draw.text((left, 6), title, (40, 40, 40))
        self._scales(draw, left, top, width)
        # Few colours, since noise does not compress.
        whole.quantize(32, dither=Image.Dither.NONE).save(path, "PNG", optimize=True)

    def _scales(self, draw: Any, left: int, top: int, width: int) -> None:
        grey = (90, 90, 90)
        top_hertz = self.rate / 2
        for kilohertz in range(0, int(top_hertz / 1000) + 1, 2 if top_hertz < 16000 else 4):
            y = top + HEIGHT * (1 - 1000 * kilohertz / top_hertz)
            draw.line((left - 4, y, left - 1, y), grey)
            draw.text((left - 8, y), f"{kilohertz} kHz", grey, anchor="rm")
        step = next(
            (s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60) if self.seconds / s <= 12), 120
        )
        for i in range(int(self.seconds / step) + 1):
            x = left + width * i * step / self.seconds
            draw.line((x, top + HEIGHT, x, top + HEIGHT + 4), grey)
            draw.text((x, top + HEIGHT + 6), f"{i * step:g} s", grey, anchor="ma")


def _narrowed(levels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """At most `WIDEST` spectra."""
    each = -(-len(levels) // WIDEST)
    starts = np.arange(0, len(levels), each)
    found: npt.NDArray[np.float32] = np.maximum.reduceat(levels, starts, axis=0)
    return found


def _coloured(levels: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Decibels as colours: uint8 [..., 3]."""
    at = (levels / RANGE + 1) * (len(_COLOURS) - 1)
    places = np.arange(len(_COLOURS))
    channels = [np.interp(at, places, [c[i] for c in _COLOURS]) for i in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)
