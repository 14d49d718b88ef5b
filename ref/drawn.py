"""What a tiny model is, and how its numbers are drawn.

Each family that differs from the plain decoder in more than a tensor has a file of its own beside
`ref.tiny`, with a `Tiny` of its own; all draw by what stands here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from ref.quantise import Floats


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3's rope scaling: long wavelengths slowed by `factor`, the middle blended."""

    factor: float
    low: float
    high: float
    original: int


@dataclass(frozen=True)
class Yarn:
    """YaRN: slow turns slowed by `factor`, those fast within `original` positions left alone."""

    factor: float
    original: int


@dataclass(frozen=True)
class Tiny:
    """The geometry of one tiny model; `family` is its general.architecture."""

    name: str
    family: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    layers: int
    vocab: int
    tied: bool
    seed: int
    eps: float = 1e-6
    theta: float = 10000.0
    context: int = 2048
    window: int | None = None
    local_theta: float | None = None  # of the window's layers; None: not in the file, so 10000
    scaling: Llama3Scaling | Yarn | float | None = None

    @property
    def blocks(self) -> int:
        """What the file counts as blocks."""
        return self.layers

    def is_global(self, layer: int) -> bool:
        """Whether a layer sees everything: all but Gemma's five of six."""
        return self.window is None or (layer + 1) % 6 == 0


def normal(shape: tuple[int, ...], seed: int, name: str) -> Floats:
    """Bell-shaped numbers of variance 1 that are the same on every machine and numpy.

    Each is the sum of the four 16-bit words of one draw of PCG64, whose stream numpy promises to
    keep; `Generator.standard_normal` carries no such promise.
    """
    draws = np.random.PCG64([seed, zlib.crc32(name.encode())]).random_raw(int(np.prod(shape)))
    words = draws.astype("<u8").view("<u2").reshape(-1, 4).astype(np.int64)
    spread = 65536.0 / np.sqrt(12.0) * 2.0
    drawn: Floats = ((words.sum(axis=1) - 2 * 65535) / spread).astype(np.float32)
    return drawn.reshape(shape)


def matrix(tiny: Tiny, name: str, rows: int, columns: int, gain: float = 1.0) -> tuple[str, Floats]:
    """The name and a matrix [rows(out), columns(in)] that keeps a variance of 1 but for `gain`."""
    scale = np.float32(gain / np.sqrt(columns))
    return name, normal((rows, columns), tiny.seed, name) * scale


def experts(
    tiny: Tiny, name: str, count: int, rows: int, columns: int, gain: float = 1.0
) -> tuple[str, Floats]:
    """The name and a matrix for each expert, [experts, rows(out), columns(in)]."""
    scale = np.float32(gain / np.sqrt(columns))
    return name, normal((count, rows, columns), tiny.seed, name) * scale


def vector(tiny: Tiny, name: str, size: int, base: float = 1.0) -> tuple[str, Floats]:
    """The name and a vector around `base`.

    Its parts are multiples of 1/1024, so that the 1 + w of some families is exact in transformers.
    """
    drawn = np.rint(normal((size,), tiny.seed, name) * 150) / 1024
    return name, (base + drawn).astype(np.float32)
