"""What a Vulkan device allows: asked of the Vulkan loader itself, since Kompute does not say.

Numbers and offsets are those of ``vulkan_core.h`` (VkPhysicalDeviceProperties,
VkPhysicalDeviceMemoryProperties), which Vulkan keeps fixed.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from golem_core.errors import DeviceError

LOADER = "libvulkan.so.1"
INSTALL = "run bin/install-vulkan in golem's sources (Debian: apt-get install libvulkan1)"

_INSTANCE_CREATE_INFO = 1  # VkStructureType
_KIND = 16  # offsets in VkPhysicalDeviceProperties: the last of five numbers,
_NAME = 20  # the name,
_LIMITS = 296  # and after a UUID the limits
_HEAPS = 260  # in VkPhysicalDeviceMemoryProperties, after 32 memory types
_DEVICE_LOCAL = 1  # VkMemoryHeapFlagBits

# VkPhysicalDeviceType by its number, and in which order one is chosen where nobody says.
KINDS = ("other", "integrated", "discrete", "virtual", "processor")
ORDER = ("discrete", "integrated", "virtual", "other", "processor")


@dataclass(frozen=True)
class Limits:
    """One device. Sizes in bytes."""

    name: str
    kind: str  # of KINDS
    storage_range: int  # the largest buffer that a shader can be given
    push_constants: int
    allocations: int  # buffers that may exist at once: Kompute gives each its own memory
    memory: int  # the largest heap of the device's own


@cache
def devices() -> tuple[Limits, ...]:
    """Every device that the loader finds, in its order, which is Kompute's too.

    Asked once. The instance that answers is kept until the process ends, and the driver with it:
    NVIDIA's refused to start after being loaded and unloaded some thirty times (580.159).
    Raises `DeviceError` when there is no loader or no driver.
    """
    try:
        loader = ctypes.CDLL(LOADER)
    except OSError as error:
        raise DeviceError(f"Vulkan's loader is not installed ({error}); {INSTALL}") from None
    instance = ctypes.c_void_p()
    info = struct.pack("@iPIPIPIP", _INSTANCE_CREATE_INFO, 0, 0, 0, 0, 0, 0, 0)
    result = loader.vkCreateInstance(info, None, ctypes.byref(instance))
    if result != 0:
        raise DeviceError(
            f"Vulkan cannot start (vkCreateInstance gave {result}), so no driver is installed; "
            "install your card's, or mesa-vulkan-drivers to run on the processor"
        )
    count = ctypes.c_uint32()
    loader.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    handles = (ctypes.c_void_p * count.value)()
    loader.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), handles)
    return tuple(_limits(loader, ctypes.c_void_p(handle)) for handle in handles[: count.value])


def usual(found: Sequence[Limits]) -> int:
    """The device that is taken where none is named: a card before what runs on the processor.

    Raises `DeviceError` where there is none.
    """
    if not found:
        raise DeviceError("there is no Vulkan device; install your card's driver")
    return min(range(len(found)), key=lambda i: ORDER.index(found[i].kind))


def _limits(loader: ctypes.CDLL, device: ctypes.c_void_p) -> Limits:
    properties = ctypes.create_string_buffer(1024)  # the structure has 824 bytes
    loader.vkGetPhysicalDeviceProperties(device, properties)
    (kind,) = struct.unpack_from("@I", properties, _KIND)
    storage_range, push, allocations = struct.unpack_from("@3I", properties, _LIMITS + 28)
    memory = ctypes.create_string_buffer(1024)  # 520 bytes
    loader.vkGetPhysicalDeviceMemoryProperties(device, memory)
    (heaps,) = struct.unpack_from("@I", memory, _HEAPS)
    sizes = [struct.unpack_from("@QI", memory, _HEAPS + 4 + 16 * i) for i in range(heaps)]
    return Limits(
        name=properties.raw[_NAME : _NAME + 256].split(b"\0")[0].decode(errors="replace"),
        kind=KINDS[kind] if kind < len(KINDS) else "other",
        storage_range=storage_range,
        push_constants=push,
        allocations=allocations,
        memory=max((size for size, flags in sizes if flags & _DEVICE_LOCAL), default=0),
    )
