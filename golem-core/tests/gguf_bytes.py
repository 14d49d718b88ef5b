"""GGUF files for tests: byte by byte, as no honest writer writes them, and by the public writer."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core.errors import BadWeights
from golem_core.weights import open_weights


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key, kind, layout, *values):
    return text(key) + struct.pack("<I", kind) + struct.pack("<" + layout, *values)


def string_pair(key, value):
    return text(key) + struct.pack("<I", 8) + text(value)


def array_pair(key, kind, count, payload):
    return text(key) + struct.pack("<IIQ", 9, kind, count) + payload


def entry(name, dims, kind=0, offset=0, axes=None):
    axes = len(dims) if axes is None else axes
    sizes = struct.pack(f"<{len(dims)}Q", *dims)
    return text(name) + struct.pack("<I", axes) + sizes + struct.pack("<IQ", kind, offset)


def gguf_bytes(pairs=(), entries=(), data=b"", *, version=3, tensors=None, keys=None, align=32):
    tensors = len(entries) if tensors is None else tensors
    keys = len(pairs) if keys is None else keys
    head = b"GGUF" + struct.pack("<IQQ", version, tensors, keys)
    head += b"".join(pairs) + b"".join(entries)
    return head + b"\0" * (-len(head) % align) + data


def floats(count):
    return np.arange(count, dtype="<f4").tobytes()


def refused(path, *parts, error=BadWeights):
    """The message of the refusal, which must be quick, small, and name the file and `parts`."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(error) as caught:
            open_weights(path)
        taken, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    message = str(caught.value)
    for part in (Path(path).name, *parts):
        assert str(part) in message, message
    assert len(message) < 1500
    assert message.isprintable()
    assert taken < 0.5, f"{taken} s"  # 0.1 s on a quiet machine, without the tracing
    assert peak < 5_000_000, f"{peak} bytes"


def written(path, *, version=3, endian=gguf.GGUFEndian.LITTLE):
    """A file by the public writer with every kind of value; returns the tensors put in."""
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -3)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -300)
    writer.add_uint32("a.u32", 2**32 - 1)
    writer.add_int32("a.i32", -(2**31))
    writer.add_uint64("a.u64", 2**64 - 1)
    writer.add_int64("a.i64", -(2**63))
    writer.add_float32("a.f32", 1e-6)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "ü")
    writer.add_array("a.words", ["", "a", "日本", "x" * 300])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [0.5, 1.5])
    writer.add_array("a.bools", [True, False])
    rng = np.random.default_rng(0)
    tensors = {
        "vector": rng.normal(size=7).astype(np.float32),
        "matrix": rng.normal(size=(3, 64)).astype(np.float32),
        "cube": rng.normal(size=(2, 3, 32)).astype(np.float16),
    }
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    packed = gguf.quants.quantize(tensors["matrix"], gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("packed", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if version != 3:
        raw = bytearray(path.read_bytes())
        raw[4:8] = struct.pack("<I", version)
        path.write_bytes(raw)
    return tensors
