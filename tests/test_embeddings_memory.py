"""A model of three times the memory that its process may have embeds from the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.weights, pytest.mark.slow]

NAME = "all-mpnet-base-v2"
TEXTS = ["the quick brown fox jumps over the lazy dog", "über 東京", "fox " * 200]
RUN = """
import sys, numpy as np, golem_core
from golem_core.cpu import packed
packed.FREE = 0.0  # the disk of who tests may be fuller than golem leaves it to others
with golem_core.load_embedder(sys.argv[1], threads=1) as model:
    assert model.precision == "f32"
    np.save(sys.argv[2], model.embed(sys.argv[3:]).vectors)
"""
TAKES = "import sys; held = bytearray(int(sys.argv[1])); held[::4096] = b'x' * len(held[::4096])"

Limited = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder() -> Path:
    weights = os.environ.get("GOLEM_TEST_WEIGHTS")
    if not weights or not (Path(weights) / NAME).is_dir():
        pytest.skip(f"{NAME} is not in GOLEM_TEST_WEIGHTS")
    return Path(weights) / NAME


@pytest.fixture(scope="module")
def limit(folder: Path) -> int:
    """Bytes: a third of the weights."""
    return (folder / "model.safetensors").stat().st_size // 3


def group() -> tuple[Path, dict[str, str], str]:
    """This process's own memory group: where it lies, what limits one, and what says its peak."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    named = {names: path for _, names, path in (line.split(":", 2) for line in lines)}
    root = Path("/sys/fs/cgroup")
    if "memory" in named:
        return (
            root / "memory" / named["memory"].lstrip("/"),
            {"memory.limit_in_bytes": "{}", "memory.memsw.limit_in_bytes": "{}"},
            "memory.max_usage_in_bytes",
        )
    limits = {"memory.max": "{}", "memory.swap.max": "0"}
    return root / named[""].lstrip("/"), limits, "memory.peak"


@pytest.fixture
def limited(limit: int) -> Iterator[tuple[Limited, Path]]:
    """Runs Python in a group of processes that has so much memory, files' pages included."""
    try:
        parent, limits, peak = group()
        made = parent / f"golem-test-{os.getpid()}"
        made.mkdir()
    except (OSError, KeyError) as error:
        pytest.skip(f"this machine lets no group of processes be limited: {error}")
    try:
        for name, value in limits.items():
            file = made / name
            if file.exists() or "sw" not in name:  # where swap is not counted there is none
                file.write_text(value.format(limit))
    except OSError as error:
        made.rmdir()
        pytest.skip(f"this machine lets no group of processes be limited: {error}")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        enter = f'echo $$ > {made}/cgroup.procs && exec "$@"'
        command = ["sh", "-c", enter, "sh", sys.executable, "-c", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    yield run, made / peak
    made.rmdir()


def test_a_model_of_three_times_the_memory(
    folder: Path, limit: int, limited: tuple[Limited, Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    run, peak = limited
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path / "cache"))
    assert run(TAKES, str(limit)).returncode != 0  # or the limit would be none
    plain, tight = tmp_path / "plain.npy", tmp_path / "tight.npy"
    command = [sys.executable, "-c", RUN, str(folder), str(plain), *TEXTS]
    subprocess.run(command, check=True)  # packs the weights, once
    done = run(RUN, str(folder), str(tight), *TEXTS)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(plain), np.load(tight))
    if peak.exists():
        assert int(peak.read_text()) <= limit
    (packed,) = (tmp_path / "cache" / "packed").iterdir()
    assert packed.stat().st_size > 2 * limit  # the matrices; tables are read where they lie
