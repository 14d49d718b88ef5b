"""Files that the tests across distributions share: tiny models written on the spot, real ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from ref import tiny


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Path, str]]:
    """A function from a tiny model's name and a format to its file and the file's checksum."""
    folder = tmp_path_factory.mktemp("tiny")
    made: dict[tuple[str, str], tuple[Path, str]] = {}

    def write(name: str, form: str = "F32") -> tuple[Path, str]:
        if (name, form) not in made:
            path = folder / f"{name}-{form}.gguf"
            made[name, form] = path, tiny.write(tiny.TINY[name], path, form)
        return made[name, form]

    return write


@pytest.fixture(scope="session")
def real_file() -> Callable[[str], Path]:
    """A function from the name of a real model's file to its path; skips where it is not here."""
    folder = os.environ.get("GOLEM_TEST_WEIGHTS")

    def find(name: str) -> Path:
        if not folder:
            pytest.skip("GOLEM_TEST_WEIGHTS names no folder of real weights")
        path = Path(folder) / name
        if not path.exists():
            pytest.skip(f"{name} is not in {folder}")
        return path

    return find
