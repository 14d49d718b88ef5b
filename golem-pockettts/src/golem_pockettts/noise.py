"""Seeded noise that equals PyTorch's on a processor, number for number.

Speech is made from normal numbers, so the same seed is the same speech only where the same numbers
are drawn. PyTorch's generator is mt19937. A draw of 16 numbers or more takes one 24-bit uniform
number for each, then turns them into normal ones in blocks of 16 (Box and Muller): the first eight
of a block become radii, the second eight angles. A shorter draw goes number by number in double
precision, and keeps the second number of each pair for the next.

PyTorch computes logarithm and cosine by vector approximations, so single numbers differ from these
by up to 2.4e-7 (measured over 20,000).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from golem_core.errors import BadRequest

__all__ = ["Noise"]

Numbers = npt.NDArray[np.float32]

_ONE = np.float32(1)
_BLOCK = 16
# The share of the normal distribution that must lie within the bounds for drawing again to be the
# way; with less, uniform numbers are drawn and kept with the probability that the density gives.
_ENOUGH = 0.3


class Noise:
    """Numbers of one seed, in the order in which they are asked for.

    Any whole number is a seed; the generator knows its lowest 32 bits.
    """

    def __init__(self, seed: int) -> None:
        self._words = np.random.RandomState(seed & 0xFFFFFFFF)
        self._kept: float | None = None

    def draw(self, width: int, std: float, clamp: float | None = None) -> Numbers:
        """Normal numbers: float32 [width] of mean 0, within ±`clamp` if it is given.

        A standard deviation of 0 gives zeros and takes as many words as any other, but for a
        `clamp`, which then has nothing to do. Raises `BadRequest` for a clamp that is not positive.
        """
        if clamp is None or std == 0:
            return self._normal(width, std)
        if not clamp > 0:
            raise BadRequest(f"noise_clamp is {clamp:g}, expected a number above 0", "noise_clamp")
        within = math.erf(clamp / std / math.sqrt(2.0))
        return (self._again if within > _ENOUGH else self._thinned)(width, std, clamp)

    def _again(self, width: int, std: float, clamp: float) -> Numbers:
        """Draws the whole row anew until each place has had a number within the bounds."""
        bound = np.float32(clamp)
        found = self._normal(width, std)
        while (beyond := np.abs(found) > bound).any():
            found = np.where(beyond, self._normal(width, std), found)
        return found

    def _thinned(self, width: int, std: float, clamp: float) -> Numbers:
        """Uniform numbers, each kept with the probability of its density over the greatest."""
        found = np.zeros(width, np.float32)
        pending = np.ones(width, bool)
        while pending.any():
            tried = self._uniform(width) * np.float32(2 * clamp) - np.float32(clamp)
            found = np.where(pending, tried, found)
            density = (tried / np.float32(std)) ** 2 * np.float32(-0.5)
            with np.errstate(divide="ignore"):
                pending &= np.log(self._uniform(width)) > density
        return found

    def _normal(self, width: int, std: float) -> Numbers:
        if width < _BLOCK:
            return np.array([self._single() * std for _ in range(width)], np.float32)
        found = self._uniform(width)
        for start in range(0, width - _BLOCK + 1, _BLOCK):
            found[start : start + _BLOCK] = _blocked(found[start : start + _BLOCK], std)
        if width % _BLOCK:  # the last 16 are drawn anew, some of them for the second time
            found[-_BLOCK:] = _blocked(self._uniform(_BLOCK), std)
        return found

    def _single(self) -> float:
        if self._kept is not None:
            found, self._kept = self._kept, None
            return found
        angle, radius = 2 * math.pi * self._double(), self._double()
        radius = math.sqrt(-2 * math.log1p(-radius))
        self._kept = radius * math.sin(angle)
        return radius * math.cos(angle)

    def _uniform(self, width: int) -> Numbers:
        """Of [0, 1): the lowest 24 bits of a word each."""
        words = self._raw(width) & np.uint32(0xFFFFFF)
        found: Numbers = words.astype(np.float32) * np.float32(2.0**-24)
        return found

    def _double(self) -> float:
        """Of [0, 1): the lowest 53 bits of two words, the higher one first."""
        high, low = (int(word) for word in self._raw(2))
        return float(((high << 32) | low) & ((1 << 53) - 1)) * 2.0**-53

    def _raw(self, count: int) -> npt.NDArray[np.uint32]:
        words: npt.NDArray[np.uint32] = self._words.randint(0, 1 << 32, size=count, dtype=np.uint32)
        return words


def _blocked(uniform: Numbers, std: float) -> Numbers:
    """16 uniform numbers as 16 normal ones."""
    half = _BLOCK // 2
    radius = np.sqrt(np.float32(-2) * np.log(_ONE - uniform[:half]))
    angle = np.float32(2 * math.pi) * uniform[half:]
    scale = np.float32(std)
    found: Numbers = np.concatenate(
        [radius * np.cos(angle) * scale, radius * np.sin(angle) * scale]
    )
    return found
