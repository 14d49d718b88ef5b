"""Buffers on a Vulkan device, the weights in them, and the shaders that run over them.

Three kinds of Kompute tensor are used. *host*: the processor writes it in place and shaders read
it; for the few numbers of a pass. *device*: the device's own, with a copy in host memory that
`OpTensorSyncLocal` fills; for activations. *storage*: the device's own alone; for weights, keys and
values, so that a model is not held twice. A storage buffer can only be written by a shader, which
is how weights are uploaded: piece by piece through one host buffer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import numpy as np

from golem_core.errors import DeviceError, NoMemory
from golem_core.vulkan.limits import Limits, devices, usual
from golem_core.weights import Stored

# The formats that shaders/weight.glsl decodes, by its number for them, and the multiple that a
# row's length must be of.
FORMATS = {"F32": (0, 2), "F16": (1, 2), "BF16": (2, 2), "Q8_0": (3, 32), "Q4_0": (4, 32)}

CHUNK = 16 << 20  # bytes uploaded at a time
GROUPS = 32768  # workgroups in the first dimension; Vulkan promises 65,535


def grid(groups: int) -> tuple[int, int, int]:
    """`groups` workgroups, or a few more, in two dimensions."""
    x = max(1, min(groups, GROUPS))
    return x, -(-groups // x) or 1, 1


def words(*values: float) -> np.ndarray:
    """Push constants: integers as uint32, floats as the bits of a float32."""
    return np.array(
        [np.float32(v).view(np.uint32) if isinstance(v, float) else v for v in values], np.uint32
    )


@cache
def shader(name: str) -> bytes:
    """The SPIR-V of shaders/`name`.comp."""
    return (files("golem_core.vulkan") / "shaders" / f"{name}.spv").read_bytes()


@dataclass(frozen=True)
class Piece:
    """Rows `first` to `first + count` of a matrix, in a buffer of their own."""

    first: int
    count: int
    buffer: Any


class Device:
    """A Vulkan device opened through Kompute. `close` frees every buffer made with it."""

    def __init__(self, number: int | None) -> None:
        """Opens device `number` in the loader's order; None is the usual one.

        Raises `DeviceError` when Kompute, Vulkan's loader or that device is absent.
        """
        self.kp = _kompute()
        found = devices()
        if number is None:
            number = usual(found)
        if number >= len(found):
            names = ", ".join(f"{i}: {d.name}" for i, d in enumerate(found)) or "none"
            raise DeviceError(f"there is no Vulkan device {number}; found {names}")
        self.limits: Limits = found[number]
        self.manager = self.kp.Manager(number)
        self._stage: Any = None

    def close(self) -> None:
        """Frees every buffer, shader and sequence."""
        self._stage = None
        self.manager.destroy()

    def host(self, count: int, dtype: type = np.uint32) -> Any:
        """A buffer of `count` words that the processor writes in place, zero at first."""
        return self.manager.tensor_t(np.zeros(max(count, 1), dtype), self.kp.TensorTypes.host)

    def activations(self, count: int) -> Any:
        """A buffer of `count` float32 with a copy that the processor can read."""
        empty = np.empty(max(count, 1), np.float32)
        return self.manager.tensor_t(empty, self.kp.TensorTypes.device)

    def storage(self, nbytes: int) -> Any:
        """A buffer of at least `nbytes` that only shaders reach."""
        empty = np.empty(max(-(-nbytes // 4), 1), np.uint32)  # its pages are never touched
        return self.manager.tensor_t(empty, self.kp.TensorTypes.storage)

    def algorithm(
        self,
        name: str,
        buffers: Sequence[Any],
        groups: int,
        push: np.ndarray,
        constants: Sequence[int] = (),
    ) -> Any:
        """shaders/`name`.comp over `buffers` (bindings 0, 1, ..), `groups` workgroups of it."""
        return self.manager.algorithm(
            list(buffers), shader(name), grid(groups), np.array(constants, np.uint32), push
        )

    def rows(self, stored: Stored) -> list[Piece]:
        """A matrix as its file holds it, in as many buffers as the device's limit asks for."""
        row_bytes = stored.data.nbytes // stored.shape[0]
        most = self.limits.storage_range // row_bytes
        pieces = []
        for first in range(0, stored.shape[0], most):
            count = min(most, stored.shape[0] - first)
            data = stored.data[first * row_bytes : (first + count) * row_bytes]
            pieces.append(Piece(first, count, self.upload(data)))
        return pieces

    def upload(self, data: np.ndarray) -> Any:
        """A storage buffer with the bytes of `data`."""
        source = data.reshape(-1).view(np.uint8)
        target = self.storage(source.nbytes)
        if self._stage is None:
            self._stage = self.host(CHUNK // 4)
        stage = self._stage.data().view(np.uint8)
        whole = words(0, CHUNK // 4)
        copy = self.algorithm("upload", [self._stage, target], CHUNK // 4 // 64, whole)
        for offset in range(0, source.nbytes, CHUNK):
            part = source[offset : offset + CHUNK]
            stage[: part.nbytes] = part
            # A sequence of its own: Kompute's cannot be recorded a second time.
            sequence = self.manager.sequence()
            push = words(offset // 4, -(-part.nbytes // 4))
            sequence.record(self.kp.OpAlgoDispatch(copy, push))
            sequence.eval()
            sequence.destroy()
        copy.destroy()
        return target

    def uploaded(self) -> None:
        """Frees the buffer that weights went through."""
        if self._stage is not None:
            self._stage.destroy()
            self._stage = None

    def need(self, nbytes: int, buffers: int, largest: int, what: str) -> None:
        """Refuses what the device cannot hold, before any of it is made.

        nbytes   of everything; `buffers` of them
        largest  bytes of the largest buffer that cannot be split, and `what` it is
        Raises `NoMemory`, with both numbers.
        """
        name = self.limits.name
        if largest > self.limits.storage_range:
            raise NoMemory(
                f"{what} needs a buffer of {_mib(largest)} on {name}, which allows "
                f"{_mib(self.limits.storage_range)}; give it fewer pages"
            )
        if nbytes > self.limits.memory:
            raise NoMemory(
                f"the model and its pages need {_mib(nbytes)} on {name}, which has "
                f"{_mib(self.limits.memory)}; give it fewer pages or take a smaller model"
            )
        if buffers > self.limits.allocations:
            raise NoMemory(
                f"the model needs {buffers} buffers on {name}, which allows "
                f"{self.limits.allocations}; it has too many layers for this device"
            )


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB"


def _kompute() -> Any:
    """The module `kp`, without the handler that its import puts on the root logger."""
    root = logging.getLogger()
    before = list(root.handlers)
    try:
        kp = import_module("kp")
    except ImportError as error:
        raise DeviceError(
            f"the device vulkan needs Kompute (kp 0.9.0), which cannot be imported ({error}); "
            "run bin/install-vulkan in golem's sources"
        ) from None
    for handler in list(root.handlers):
        if handler not in before:
            root.removeHandler(handler)
    return kp
