"""Packed weights that outlive a process: found again, never mistaken, making room for others."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from golem_core.cpu import packed
from golem_core.cpu.packed import HEADER, PackedFiles
from golem_core.errors import BadRequest
from golem_core.graph import Program, compile
from golem_core.weights import open_weights

from .programs import batch, record, write
from .test_program import tokens

KEY = bytes(range(32))
SIZE = 10_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files of any size are kept, in a folder of the test's own."""
    monkeypatch.setattr(packed, "LEAST", 1)
    monkeypatch.setattr(packed, "FREE", 0.0)
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path / "cache"))


def settle() -> None:
    """Waits for files to be on the disk."""
    for thread in threading.enumerate():
        if thread.name == "golem-packed":
            thread.join()


def enter() -> None:
    """Waits for the pages of mapped files to be entered."""
    for thread in threading.enumerate():
        if thread.name == "golem-pages":
            thread.join()


def entered(path: Path) -> int:
    """Bytes of a file's pages that this process has in its table to be read."""
    found, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            here = " r--s " in line and line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            found += int(line.split()[1]) << 10
    return found


def put(files: PackedFiles, key: bytes, content: bytes) -> None:
    made = files.create(len(content))
    assert made is not None
    os.pwrite(made.descriptor, content, HEADER)
    made.finish(key)


def get(files: PackedFiles, key: bytes, nbytes: int) -> bytes | None:
    descriptor = files.find(key, nbytes)
    if descriptor is None:
        return None
    try:
        return os.pread(descriptor, nbytes, HEADER)
    finally:
        os.close(descriptor)


def test_what_was_packed_is_found(tmp_path: Path) -> None:
    files, content = PackedFiles(tmp_path, 1 << 30), os.urandom(SIZE)
    assert get(files, KEY, SIZE) is None
    put(files, KEY, content)
    assert get(files, KEY, SIZE) == content
    settle()
    assert get(files, KEY, SIZE) == content
    assert [path.name for path in tmp_path.iterdir()] == [KEY.hex()]
    assert get(files, KEY, SIZE - 1) is None
    assert get(files, KEY[::-1], SIZE) is None


def test_what_may_not_have_reached_the_disk_is_good_until_the_machine_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = PackedFiles(tmp_path, 1 << 30)
    monkeypatch.setattr(packed, "_settle", lambda descriptor: None)
    put(files, KEY, b"x" * SIZE)
    assert get(files, KEY, SIZE) is not None
    monkeypatch.setattr(packed, "_boot", lambda: b"another".ljust(36, b"\0"))
    assert get(files, KEY, SIZE) is None


def test_what_reached_the_disk_is_good_after_another_start_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = PackedFiles(tmp_path, 1 << 30)
    put(files, KEY, b"x" * SIZE)
    settle()
    monkeypatch.setattr(packed, "_boot", lambda: b"another".ljust(36, b"\0"))
    assert get(files, KEY, SIZE) == b"x" * SIZE


@pytest.mark.parametrize("wrong", [b"", b"golem", b"\0" * HEADER, os.urandom(HEADER + SIZE)])
def test_a_file_of_something_else_is_not_taken(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / KEY.hex()).write_bytes(wrong)
    assert get(PackedFiles(tmp_path, 1 << 30), KEY, SIZE) is None


def test_the_oldest_make_room(tmp_path: Path) -> None:
    files = PackedFiles(tmp_path, 3 * (HEADER + SIZE) + 100)
    keys = [bytes([i]) * 32 for i in range(4)]
    for key in keys[:3]:
        put(files, key, b"x" * SIZE)
    settle()
    for number, key in enumerate(keys[:3]):
        os.utime(tmp_path / key.hex(), (number, number))
    assert get(files, keys[0], SIZE) is not None  # used just now
    put(files, keys[3], b"x" * SIZE)
    assert [get(files, key, SIZE) is not None for key in keys] == [True, False, True, True]
    assert PackedFiles(tmp_path, SIZE - 1).create(SIZE) is None
    assert PackedFiles(tmp_path, 0).find(keys[0], SIZE) is None


@pytest.mark.parametrize(
    ("total", "stays"),
    [(40 << 30, 4 << 30), (4000 << 30, 8 << 30)],
    ids=["a tenth", "of a large disk no more than that"],
)
def test_a_disk_keeps_room_for_others_and_that_is_said(
    total: int,
    stays: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.undo()
    nbytes, files = 3 << 30, PackedFiles(tmp_path, 4 << 30)
    free = stays + nbytes
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: (total, total - free, free))
    made = files.create(nbytes)
    assert made is not None
    made.discard()
    assert caplog.messages == []
    free -= 1
    assert files.create(nbytes) is None
    assert caplog.messages == [
        "packed weights are not kept for the next start: they take 3.22 GB, and of the "
        f"{free / 1e9:.2f} GB that are free in {tmp_path} {stays / 1e9:.2f} GB stay free"
    ]


def test_a_folder_that_cannot_be_written_gets_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert PackedFiles(tmp_path / "file", 1 << 30).create(SIZE) is None


def test_the_room_is_set_in_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PackedFiles.usual().most == 32 << 30
    monkeypatch.setenv("GOLEM_PACKED", "0")
    assert PackedFiles.usual().most == 0
    monkeypatch.setenv("GOLEM_PACKED", "")
    assert PackedFiles.usual().most == 32 << 30
    for wrong in ("much", "-1", "1.5"):
        monkeypatch.setenv("GOLEM_PACKED", wrong)
        with pytest.raises(BadRequest, match="GOLEM_PACKED"):
            PackedFiles.usual()


def program(path: Path) -> Program:
    with open_weights(path) as weights:
        return compile(record(weights), pages=(8, 8), outputs=64, threads=2)


@pytest.mark.parametrize("format", ["Q4_0", "Q8_0", "F16"])
def test_a_second_start_maps_and_computes_the_same(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, one = tmp_path / "tiny.gguf", batch([(tokens(3, 40), 0, [1, 0])])
    write(path, format).close()
    monkeypatch.setenv("GOLEM_PACKED", "0")
    wanted = program(path).run(one).copy()
    assert not (tmp_path / "cache").exists()
    monkeypatch.delenv("GOLEM_PACKED")
    first = program(path)
    assert np.array_equal(first.run(one), wanted)
    kept = list((tmp_path / "cache" / "packed").iterdir())
    assert len(kept) == 1
    # Packing would now be noticed: the matrices come from the file.
    monkeypatch.setattr("golem_core.cpu.matrices.Matrices.pack", lambda *_: pytest.fail("packed"))
    second = program(path)
    enter()
    # Before a pass has touched any: `first` has a mapping of its own, to write.
    assert entered(kept[0]) >= kept[0].stat().st_size - HEADER
    assert np.array_equal(second.run(one), wanted)
    first.close()  # its pages are those of the file, which the other still reads
    assert np.array_equal(second.run(one), wanted)


def test_other_weights_are_never_taken_for_these(tmp_path: Path) -> None:
    one = batch([(tokens(3, 40), 0, [1, 0])])
    path = tmp_path / "tiny.gguf"
    write(path, "Q8_0", seed=1).close()
    before = program(path).run(one).copy()
    stat = path.stat()
    write(path, "Q8_0", seed=2).close()
    after = program(path).run(one).copy()
    assert not np.array_equal(before, after)
    # Even with the date of the first: the ends of the file differ.
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert np.array_equal(program(path).run(one), after)
    copied = tmp_path / "copy.gguf"
    copied.write_bytes(path.read_bytes())
    assert np.array_equal(program(copied).run(one), after)
