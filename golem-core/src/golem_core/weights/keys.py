"""Reads typed values from a file's metadata, each refused by name when it is not what it must be.

A plugin's configuration is read through this, so that every message says key, value and file.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sized
from typing import TypeVar

from golem_core.errors import BadWeights, Unsupported
from golem_core.weights.mapping import bad
from golem_core.weights.stored import Weights

T = TypeVar("T", int, float, str, bool)


class Keys:
    """The metadata of one GGUF file below a prefix, which for a model is its architecture.

    Without a prefix it may also be a config.json, in which null is no value.

    ``Keys(weights, "llama").whole("block_count")`` is the value of ``llama.block_count``. Every
    reader takes a default for a key that may be absent; without one an absent key raises
    BadWeights. A value of the wrong kind or outside its range raises BadWeights; one that golem
    knows and does not run raises Unsupported, from `one_of` and `absent`.
    """

    def __init__(self, weights: Weights, prefix: str) -> None:
        if weights.container != "gguf" and prefix:
            raise Unsupported(
                f"{weights.path} is {weights.container}, whose keys are not those of GGUF; convert "
                f"it to GGUF"
            )
        self.weights = weights
        self.prefix = prefix

    def name(self, key: str) -> str:
        """The whole name of a key: the prefix, a dot, and the key."""
        return f"{self.prefix}.{key}" if self.prefix else key

    def has(self, key: str) -> bool:
        """Whether the file has the key."""
        return self.name(key) in self.metadata

    @property
    def metadata(self) -> Mapping[str, object]:
        """All metadata of the file."""
        return self.weights.metadata

    def bad(self, key: str, problem: str) -> BadWeights:
        """The error for a key whose value cannot be: key, value, `problem`, file."""
        name = self.name(key)
        return bad(f"{name} is {self.metadata.get(name)!r}, {problem} ({self.weights.path})")

    def whole(
        self, key: str, default: int | None = None, *, least: int = 1, most: int = 1 << 31
    ) -> int:
        """A whole number in [least, most]."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.bad(key, "which is not a whole number")
        if not least <= value <= most:
            raise self.bad(key, f"which is not in {least} to {most}")
        return value

    def real(self, key: str, default: float | None = None, *, above: float = -math.inf) -> float:
        """A finite number greater than `above`."""
        value = self._value(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise self.bad(key, "which is not a number")
        if not math.isfinite(value) or not value > above:
            raise self.bad(key, f"which is not a finite number above {above:g}")
        return float(value)

    def length(self, key: str) -> int:
        """How many elements an array has."""
        value = self._value(key, None)
        if isinstance(value, str) or not isinstance(value, Sized):
            raise self.bad(key, "which is not an array")
        return len(value)

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self.bad(key, "which is not a string")
        return value

    def truth(self, key: str, default: bool | None = None) -> bool:
        """True or False."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self.bad(key, "which is not a truth value")
        return value

    def one_of(self, key: str, accepted: Collection[T], default: T | None = None) -> T:
        """A value that is among those accepted; raises Unsupported, which lists them, if not."""
        value = self._value(key, default)
        for each in accepted:
            if type(value) is type(each) and value == each:
                return each
        listed = ", ".join(repr(each) for each in accepted)
        raise Unsupported(
            f"{self.name(key)} is {value!r}; golem runs {listed} ({self.weights.path})"
        )

    def absent(self, *keys: str) -> None:
        """Refuses, with Unsupported, keys that ask for what golem does not run.

        A key that is there with 0, 0.0, False or an empty string asks for nothing.
        """
        for key in keys:
            value = self.metadata.get(self.name(key))
            if isinstance(value, (int, float, str)) and not value:
                continue
            if value is not None:
                raise Unsupported(
                    f"{self.name(key)} is {value!r}, which golem does not run; it runs files "
                    f"without it ({self.weights.path})"
                )

    def _value(self, key: str, default: object) -> object:
        value = self.metadata.get(self.name(key))
        value = default if value is None else value
        if value is None:
            raise bad(f"{self.name(key)} is missing ({self.weights.path})")
        return value
