"""What a caller may ask of sampling, checked; and what a file recommends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from golem_core.errors import BadRequest, BadWeights

# The largest bias: it excludes (-) or compels (+) a token whatever its logit.
COMPELLING = 100.0

# Below this a temperature leaves nothing to chance between float32 logits that differ.
COLDEST = 1e-5


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the logits.

    The filters run in the order bias, penalties, `top_k`, `typical_p`, `top_p`, `min_p`, then the
    temperature: probabilities in a filter are those of what the filters before it left, before
    the temperature. That is the default order of llama.cpp.

    temperature        0 chooses the likeliest token, the lowest id where two are equal
    top_k              keep so many of the likeliest; 0: all
    top_p              keep the fewest of the likeliest that reach this probability; 1: all
    min_p              keep what has this fraction of the likeliest one's probability; 0: all
    typical_p          keep the most typical that exceed this probability (Meister et al., 2022)
    repeat_penalty     divides positive logits and multiplies negative ones of tokens in the window
    frequency_penalty  is taken off once for each time that a token stands in the window
    presence_penalty   is taken off where a token stands in the window
    penalty_window     the last tokens, prompt included, that penalties look at; -1: all; 0: none
    logit_bias         token id to what is added, -100 (never) to 100 (only this)
    seed               any 64-bit integer; None: a new one for each request

    Raises `BadRequest` naming the field.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = 64
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        self._number("temperature", 0.0, 100.0)
        self._whole("top_k", 0, 2**63 - 1)
        for name in ("top_p", "min_p", "typical_p"):
            self._number(name, 0.0, 1.0)
        self._number("repeat_penalty", 0.01, 100.0)
        self._number("frequency_penalty", -100.0, 100.0)
        self._number("presence_penalty", -100.0, 100.0)
        self._whole("penalty_window", -1, 2**63 - 1)
        if self.seed is not None:
            self._whole("seed", -(2**63), 2**64 - 1)
        for token, bias in self.logit_bias.items():
            if not _is_whole(token) or token < 0:
                raise BadRequest(
                    f"logit_bias has the key {token!r}, expected a token id", "logit_bias"
                )
            if not _is_number(bias) or not -COMPELLING <= bias <= COMPELLING:
                raise BadRequest(
                    f"logit_bias of token {token} is {bias!r}, expected -100 to 100", "logit_bias"
                )

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is left to chance: the likeliest token is chosen."""
        return self.temperature < COLDEST or self.top_k == 1 or self.top_p == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether any penalty changes a logit."""
        return self.penalty_window != 0 and (
            self.repeat_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )

    def check_vocabulary(self, size: int) -> None:
        """Raises `BadRequest` if a biased token is not one of `size`."""
        for token in self.logit_bias:
            if token >= size:
                raise BadRequest(
                    f"logit_bias names token {token}, and the vocabulary has {size}", "logit_bias"
                )

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], **given: Any) -> Sampling:
        """What the file recommends (``general.sampling.*``), under what the caller gave.

        A given value of None counts as not given. Recommendations of methods that golem does not
        have (XTC, Mirostat, an order of its own) are not followed. Raises `BadWeights` for a
        recommendation out of range, `BadRequest` for a given value that is.
        """
        recommended: dict[str, Any] = {}
        for key, name in RECOMMENDED.items():
            if f"general.sampling.{key}" in metadata:
                recommended[name] = metadata[f"general.sampling.{key}"]
        if _is_whole(recommended.get("top_k")):
            recommended["top_k"] = max(0, recommended["top_k"])  # below 0 is another word for all
        try:
            cls(**recommended)
        except BadRequest as error:
            raise BadWeights(f"general.sampling: {error}") from None
        known = {f.name for f in fields(cls)}
        for name in given:
            if name not in known:
                raise BadRequest(f"sampling has no field {name!r}", name)
        recommended.update((name, value) for name, value in given.items() if value is not None)
        return cls(**recommended)

    def _number(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if not _is_number(value) or not low <= value <= high:
            raise BadRequest(f"{name} is {value!r}, expected {low:g} to {high:g}", name)

    def _whole(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if not _is_whole(value) or not low <= value <= high:
            raise BadRequest(f"{name} is {value!r}, expected an integer from {low} to {high}", name)


# Keys below general.sampling, and the fields that they recommend.
RECOMMENDED = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_last_n": "penalty_window",
    "penalty_repeat": "repeat_penalty",
}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
