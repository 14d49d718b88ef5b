"""Whatever bytes a file of weights has, it opens or is refused: no crash, no hang, no surprise."""

from __future__ import annotations

import json
import struct
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from golem_core.errors import GolemError
from golem_core.weights import StringArray, open_weights

# About ten seconds in all on two cores.
BOUNDED = settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def honest_gguf(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_bool("flag", True)
    writer.add_array("words", ["", "a", "bc", "日本"])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_tensor("matrix", np.ones((4, 64), np.float32))
    packed = gguf.quants.quantize(np.ones((2, 32), np.float32), gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("packed", packed, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "m.gguf"
    honest_gguf(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def survive(folder, raw, name="fuzz.gguf"):
    """Opens the bytes and reads all that they offer, or takes the refusal."""
    path = folder / name
    path.write_bytes(raw)
    start = time.perf_counter()
    try:
        with open_weights(path) as weights:
            for value in weights.metadata.values():
                if isinstance(value, StringArray):
                    value.decode_all()
            for tensor in weights.tensors.values():
                assert len(tensor.data) == tensor.nbytes
                tensor.dequantize()
            _ = weights.architecture
    except GolemError as refusal:
        message = str(refusal)
    else:
        message = "opened"
    assert message
    assert message.isprintable()
    assert time.perf_counter() - start < 2


# Numbers that have hurt readers: the edges of every width, and small lies.
WIDTHS = (5, 8, 15, 16, 31, 32, 40, 60, 61, 63, 64)
EDGES = st.integers(0, 9) | st.sampled_from([2**w + d for w in WIDTHS for d in (-32, -1, 0)])
WHERE = st.floats(0, 1, exclude_max=True)


@BOUNDED
@given(st.lists(st.tuples(WHERE, st.integers(0, 255)), min_size=1, max_size=6))
def test_bytes_changed(honest, folder, changes):
    raw = bytearray(honest)
    for where, value in changes:
        raw[int(where * len(raw))] = value
    survive(folder, bytes(raw))


@BOUNDED
@given(st.lists(st.tuples(WHERE, EDGES, st.sampled_from("IQ")), min_size=1, max_size=3))
def test_numbers_changed(honest, folder, changes):
    raw = bytearray(honest)
    for where, value, letter in changes:
        word = struct.pack("<Q", value % 2**64)[: struct.calcsize(letter)]
        at = int(where * (len(raw) - len(word)))
        raw[at : at + len(word)] = word
    survive(folder, bytes(raw))


@BOUNDED
@given(WHERE, WHERE, st.binary(max_size=64))
def test_pieces_cut_and_put_in(honest, folder, first, second, piece):
    start, end = sorted((int(first * len(honest)), int(second * len(honest))))
    survive(folder, honest[:start] + piece + honest[end:])
    survive(folder, honest[:end])


@BOUNDED
@given(st.binary(max_size=400))
@example(b"")
@example(b"GGUF")
@example(b"GGUF\x03\0\0\0" + b"\xff" * 64)
def test_any_bytes(folder, raw):
    survive(folder, raw)
    survive(folder, b"GGUF\x03\0\0\0" + raw)
    survive(folder, struct.pack("<QQ", 1, 1).join([b"GGUF\x03\0\0\0", raw]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16", "I64", "Q4_0", "F9"]) | JSON,
        "shape": st.lists(st.integers(-1, 2**64), max_size=5) | JSON,
        "data_offsets": st.lists(st.integers(-1, 2**65) | st.integers(0, 64), max_size=3) | JSON,
    }
)


@BOUNDED
@given(st.dictionaries(st.text(max_size=8), ENTRY | JSON, max_size=4), st.binary(max_size=64))
def test_any_safetensors_header(folder, header, data):
    text = json.dumps(header).encode()
    survive(folder, struct.pack("<Q", len(text)) + text + data, "fuzz.safetensors")


@BOUNDED
@given(st.binary(max_size=64), st.integers(0, 2**64 - 1) | st.integers(0, 80))
def test_any_safetensors_bytes(folder, raw, length):
    survive(folder, struct.pack("<Q", length) + b"{" + raw, "fuzz.safetensors")
