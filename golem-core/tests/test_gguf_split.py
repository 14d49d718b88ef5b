"""A model in several files is opened by any of them, and only whole."""

from __future__ import annotations

import pytest

from golem_core.errors import BadWeights, NotFound
from golem_core.weights import open_weights

from .gguf_bytes import (
    entry,
    floats,
    gguf_bytes,
    pair,
    refused,
    string_pair,
)


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
