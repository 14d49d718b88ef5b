"""What a GGUF file holds is read: values, tensors and typed keys, as the public reader has them."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core.errors import BadWeights, Unsupported
from golem_core.weights import FORMATS, Keys, StringArray, open_weights

from .gguf_bytes import (
    array_pair,
    entry,
    floats,
    gguf_bytes,
    pair,
    string_pair,
    text,
    written,
)


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_kind_of_value(tmp_path, version):
    path = tmp_path / "all.gguf"
    written(path, version=version)
    with open_weights(path) as weights:
        assert weights.path == path
        assert weights.container == "gguf"
        assert weights.architecture == "llama"
        found = dict(weights.metadata)
        assert found["a.f32"] == np.float32(1e-6)
        for key, value in {
            "a.u8": 200, "a.i8": -3, "a.u16": 60000, "a.i16": -300, "a.u32": 2**32 - 1,
            "a.i32": -(2**31), "a.u64": 2**64 - 1, "a.i64": -(2**63), "a.f64": 0.1,
            "a.bool": True, "a.text": "ü",
        }.items():  # fmt: skip
            assert found[key] == value
            assert type(found[key]) is type(value)
        assert found["a.ints"].tolist() == [1, -2, 3]
        assert found["a.floats"].tolist() == [0.5, 1.5]
        assert found["a.bools"].tolist() == [True, False]
        assert found["a.bools"].dtype == np.bool_
        assert not found["a.ints"].flags.writeable


def test_strings_are_a_lazy_sequence(tmp_path):
    written(tmp_path / "all.gguf")
    words = open_weights(tmp_path / "all.gguf").metadata["a.words"]
    assert isinstance(words, StringArray)
    assert list(words) == words.decode_all() == ["", "a", "日本", "x" * 300]
    assert len(words) == 4
    assert words[2] == "日本" == words[-2]
    assert words.raw(2) == "日本".encode()
    assert words[1:3] == ["a", "日本"]
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            words[wrong]
    with pytest.raises(IndexError, match="has 4 strings, not one at 4"):
        words.raw(4)


def test_reads_tensors_in_numpy_order(tmp_path):
    tensors = written(tmp_path / "all.gguf")
    with open_weights(tmp_path / "all.gguf") as weights:
        assert list(weights.tensors) == [*tensors, "packed"]
        for name, value in tensors.items():
            stored = weights.tensors[name]
            assert stored.name == name
            assert stored.shape == value.shape
            assert stored.data.dtype == np.uint8
            assert stored.data.ndim == 1
            assert stored.nbytes == len(stored.data) == value.nbytes
            assert not stored.data.flags.writeable
            assert np.array_equal(stored.dequantize(), value.astype(np.float32))
            assert stored.checksum() == hashlib.sha256(value.tobytes()).hexdigest()[:32]
        packed = weights.tensors["packed"]
        assert packed.format is FORMATS["Q8_0"]
        assert packed.shape == (3, 64)
        assert np.abs(packed.dequantize() - tensors["matrix"]).max() < 0.02
        assert weights.nbytes == sum(t.nbytes for t in weights.tensors.values())


def test_dequantises_rows_alone(tmp_path):
    written(tmp_path / "all.gguf")
    weights = open_weights(tmp_path / "all.gguf")
    for name in ("packed", "cube", "matrix"):
        stored = weights.tensors[name]
        whole = stored.dequantize()
        for rows in (slice(1, 3), slice(0, 0), slice(2, 1), slice(None), slice(-1, None)):
            assert np.array_equal(stored.dequantize(rows), whole[rows])
    with pytest.raises(ValueError, match="vector has one axis and no rows"):
        weights.tensors["vector"].dequantize(slice(0, 1))
    with pytest.raises(ValueError, match="rows of matrix are read in order, not with step 2"):
        weights.tensors["matrix"].dequantize(slice(0, 3, 2))


def test_pages_dropped_are_read_again(tmp_path, write):
    path = write(gguf_bytes(entries=[entry("t", [4096, 8])], data=floats(4096 * 8)))
    stored = open_weights(path).tensors["t"]
    before = stored.checksum()
    stored.drop_pages()
    assert stored.checksum() == before


def test_closed_weights_say_so(tmp_path):
    written(tmp_path / "all.gguf")
    with open_weights(tmp_path / "all.gguf") as weights:
        kept = weights.tensors["matrix"].data[:4].copy()
        view = weights.tensors["matrix"].data
    with pytest.raises(ValueError, match=r"all\.gguf was closed; matrix can no longer be read"):
        weights.tensors["matrix"].dequantize()
    assert np.array_equal(view[:4], kept)  # a view keeps its mapping


def test_a_vocabulary_without_tensors_is_read(write):
    path = write(gguf_bytes([string_pair("general.architecture", "llama")], align=1))
    assert open_weights(path).tensors == {}


def test_no_architecture_is_an_error_when_it_is_asked_for(write):
    weights = open_weights(write(gguf_bytes(entries=[entry("t", [4])], data=floats(4))))
    with pytest.raises(BadWeights, match=r"general\.architecture is missing.*model\.gguf"):
        _ = weights.architecture


def test_alignment_of_the_file_is_kept(write):
    pairs = [pair("general.alignment", 4, "I", 256)]
    entries = [entry("a", [4]), entry("b", [4], offset=256)]
    raw = gguf_bytes(pairs, entries, floats(4).ljust(256, b"\0") + floats(4), align=256)
    weights = open_weights(write(raw))
    assert weights.tensors["b"].dequantize().tolist() == [0, 1, 2, 3]
    assert weights.tensors["b"].offset % 256 == 0


def test_types_that_are_only_listed_open_and_are_refused_when_used(write):
    raw = gguf_bytes(entries=[entry("ids", [4], kind=26)], data=b"\0" * 16)
    stored = open_weights(write(raw)).tensors["ids"]
    assert stored.format.name == "I32"
    with pytest.raises(Unsupported, match="format I32 cannot be computed with"):
        stored.dequantize()


def test_a_large_vocabulary_opens_quickly(write):
    words = b"".join(text(f"token{i}") for i in range(262_144))
    merges = b"".join(text(f"a{i} b{i}") for i in range(514_906))
    path = write(
        gguf_bytes(
            [array_pair("tokens", 8, 262_144, words), array_pair("merges", 8, 514_906, merges)]
        )
    )
    open_weights(path).close()
    start = time.perf_counter()
    weights = open_weights(path)
    taken = time.perf_counter() - start
    assert weights.metadata["merges"][514_905] == "a514905 b514905"
    assert taken < 0.25, taken  # 0.006 s on a quiet machine


# ---- typed keys


@pytest.fixture
def keys(tmp_path):
    written(tmp_path / "all.gguf")
    return Keys(open_weights(tmp_path / "all.gguf"), "a")


def test_keys_are_typed(keys):
    assert keys.whole("u8") == 200
    assert keys.whole("absent", 7) == 7
    assert keys.real("f64") == 0.1
    assert keys.real("u8") == 200.0
    assert keys.text("text") == "ü"
    assert keys.truth("bool") is True
    assert keys.one_of("u8", (100, 200)) == 200
    assert keys.one_of("absent", ("none", "linear"), "none") == "none"
    assert keys.has("u8")
    assert not keys.has("absent")
    keys.absent("nothing")


def test_keys_refuse_by_name(keys):
    for read, message in (
        (lambda: keys.whole("absent"), "a.absent is missing"),
        (lambda: keys.whole("f64"), "a.f64 is 0.1, which is not a whole number"),
        (lambda: keys.whole("bool"), "a.bool is True, which is not a whole number"),
        (lambda: keys.whole("u8", most=10), "a.u8 is 200, which is not in 1 to 10"),
        (lambda: keys.whole("i8"), "a.i8 is -3, which is not in 1 to"),
        (lambda: keys.real("text"), "a.text is 'ü', which is not a number"),
        (lambda: keys.real("i8", above=0), "a.i8 is -3, which is not a finite number above 0"),
        (lambda: keys.text("u8"), "a.u8 is 200, which is not a string"),
        (lambda: keys.truth("u8"), "a.u8 is 200, which is not a truth value"),
    ):
        with pytest.raises(BadWeights) as caught:
            read()
        assert message in str(caught.value)
        assert "all.gguf" in str(caught.value)
    with pytest.raises(Unsupported, match=r"a\.u8 is 200; golem runs 1, 2 .*all\.gguf"):
        keys.one_of("u8", (1, 2))
    with pytest.raises(Unsupported, match=r"a\.u8 is 200, which golem does not run"):
        keys.absent("nothing", "u8")


# ---- files as the world has them


FOLDER = os.environ.get("GOLEM_TEST_WEIGHTS")


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.skipif(not FOLDER, reason="GOLEM_TEST_WEIGHTS names no folder of GGUF files")
def test_real_files_read_as_gguf_py_reads_them():
    paths = sorted(Path(FOLDER).glob("*.gguf"))
    assert paths, f"{FOLDER} holds no .gguf file"
    for path in paths:
        theirs = gguf.GGUFReader(path)
        with open_weights(path) as ours:
            assert [t.name for t in theirs.tensors] == list(ours.tensors)
            for tensor in theirs.tensors:
                stored = ours.tensors[tensor.name]
                assert stored.shape == tuple(int(n) for n in reversed(tensor.shape))
                assert stored.format.name == tensor.tensor_type.name
                assert stored.offset == tensor.data_offset
                assert stored.nbytes == tensor.n_bytes
                rows = slice(0, 2) if len(stored.shape) > 1 else None
                raw = np.ascontiguousarray(tensor.data[:2] if rows else tensor.data)
                wanted = gguf.quants.dequantize(raw, tensor.tensor_type)
                assert np.array_equal(stored.dequantize(rows), wanted)
            for key, field in theirs.fields.items():
                if key.startswith("GGUF."):
                    continue
                value = ours.metadata[key]
                if isinstance(value, StringArray):
                    assert len(value) == len(field.data)
                    some = sorted({*range(min(100, len(value))), *range(len(value))[-100:]})
                    wanted = [str(bytes(field.parts[field.data[i]]), "utf-8") for i in some]
                    assert [value[i] for i in some] == wanted
                    assert [value.decode_all()[i] for i in some] == wanted
                else:
                    assert np.array_equal(value, field.contents()), key
