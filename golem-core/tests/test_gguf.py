"""The GGUF reader: what it reads, and what it refuses and says when a file cannot be true."""

from __future__ import annotations

import hashlib
import os
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core.errors import BadWeights, NotFound, Unsupported
from golem_core.weights import FORMATS, Keys, StringArray, open_weights

# ---- a file written byte by byte, since no honest writer writes what is tested here


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


@pytest.fixture
def write(tmp_path):
    def save(raw, name="model.gguf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw)
        return path

    return save


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


# ---- what it reads


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


# ---- dimensions


def test_zero_dimensions_are_refused(write):
    path = write(gguf_bytes(entries=[entry("t", [1, 0])]))
    refused(path, "dimension 1 of t is 0")
    refused(write(gguf_bytes(entries=[entry("blk.0.w", [0])])), "dimension 0 of blk.0.w is 0")


def test_the_smallest_zero_dimension_file_is_refused(write):
    # No padding, no data: 65 bytes in all.
    raw = gguf_bytes(entries=[entry("t", [1, 0])], align=1)
    assert len(raw) == 65
    refused(write(raw), "dimension 1 of t is 0")


@pytest.mark.parametrize("axes", [0, 5, 1_000_000, 2**32 - 1])
def test_counts_of_dimensions_are_refused(write, axes):
    raw = gguf_bytes(entries=[entry("t", [], axes=axes)], data=b"\0" * 64)
    refused(write(raw), f"t has {axes} dimensions; a tensor has 1 to 4")


def test_dimensions_whose_product_wraps_are_refused(write):
    raw = gguf_bytes(entries=[entry("t", [2**32, 2**32, 2])], data=floats(4))
    refused(write(raw), f"t needs {2**67} bytes")


def test_rows_that_are_no_whole_blocks_are_refused(write):
    raw = gguf_bytes(entries=[entry("t", [48], kind=2)], data=b"\0" * 64)
    refused(write(raw), "t has rows of 48 elements, which is not a multiple of Q4_0's block of 32")


# ---- counts


def test_counts_beyond_the_file_are_refused(write):
    some = b"\0" * 64
    refused(write(gguf_bytes(data=some, tensors=2**60)), f"{2**60} tensors, but 72 bytes are left")
    refused(write(gguf_bytes(data=some, keys=2**60)), f"{2**60} keys, but 72 bytes are left")
    raw = gguf_bytes([array_pair("k", 4, 2**40, some)])
    refused(write(raw), f"the array k says it has {2**40} elements of at least 4 bytes")
    raw = gguf_bytes([array_pair("k", 8, 2**61, some)])
    refused(write(raw), f"the array k says it has {2**61} elements of at least 8 bytes")
    raw = gguf_bytes([struct.pack("<Q", 2**40) + b"abc"])
    refused(write(raw), "the name of key 0 says it has 1099511627776 bytes")
    raw = gguf_bytes([text("k") + struct.pack("<IQ", 8, 2**63) + b"abc"])
    refused(write(raw), "k says it has 9223372036854775808 bytes")


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 100])
def test_a_string_that_leaves_its_array_is_refused(write, length):
    payload = text("ab") + struct.pack("<Q", length) + b"cd"
    raw = gguf_bytes([array_pair("k", 8, 2, payload)], align=1)
    refused(write(raw), "string 1 of the array k runs past the end of the file")


def test_nested_arrays_are_refused(write):
    nested = struct.pack("<IQ", 9, 1) * 3000 + b"\0" * 64
    refused(
        write(gguf_bytes([text("k") + struct.pack("<I", 9) + nested])), "k is an array of arrays"
    )


def test_types_that_do_not_exist_are_refused(write):
    refused(write(gguf_bytes([pair("k", 13, "Q", 0)])), "k has type 13, which GGUF does not have")
    raw = gguf_bytes([array_pair("k", 99, 1, b"\0" * 8)])
    refused(write(raw), "k is an array of type 99")
    raw = gguf_bytes(entries=[entry("w", [32], kind=77)], data=b"\0" * 64)
    refused(write(raw), "w has type number 77, which is unknown")
    raw = gguf_bytes(entries=[entry("w", [32], kind=4)], data=b"\0" * 64)
    refused(write(raw), "w has type number 4, which is a type that ggml has withdrawn")


def test_truth_values_are_zero_or_one(write):
    refused(write(gguf_bytes([pair("k", 7, "B", 2)])), "k is a truth value of 2")
    raw = gguf_bytes([array_pair("k", 7, 2, b"\1\2")])
    refused(write(raw), "the array k has truth values other than 0 and 1")


def test_doubles_are_refused(write):
    same = pair("k", 4, "I", 1)
    refused(write(gguf_bytes([same, same])), "the key k is there twice")
    raw = gguf_bytes(entries=[entry("t", [4]), entry("t", [4], offset=32)], data=floats(16))
    refused(write(raw), "the tensor t is there twice")


def test_text_that_is_not_utf8_is_refused(write):
    refused(write(gguf_bytes([string_pair(b"\xff", "v")])), "the name of key 0 is not UTF-8")
    refused(write(gguf_bytes([string_pair("k", b"\xc3")])), "k is not UTF-8")


def test_strings_of_an_array_are_checked_when_read(write):
    raw = gguf_bytes([array_pair("k", 8, 3, text("a") + text(b"\xff\xfe") + text("c"))])
    words = open_weights(write(raw)).metadata["k"]
    assert words.raw(1) == b"\xff\xfe"
    for read in (words.decode_all, lambda: list(words), lambda: words[1]):
        with pytest.raises(BadWeights, match=r"string 1 of k .*model\.gguf.* is not UTF-8"):
            read()


def test_names_cannot_write_to_the_terminal(write):
    refused(write(gguf_bytes([pair("\x1b[2J\r", 13, "Q", 0)])), r"\x1b[2J\r has type 13")


def test_a_name_without_end_is_cut(write):
    refused(write(gguf_bytes([pair("n" * 1_000_000, 13, "Q", 0)])), "nnn [...] nnn")


@pytest.mark.parametrize("alignment", [0, 3, 48])
def test_alignments_that_are_no_power_of_two_are_refused(write, alignment):
    raw = gguf_bytes([pair("general.alignment", 4, "I", alignment)], [entry("t", [4])], floats(4))
    refused(write(raw), f"general.alignment is {alignment}, not a power of two")


# ---- data


def test_data_that_is_cut_off_is_refused(write):
    raw = gguf_bytes(entries=[entry("blk.0.w", [1024])], data=b"\0" * 100)
    refused(write(raw), "blk.0.w needs 4096 bytes at offset 0", f"the file has {len(raw)} bytes")


@pytest.mark.parametrize("offset", [2**40, 2**64 - 32, 2**63, 32])
def test_offsets_outside_the_file_are_refused(write, offset):
    raw = gguf_bytes(entries=[entry("blk.0.w", [4], offset=offset)], data=floats(4))
    refused(write(raw), f"blk.0.w needs 16 bytes at offset {offset}", f"has {len(raw)} bytes")


def test_offsets_between_the_alignment_are_refused(write):
    raw = gguf_bytes(entries=[entry("t", [4], offset=4)], data=floats(16))
    refused(write(raw), "t lies at offset 4, which is not a multiple of the alignment 32")


def test_tensors_that_share_bytes_are_refused(write):
    raw = gguf_bytes(entries=[entry("b", [16], offset=32), entry("a", [16])], data=floats(32))
    refused(write(raw), "b at byte", "overlaps a, which ends at byte")


def test_a_header_cut_anywhere_is_refused(tmp_path, write):
    whole = gguf_bytes(
        [string_pair("k", "v"), array_pair("a", 8, 2, text("x") + text("y"))],
        [entry("t", [4])],
        floats(4),
    )
    assert list(open_weights(write(whole)).tensors) == ["t"]
    for length in range(len(whole)):
        path = write(whole[:length], "cut.gguf")
        with pytest.raises(BadWeights, match=r"cut\.gguf"):
            open_weights(path)


# ---- what is not GGUF


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (b"", "is an empty file"),
        (b"<!DOCTYPE html><html><title>404</title></html>" + b" " * 100, "is an HTML page"),
        (b"\n  <html lang=en>", "is an HTML page"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied", "is an XML document"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64,
            "is a Git LFS pointer, not the weights; run: git lfs pull",
        ),
        (b"GG", "is cut off: it has 2 bytes in all"),
        (b"tjgg" + b"\0" * 60, "is a GGML file from before GGUF"),
        (b"PK\x03\x04" + b"\0" * 60, "is a zip archive"),
        (b"\x80\x02}q\x00" + b"\0" * 60, "is a Python pickle"),
        (b"\0" * 4096, "is zeros where a header should be: a download cut short"),
        (b'{"error": "Repository not found"}', "is a JSON text"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 60, "begins with 89 50 4e 47 0d 0a 1a 0a"),
    ],
)
def test_says_what_a_file_is(write, raw, what):
    refused(write(raw), what)


def test_other_versions_are_refused(tmp_path, write):
    refused(write(gguf_bytes(version=1)), "is GGUF version 1; golem reads versions 2 and 3")
    refused(write(gguf_bytes(version=0)), "is GGUF version 0")
    refused(write(gguf_bytes(version=4)), "is GGUF version 4")
    path = tmp_path / "big.gguf"
    written(path, endian=gguf.GGUFEndian.BIG)
    refused(path, "is big endian; golem reads little-endian GGUF")


def test_paths_that_are_no_file(tmp_path, write):
    refused(tmp_path / "absent.gguf", "no such file", error=NotFound)
    refused(tmp_path, "holds no model", error=NotFound)
    os.mkfifo(tmp_path / "pipe.gguf")
    refused(tmp_path / "pipe.gguf", "is not a regular file")
    refused(write(gguf_bytes()) / "below", "cannot be read: Not a directory", error=NotFound)
    with pytest.raises(NotFound):
        open_weights("a\0b")


# ---- split models


def shard(number, count, total, names, architecture=True):
    pairs = [
        pair("split.no", 2, "H", number),
        pair("split.count", 2, "H", count),
        pair("split.tensors.count", 5, "i", total),
    ]
    if architecture:
        pairs.insert(0, string_pair("general.architecture", "gemma3"))
    entries = [entry(name, [8], offset=32 * i) for i, name in enumerate(names)]
    return gguf_bytes(pairs, entries, floats(8) * len(names))


FIRST, SECOND = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"


@pytest.fixture
def split(write):
    write(shard(0, 2, 3, ["a", "b"]), FIRST)
    return write(shard(1, 2, 3, ["c"], architecture=False), SECOND).parent


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_split_model_opens_by_any_part(split, name):
    with open_weights(split / name) as weights:
        assert list(weights.tensors) == ["a", "b", "c"]
        assert weights.architecture == "gemma3"
        assert [file.path.name for file in weights.files] == [FIRST, SECOND]
        assert weights.tensors["c"].dequantize().tolist() == list(range(8))


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_split_model_opens_by_a_link(split, name, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for link in (name, "model.gguf"):
        (tmp_path / "elsewhere" / link).symlink_to(split / name)
        weights = open_weights(tmp_path / "elsewhere" / link)
        assert list(weights.tensors) == ["a", "b", "c"]


def test_a_split_model_opens_where_its_parts_are_links(split, tmp_path):
    """As a download cache lays them out: names in one folder, contents in another."""
    (tmp_path / "blobs").mkdir()
    for i, name in enumerate((FIRST, SECOND)):
        (split / name).rename(tmp_path / "blobs" / f"{i}f3a")
        (split / name).symlink_to(tmp_path / "blobs" / f"{i}f3a")
    assert list(open_weights(split / SECOND).tensors) == ["a", "b", "c"]


def test_a_missing_part_is_named(split):
    (split / SECOND).unlink()
    refused(split / FIRST, "is one of 2 parts, of which", SECOND, "is missing", error=NotFound)


def test_swapped_parts_are_refused(split):
    (split / FIRST).rename(split / "third")
    (split / SECOND).rename(split / FIRST)
    (split / "third").rename(split / SECOND)
    for name in (FIRST, SECOND):
        with pytest.raises(BadWeights, match=r"split\.no 1\), but its name says part 1: .*swapped"):
            open_weights(split / name)


def test_parts_of_another_model_are_refused(split, write):
    write(shard(1, 3, 3, ["c"]), SECOND)
    refused(split / FIRST, "split.count is 3", "and 2")
    write(shard(1, 2, 3, ["a"]), SECOND)
    refused(split / FIRST, "a is in two files", SECOND)
    write(shard(1, 2, 3, ["c", "d"]), SECOND)
    refused(split / FIRST, "split.tensors.count is 3, but the 2 files hold 4 tensors")
    write(gguf_bytes(entries=[entry("c", [8])], data=floats(8)), SECOND)
    with pytest.raises(BadWeights, match=rf"split\.no is None.*{SECOND}"):
        open_weights(split / FIRST)


def test_a_part_must_be_named_as_one(split, tmp_path):
    (split / FIRST).rename(split / "renamed.gguf")
    refused(split / "renamed.gguf", "one of 2 parts", "NAME-00001-of-00002.gguf")
    (split / "renamed.gguf").rename(split / "m-00001-of-00003.gguf")
    refused(split / "m-00001-of-00003.gguf", "named one of 00003, but split.count is 2")


def test_a_hostile_count_of_parts_is_refused(write):
    path = write(shard(0, 65535, 3, ["a"]), "h-00001-of-65535.gguf")
    refused(path, "h-00002-of-65535.gguf is missing", error=NotFound)
    raw = gguf_bytes([pair("split.count", 4, "I", 2**32 - 1), pair("split.no", 4, "I", 0)])
    refused(write(raw, "h-00001-of-00002.gguf"), f"split.count is {2**32 - 1}")
    raw = gguf_bytes([string_pair("split.count", "two")])
    refused(write(raw), "split.count is two, not a whole number")


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
