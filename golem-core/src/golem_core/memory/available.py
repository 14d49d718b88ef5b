"""How much memory this process may still use, as Linux tells it."""

from __future__ import annotations

from pathlib import Path

# What a control group without a limit has for one (version 1): near 2**63, rounded to pages.
_UNLIMITED = 2**60


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that can be had without swapping; None where nothing says.

    The least of ``MemAvailable`` and what the limits of the process's control groups (version 2
    or 1, every level) leave. A group's file pages that are not in active use count as available.
    `root` stands for ``/`` so that a test can lay out a machine.
    """
    found = [*_machine(root), *_groups(root)]
    return min(found) if found else None


def _machine(root: Path) -> list[int]:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable" and rest.split():
            return [int(rest.split()[0]) * 1024]
    return []


def _groups(root: Path) -> list[int]:
    found = []
    for line in _read(root / "proc/self/cgroup").splitlines() or ["0::/"]:
        number, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if number == "0" and not controllers:
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        parts = [part for part in group.split("/") if part not in ("", "..")]
        # In a container the mount itself may be the group, whatever the group is called.
        for depth in range(len(parts) + 1):
            left = _left(mount.joinpath(*parts[:depth]), *names)
            if left is not None:
                found.append(left)
    return found


def _left(folder: Path, limit: str, usage: str) -> int | None:
    most, used = _read(folder / limit), _read(folder / usage)
    if not most.isdigit() or not used.isdigit() or int(most) >= _UNLIMITED:
        return None
    counts = dict(
        line.split() for line in _read(folder / "memory.stat").splitlines() if " " in line
    )
    return max(0, int(most) - int(used) + int(counts.get("inactive_file", 0)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
