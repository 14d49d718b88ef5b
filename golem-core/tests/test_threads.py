"""The number of threads, on machines laid out in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_core.errors import BadRequest
from golem_core.threads import choose


def lay(root: Path, files: dict[str, str]) -> Path:
    """Writes a machine's files below `root`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def cpus(n: int) -> frozenset[int]:
    return frozenset(range(n))


V2 = "0::/"
V1 = "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc"


@pytest.mark.parametrize(
    ("files", "allowed", "count", "why"),
    [
        pytest.param({}, 4, 4, "4 physical cores", id="nothing to read"),
        pytest.param(
            {"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "200000 100000"},
            8,
            2,
            "quota of 2 processors",
            id="v2 quota 2",
        ),
        pytest.param(
            {"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "765000 100000"},
            16,
            7,
            "quota of 7.65 processors",
            id="v2 rounds down",
        ),
        pytest.param(
            {"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "50000 100000"},
            8,
            1,
            "quota of 0.5 processors",
            id="v2 at least one",
        ),
        pytest.param(
            {"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "max 100000"},
            4,
            4,
            "4 physical cores",
            id="v2 max",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a.slice/b.scope",
                "sys/fs/cgroup/a.slice/cpu.max": "300000 100000",
                "sys/fs/cgroup/a.slice/b.scope/cpu.max": "max 100000",
            },
            8,
            3,
            "quota of 3 processors",
            id="v2 a group above",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "nonsense"},
            4,
            4,
            "4 physical cores",
            id="v2 unreadable",
        ),
        pytest.param(
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "250000",
                "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000",
            },
            8,
            2,
            "quota of 2.5 processors",
            id="v1 quota",
        ),
        pytest.param(
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            8,
            2,
            "quota of 2 processors",
            id="v1 in a container, where the group's folder is not shown",
        ),
        pytest.param(
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            3,
            3,
            "3 physical cores",
            id="v1 no limit",
        ),
    ],
)
def test_quota(tmp_path: Path, files: dict[str, str], allowed: int, count: int, why: str) -> None:
    threads = choose(root=lay(tmp_path, files), allowed=cpus(allowed))
    assert threads.count == count
    assert why in threads.reason


def test_hyper_threads_are_not_counted(tmp_path: Path) -> None:
    topology = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    lay(tmp_path, {topology.format(cpu): f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)})
    assert choose(root=tmp_path, allowed=cpus(8)).count == 4
    # One processor of each of two cores, and both of another.
    assert choose(root=tmp_path, allowed=frozenset({0, 1, 2, 6})).count == 3


def test_the_newer_name_of_the_topology_wins(tmp_path: Path) -> None:
    folder = "sys/devices/system/cpu/cpu{}/topology/"
    lay(tmp_path, {folder.format(cpu) + "core_cpus_list": "0-1" for cpu in (0, 1)})
    lay(tmp_path, {folder.format(cpu) + "thread_siblings_list": f"{cpu}" for cpu in (0, 1)})
    assert choose(root=tmp_path, allowed=cpus(2)).count == 1


def test_asked_for_wins_over_a_quota(tmp_path: Path) -> None:
    lay(tmp_path, {"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "200000 100000"})
    assert choose(6, root=tmp_path, allowed=cpus(8)).count == 6


@pytest.mark.parametrize("asked", [0, -1])
def test_too_few_are_refused(tmp_path: Path, asked: int) -> None:
    with pytest.raises(BadRequest, match=f"threads is {asked}; it must be at least 1") as caught:
        choose(asked, root=tmp_path, allowed=cpus(2))
    assert caught.value.field == "threads"


def test_too_many_are_lowered_with_a_warning(tmp_path: Path) -> None:
    threads = choose(9999, root=tmp_path, allowed=cpus(2))
    assert threads.count == 2
    assert threads.warning == (
        "threads is 9999, but this process may run on 2 processors; 2 will be used"
    )


def test_this_machine() -> None:
    threads = choose()
    assert 1 <= threads.count <= threads.allowed
    assert threads.reason
