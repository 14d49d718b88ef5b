"""The safetensors reader: files, folders, indexes, and what it refuses."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save_file

from golem_core.errors import BadWeights, NotFound
from golem_core.weights import FORMATS, open_weights

SOME = {
    "b.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "a.weight": np.arange(6, dtype=np.float16).reshape(2, 3),
    "count": np.array(7, np.int64),
}


def raw_file(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(dtype="F32", shape=(2,), offsets=(0, 8), data=b"\0" * 8):
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    return raw_file({"t": entry}, data)


@pytest.fixture
def write(tmp_path):
    def save(raw, name="model.safetensors"):
        (tmp_path / name).write_bytes(raw)
        return tmp_path / name

    return save


def refused(path, *parts, error=BadWeights):
    with pytest.raises(error) as caught:
        open_weights(path)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


def test_reads_a_file_with_its_config(tmp_path):
    save_file(SOME, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 384}')
    for path in (tmp_path, tmp_path / "model.safetensors"):
        with open_weights(path) as weights:
            assert weights.path == path
            assert weights.container == "safetensors"
            assert weights.architecture == "bert"
            assert weights.metadata["hidden_size"] == 384
            assert set(weights.tensors) == set(SOME)
            for name, value in SOME.items():
                stored = weights.tensors[name]
                assert stored.shape == value.shape
                assert stored.data.tobytes() == value.tobytes()
            assert np.array_equal(weights.tensors["b.weight"].dequantize(), SOME["b.weight"])
            assert weights.tensors["a.weight"].format is FORMATS["F16"]
            assert weights.tensors["count"].format is FORMATS["I64"]


def test_reads_bf16(write):
    raw = np.array([0x3F80, 0xC000], "<u2").tobytes()
    stored = open_weights(write(one("BF16", (2,), (0, 4), raw))).tensors["t"]
    assert stored.dequantize().tolist() == [1.0, -2.0]


def test_a_lone_file_has_no_architecture(write):
    weights = open_weights(write(one()))
    with pytest.raises(BadWeights, match=r"model_type is missing.*config\.json beside it"):
        _ = weights.architecture


def sharded(folder):
    names = list(SOME)
    save_file({names[0]: SOME[names[0]]}, folder / "model-00001-of-00002.safetensors")
    save_file({n: SOME[n] for n in names[1:]}, folder / "model-00002-of-00002.safetensors")
    files = dict.fromkeys(names, "model-00002-of-00002.safetensors")
    files[names[0]] = "model-00001-of-00002.safetensors"
    return files


def put_index(folder, files):
    index = {"metadata": {"total_size": 1}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_reads_a_folder_of_shards(tmp_path):
    put_index(tmp_path, sharded(tmp_path))
    weights = open_weights(tmp_path)
    assert set(weights.tensors) == set(SOME)
    assert len(weights.files) == 2
    assert np.array_equal(weights.tensors["b.weight"].dequantize(), SOME["b.weight"])


def test_an_index_that_does_not_match_is_refused(tmp_path):
    files = sharded(tmp_path)
    put_index(tmp_path, {**files, "lost": "model-00001-of-00002.safetensors"})
    refused(tmp_path, "lost is in no file", "says it is in model-00001-of-00002")
    put_index(tmp_path, {**files, "b.weight": "model-00002-of-00002.safetensors"})
    refused(tmp_path, "b.weight is in no file")
    put_index(tmp_path, {**files, "lost": "model-00003-of-00002.safetensors"})
    refused(tmp_path, "no such file", "model-00003-of-00002.safetensors", error=NotFound)
    put_index(tmp_path, {n: f for n, f in files.items() if n != "count"})
    refused(tmp_path, "count is in", "does not put it there")
    for elsewhere in ("../other.safetensors", "/etc/passwd", "a/b", "", "..", 3):
        put_index(tmp_path, {**files, "b.weight": elsewhere})
        refused(tmp_path, f"puts b.weight in {elsewhere!r}, not in a file beside it")
    for index in ("{}", '{"weight_map": {}}', '{"weight_map": [1]}'):
        (tmp_path / "model.safetensors.index.json").write_text(index)
        refused(tmp_path, "weight_map is missing or empty")


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    files = sharded(tmp_path)
    save_file({"count": SOME["count"]}, tmp_path / "model-00001-of-00002.safetensors")
    put_index(tmp_path, {"count": files["b.weight"], "a.weight": files["a.weight"]})
    refused(tmp_path, "count is in two files")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (raw_file({}, length=2**39), "header says it has 549755813888 bytes, but 2 are left"),
        (raw_file(b"{" + b"[" * 100_000), "the JSON cannot be read"),
        (raw_file(b'{"a": ' + b"[" * 100_000), "the JSON cannot be read"),
        (raw_file(b'{"a": ' + b"9" * 10_000), "the JSON cannot be read"),
        (raw_file(b'{"t": 1, "t": 1}'), "t is there twice"),
        (raw_file(b'{"\xff": 1}'), "the JSON cannot be read"),
        (raw_file(b"{" + b" " * 10_000_001), "the header has 10000002 bytes, more than the"),
        (raw_file({"t": 3}), "the entry of t is not an object"),
        (one("Q4_0"), "t has dtype 'Q4_0', which is unknown"),
        (one(["F32"]), "t has dtype ['F32'], which is unknown"),
        (one(shape=(0,), offsets=(0, 0)), "t has shape [0], not a list of sizes"),
        (one(shape=(-2,)), "t has shape [-2], not a list of sizes"),
        (one(shape=(True, 2)), "t has shape [True, 2], not"),
        (one(shape=(1.0,)), "t has shape [1.0], not"),
        (one(shape=(1,) * 9), "not a list of sizes of 1 or more"),
        (one(shape="2"), "t has shape '2', not"),
        (one(offsets=(8, 0)), "t needs 8 bytes, but its data_offsets 8 to 0 hold -8"),
        (one(offsets=(0, 4)), "t needs 8 bytes, but its data_offsets 0 to 4 hold 4"),
        (one(offsets=(2**62, 2**62 + 8)), "t needs 8 bytes at offset 4611686018427387904"),
        (one(offsets=(2**64, 2**64 + 8)), "t has data_offsets [18446744073709551616"),
        (one(shape=(2**32, 2**32), offsets=(0, 8)), "t needs 73786976294838206464 bytes"),
        (one(data=b"\0" * 7), "a download cut short"),
        (one(offsets=None), "t has data_offsets None, not a start and an end"),
    ],
)
def test_refuses(write, raw, message):
    refused(write(raw), message, "model.safetensors")


def test_overlapping_tensors_are_refused(write):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    other = {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}
    refused(write(raw_file({"a": entry, "b": other}, b"\0" * 8)), "b overlaps the tensor before it")


def test_every_cut_is_refused(tmp_path):
    save_file(SOME, tmp_path / "whole")
    raw = (tmp_path / "whole").read_bytes()
    for length in range(len(raw)):
        (tmp_path / "cut.safetensors").write_bytes(raw[:length])
        refused(tmp_path / "cut.safetensors", "cut.safetensors")


def test_config_is_checked(tmp_path):
    save_file(SOME, tmp_path / "model.safetensors")
    for text, message in (
        ("[1]", "the JSON is list, not an object"),
        ("{", "the JSON cannot be read"),
        ('{"a": 1, "a": 2}', "a is there twice"),
        ("{" + " " * 10_000_001, "more than the 10000000 read"),
    ):
        (tmp_path / "config.json").write_text(text)
        refused(tmp_path, message, "config.json")


def test_folders_without_a_model(tmp_path):
    refused(tmp_path, "holds no model", error=NotFound)
    (tmp_path / "m.gguf").touch()
    refused(tmp_path, "name one of its files: m.gguf", error=NotFound)
