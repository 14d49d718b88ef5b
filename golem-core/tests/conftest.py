"""What several files of tests are given."""

from __future__ import annotations

import pytest


@pytest.fixture
def write(tmp_path):
    def save(raw, name="model.gguf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(raw)
        return path

    return save
