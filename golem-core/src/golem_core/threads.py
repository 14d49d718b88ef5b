"""How many threads a pass may use: what the process has, not what the machine has.

The count is the least of three numbers: the processors that the process is allowed to run on
(its affinity), the whole processors that its control group pays for (the quota, rounded down,
at least one), and the physical cores among the allowed processors, since two hardware threads
of one core share the units that a product needs. A worker more than that waits at every barrier
for a time slice that it does not have.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from golem_core.errors import BadRequest

__all__ = ["Threads", "choose"]

# A group above ours may be the one that is limited, so every level counts. Real trees are a
# handful of levels deep.
_ROOT = Path("/")


@dataclass(frozen=True)
class Threads:
    """A number of threads and where it comes from.

    `allowed`, `cores` and `quota` are in processors; `quota` is None where nothing limits it.
    `warning` is a sentence for the user when what was asked for was not taken as it stood.
    """

    count: int
    reason: str
    allowed: int
    cores: int
    quota: float | None
    warning: str | None = None


def choose(
    asked: int | None = None,
    *,
    root: Path = _ROOT,
    allowed: frozenset[int] | None = None,
) -> Threads:
    """Decides the number of threads; `asked` wins over everything that is detected.

    `root` stands for ``/`` and `allowed` for the process's affinity, so that a test can lay out
    a machine. Raises `BadRequest` when `asked` is below one; a number above the allowed
    processors is lowered to them, with a warning.
    """
    cpus = _affinity() if allowed is None else allowed
    cores = _cores(cpus, root)
    quota = _quota(root)
    if asked is not None:
        if asked < 1:
            raise BadRequest(
                f"threads is {asked}; it must be at least 1, or be left out to be chosen",
                field="threads",
            )
        if asked > len(cpus):
            warning = (
                f"threads is {asked}, but this process may run on {_processors(len(cpus))}; "
                f"{len(cpus)} will be used"
            )
            return Threads(len(cpus), f"asked for {asked}", len(cpus), cores, quota, warning)
        return Threads(asked, "asked for", len(cpus), cores, quota)

    candidates = [(cores, f"{cores} physical core{'s' * (cores != 1)}")]
    if len(cpus) < cores:  # a topology that counts cores outside the affinity
        candidates.append((len(cpus), f"affinity of {_processors(len(cpus))}"))
    if quota is not None:
        whole = max(1, math.floor(quota))
        candidates.append((whole, f"control group quota of {quota:g} processors"))
    count, reason = min(candidates, key=lambda pair: pair[0])
    if count == cores and len(cpus) < (os.cpu_count() or 1) and allowed is None:
        reason += f" in an affinity of {_processors(len(cpus))}"
    return Threads(count, reason, len(cpus), cores, quota)


def _processors(n: int) -> str:
    return f"{n} processor{'s' * (n != 1)}"


def _affinity() -> frozenset[int]:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def _cores(cpus: frozenset[int], root: Path) -> int:
    """Physical cores among `cpus`: the sets of hardware threads that share one."""
    siblings = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        text = _read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list")
        siblings.add(text if text else f"cpu{cpu}")
    return max(1, len(siblings))


def _quota(root: Path) -> float | None:
    """The least quota, in processors, of the control groups that this process is in."""
    found = []
    for line in (_read(root / "proc/self/cgroup") or "0::/").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            for mount in ("sys/fs/cgroup", "sys/fs/cgroup/unified"):
                found += [_quota_v2(folder) for folder in _levels(root / mount, group)]
        elif "cpu" in controllers.split(","):
            for mount in ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"):
                found += [_quota_v1(folder) for folder in _levels(root / mount, group)]
    return min((quota for quota in found if quota is not None), default=None)


def _levels(mount: Path, group: str) -> list[Path]:
    """The folders of a group and of all above it.

    In a container the group's name is often the host's while the mount shows only the
    container's part of the tree; then the mount itself is the group.
    """
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [mount.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _quota_v2(folder: Path) -> float | None:
    """``cpu.max``: "quota period" in microseconds, or "max period"."""
    fields = (_read(folder / "cpu.max") or "").split()
    if len(fields) != 2:
        return None
    return _share(fields[0], fields[1])


def _quota_v1(folder: Path) -> float | None:
    """``cpu.cfs_quota_us`` over ``cpu.cfs_period_us``; -1 means no limit."""
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    if quota is None or period is None:
        return None
    return _share(quota, period)


def _share(quota: str, period: str) -> float | None:
    if not quota.isdigit() or not period.isdigit():  # "max", "-1", or nothing sensible
        return None
    if int(quota) == 0 or int(period) == 0:
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str | None:
    """A small file of the kernel's, or None where there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None
