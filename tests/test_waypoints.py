"""Every waypoint of the tiny models against transformers in float32, to 1e-4 of its largest value.

The recordings are transformers' (`python -m ref.record waypoints`); the file that golem reads is
written here from the same seeds, and its checksum is compared first. Keys and values are kept in
float32, as transformers keeps them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ref import tiny
from ref.replay import open_model

from golem_core.trace import trace

RECORDINGS = Path(__file__).parent / "recordings" / "waypoints"
TOLERANCE = 1e-4  # of the largest magnitude that the waypoint has in any row


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", tiny.WAYPOINTS)
def test_waypoints(name, device, tiny_file):
    path, checksum = tiny_file(name)
    with np.load(RECORDINGS / f"{name}.npz") as recording:
        assert checksum == str(recording["in/checksum"]), f"{name} is written with other numbers"
        ids, rows = recording["in/ids"], recording["in/rows"]
        peaks = dict(zip(recording["in/names"], recording["in/peaks"], strict=True))
        expected = {key: recording[key] for key in peaks}

    weights, model = open_model(path)
    with weights:
        found = trace(model, weights, ids, device=device, every_logit=True, kv="f32")

    assert sorted(expected.keys() - found.keys()) == []
    errors = {
        key: float(np.abs(found[key].reshape(len(ids), -1)[rows] - values).max() / peaks[key])
        for key, values in expected.items()
    }
    wrong = {key: error for key, error in errors.items() if not error <= TOLERANCE}
    assert wrong == {}, f"first {next(iter(wrong))}"
