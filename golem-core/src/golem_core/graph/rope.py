"""Rotary positions: how far each pair of a head turns, and the stretches that files ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from golem_core.weights import Keys

if TYPE_CHECKING:
    from golem_core.graph.record import Weight


@dataclass(frozen=True)
class Yarn:
    """YaRN (Peng et al., 2023): a stretched rope whose fast pairs keep their speed.

    Pairs that turn `fast` times or more within `original` positions keep it, those that turn `slow`
    times or less are stretched, and between the two lies a ramp. `mix` is how much of that is
    done: 1 all, 0 stretches every pair alike.
    """

    original: int
    fast: float = 32.0
    slow: float = 1.0
    mix: float = 1.0

    def kept(self, dims: int, base: float) -> np.ndarray:
        """How much of its own speed each pair keeps, 0 to 1: float64 [dims / 2]."""

        def pair_that_turns(times: float) -> float:
            return dims * math.log(self.original / (times * 2 * math.pi)) / (2 * math.log(base))

        low = max(np.floor(pair_that_turns(self.fast)), 0.0)
        high = min(np.ceil(pair_that_turns(self.slow)), dims - 1.0)
        # A ramp of no length would divide by zero; both references take this one.
        ramp = (np.arange(dims // 2, dtype=np.float64) - low) / max(high - low, 0.001)
        kept: np.ndarray = self.mix * (1 - np.clip(ramp, 0, 1))
        return kept


@dataclass(frozen=True, eq=False)
class Rope:
    """A rotary embedding (Su et al., 2021): the first `dims` of a head turn in pairs.

    `layout` says which two make a pair: ``"half"`` (i, i + dims/2) or ``"pairs"`` (2i, 2i + 1).
    Position p turns pair i by ``p * scale * base ** (-2i / dims) / factors[i]``, with `yarn` by
    less of the scale; cos and sin are multiplied by `magnitude`.
    """

    dims: int
    base: float
    layout: str = "half"
    scale: float = 1.0
    factors: Weight | None = None
    magnitude: float = 1.0
    yarn: Yarn | None = None

    def frequencies(self) -> np.ndarray:
        """Radians a position for each pair: float64 [dims / 2]."""
        pair = np.arange(self.dims // 2, dtype=np.float64)
        own: np.ndarray = self.base ** (-2.0 * pair / self.dims)
        turns = self.scale * own
        if self.yarn is not None:
            kept = self.yarn.kept(self.dims, self.base)
            turns = turns * (1 - kept) + own * kept
        if self.factors is not None:
            turns = turns / self.factors.floats().astype(np.float64).reshape(-1)
        return turns


def stretched_rope(keys: Keys, dims: int, default_base: float = 10000.0) -> Rope:
    """The rope of `dims` that a file asks for by ``rope.freq_base`` and ``rope.scaling.*``.

    Types `none`, `linear` and `yarn`, in the layout ``"half"``. The magnitude of YaRN is what the
    file says or ``0.1 ln(factor) + 1``, as in transformers. Raises BadWeights and Unsupported by
    key.
    """
    keys.absent("rope.scaling.alpha")
    keys.one_of("rope.scale_linear", (1.0,), 1.0)  # the old name of the factor
    base = keys.real("rope.freq_base", default_base, above=0)
    kind = keys.one_of("rope.scaling.type", ("none", "linear", "yarn"), "linear")
    magnitude = keys.real("rope.scaling.attn_factor", 1.0, above=0)
    if kind == "yarn":
        factor = keys.real("rope.scaling.factor", above=0)
        if base <= 1:
            raise keys.bad("rope.freq_base", "with which no pair turns slower than another")
        context = keys.whole("context_length")
        mix = keys.real("rope.scaling.yarn_ext_factor", -1.0)
        yarn = Yarn(
            original=keys.whole("rope.scaling.original_context_length", context),
            fast=keys.real("rope.scaling.yarn_beta_fast", 32.0, above=0),
            slow=keys.real("rope.scaling.yarn_beta_slow", 1.0, above=0),
            mix=1.0 if mix < 0 else mix,  # below zero: as if it were not there
        )
        magnitude *= _magnitude(keys, factor, yarn)
        return Rope(dims, base, "half", 1 / factor, magnitude=magnitude, yarn=yarn)
    factor = keys.real("rope.scaling.factor", 0.0, above=-1e-9)
    scale = 1.0 if kind == "none" or factor == 0.0 else 1.0 / factor
    return Rope(dims, base, "half", scale, magnitude=magnitude)


def _magnitude(keys: Keys, factor: float, yarn: Yarn) -> float:
    """What YaRN multiplies cos and sin by: it sharpens an attention over more positions."""
    said = keys.real("rope.scaling.yarn_attn_factor", 0.0, above=-1e-9)
    if said or not yarn.mix:
        return said or 1.0
    multiplier = keys.real("rope.scaling.yarn_log_multiplier", 0.0, above=-1e-9)
    length = math.log(factor) if factor > 1 else 0.0
    whole = 0.1 * length + 1
    return whole / (0.1 * multiplier * length + 1) if multiplier else whole
