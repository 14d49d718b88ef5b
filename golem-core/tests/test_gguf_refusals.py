"""What no GGUF file may be is refused: by name, at once, and without taking memory."""

from __future__ import annotations

import os
import struct

import gguf
import pytest

from golem_core.errors import BadWeights, NotFound
from golem_core.weights import open_weights

from .gguf_bytes import (
    array_pair,
    entry,
    floats,
    gguf_bytes,
    pair,
    refused,
    string_pair,
    text,
    written,
)

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
