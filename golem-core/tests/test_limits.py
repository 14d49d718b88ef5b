"""The loops that `golem bench` compares with: they do what they say, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from golem_core.cpu import dispatch
from golem_core.cpu.limits import Limits


@pytest.mark.parametrize("layer", dispatch.LAYERS)
def test_limits(layer: str) -> None:
    loops = Limits(layer)
    assert loops.read(np.ones(5 * 512 + 7, np.uint8)) == 5 * 512
    assert loops.read(np.ones(7, np.uint8)) == 0
    once = loops.multiply(1)
    assert once % 64 == 0
    assert once > 0
    assert loops.multiply(10) == 10 * once
