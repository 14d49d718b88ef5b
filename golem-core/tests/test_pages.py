"""The pool of pages and the tables, without an engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golem_core.errors import NoMemory
from golem_core.graph.program import PAGE, PageGroup
from golem_core.memory import Memory, PagePool, available_memory, least_pages, token_keys


def memory(
    windows: tuple[int | None, ...] = (None,), pages: int = 16, context: int = 256, rows: int = 4
) -> Memory:
    return Memory([PageGroup(w, 1, 1, pages) for w in windows], context, rows)


def text(count: int, salt: int = 0) -> np.ndarray:
    return np.arange(salt * 1000, salt * 1000 + count, dtype=np.int32)


def test_a_pool_counts_holders() -> None:
    pool = PagePool(3)
    first, second = pool.take(), pool.take()
    assert {first, second} == {0, 1}
    pool.hold(first)
    assert not pool.drop(first)
    assert pool.free == 1
    assert not pool.drop(first)
    assert pool.free == 2
    pool.keep(second)
    assert (pool.free, pool.idle, pool.available) == (2, 0, 2)
    assert pool.drop(second)
    assert (pool.free, pool.idle, pool.available) == (2, 1, 3)
    pool.hold(second)
    assert (pool.idle, pool.holders(second)) == (0, 2)
    pool.drop(second)
    pool.forget(second)
    assert (pool.free, pool.idle) == (3, 0)
    taken = {pool.take() for _ in range(3)}
    assert taken == {0, 1, 2}
    with pytest.raises(IndexError):
        pool.take()


def test_tables_fill_as_positions_are_reserved() -> None:
    made = memory((None, 40))
    hold = made.open()
    for table in made.tables:
        assert table.dtype == np.int32
        assert table.shape == (4, 8)
    made.reserve(hold, 1)
    assert hold.end == 1
    made.reserve(hold, PAGE)
    assert hold.end == 1
    made.reserve(hold, PAGE + 1)
    assert hold.end == 2
    keys = token_keys(text(300))
    made.advance(hold, PAGE + 1, keys)
    assert (made.tables[0][hold.row] >= 0).tolist() == [True] * 2 + [False] * 6
    made.close(hold)
    assert all((table == -1).all() for table in made.tables)


@pytest.mark.parametrize("window", [1, 31, 32, 33, 64, 65])
def test_a_window_gives_back_exactly_what_no_later_position_reads(window: int) -> None:
    made = memory((None, window))
    hold = made.open()
    keys = token_keys(text(256))
    for position in range(250):
        made.reserve(hold, 1)
        read = set(range(max(0, position - window + 1) // PAGE, position // PAGE + 1))
        table = made.tables[1][hold.row]
        assert read == set(np.flatnonzero(table >= 0).tolist())
        assert len(read) <= least_pages(window, 256)
        made.advance(hold, 1, keys)
    assert (made.tables[0][hold.row, :8] >= 0).all()
    made.close(hold)
    for pool in made.pools:
        assert pool.available == pool.pages


def test_room_is_what_can_be_reserved() -> None:
    made = memory(pages=8)
    first, second = made.open(), made.open()
    assert made.room(first) == 8 * PAGE
    made.reserve(first, 40)
    made.advance(first, 40, token_keys(text(256)))
    assert made.room(first) == 8 * PAGE - 40
    assert made.room(second) == 6 * PAGE
    made.reserve(second, 6 * PAGE)
    assert made.room(first) == 2 * PAGE - 40
    assert made.could_read(first, 64, 32, spare=0)
    assert not made.could_read(first, 64, 32, spare=1)
    assert not made.could_read(first, 65, 32, spare=0)
    made.close(second)
    assert made.room(first) == 8 * PAGE - 40


def test_a_pool_too_small_for_one_sequence_is_refused_with_both_numbers() -> None:
    with pytest.raises(NoMemory, match=r"256 tokens needs 8 pages of 32 positions .* has 7"):
        memory(pages=7)
    memory((30,), pages=2)
    with pytest.raises(NoMemory, match=r"needs 2 pages .* has 1"):
        memory((30,), pages=1)


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


MEMINFO = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable:     800 kB\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"proc/meminfo": MEMINFO}, 800 * 1024),
        ({"proc/meminfo": "MemAvailable:\n"}, None),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "0::/user/app\n",
                "sys/fs/cgroup/user/memory.max": "5000\n",
                "sys/fs/cgroup/user/memory.current": "4000\n",
                "sys/fs/cgroup/user/memory.stat": "anon 1\ninactive_file 300\n",
                "sys/fs/cgroup/user/app/memory.max": "max\n",
                "sys/fs/cgroup/user/app/memory.current": "2000\n",
            },
            1300,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "sys/fs/cgroup/memory.max": "5000\n",
                "sys/fs/cgroup/memory.current": "6000\n",
            },
            0,
        ),
        (
            {
                "proc/meminfo": MEMINFO,
                "proc/self/cgroup": "5:cpu:/a\n4:memory:/docker/1\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "7000",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000",
                "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "9223372036854771712",
                "sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes": "1",
            },
            6000,
        ),
    ],
)
def test_available_memory_is_the_least_of_machine_and_groups(
    tmp_path: Path, files: dict[str, str], found: int | None
) -> None:
    assert available_memory(machine(tmp_path, files)) == found


def test_this_machine_has_some_memory() -> None:
    assert (available_memory() or 2**30) > 2**20
