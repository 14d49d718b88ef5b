"""docs/plugins.md shows the files of docs/example-plugin as they are, and that plugin works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLE = DOCS / "example-plugin"
SHOWN = ("pyproject.toml", "src/golem_olmo2/__init__.py", "tests/test_conformance.py")


@pytest.mark.parametrize("name", SHOWN)
def test_the_tutorial_shows_the_file(name):
    kind = "toml" if name.endswith("toml") else "python"
    block = f"`{name}`:\n\n```{kind}\n{(EXAMPLE / name).read_text()}```\n"
    assert block in (DOCS / "plugins.md").read_text()


def test_the_tutorial_shows_every_file():
    here = {p.relative_to(EXAMPLE).as_posix() for p in EXAMPLE.rglob("*.*") if p.is_file()}
    here = {
        name for name in here if not any(part in name for part in ("egg-info", "cache", "build"))
    }
    assert here == {*SHOWN, "README.md"}


@pytest.mark.slow
def test_the_example_is_installed_and_passes_its_tests(tmp_path):
    site = tmp_path / "site"
    # Built from a copy, so that the folder of the documents stays as it is.
    copy = tmp_path / "golem-olmo2"
    copy.mkdir()
    for name in (*SHOWN, "README.md"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((EXAMPLE / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    subprocess.run([*pip, str(copy)], check=True)
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
