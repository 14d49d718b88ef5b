"""A recording to the codec's steps: the encoder is compiled for it and given back.

Recordings come seldom, and the encoder's memory would be kept for nothing in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph import Batch, Program
from golem_core.graph.program import PAGE
from golem_core.speech import Samples
from golem_pockettts.derived import Array

if TYPE_CHECKING:
    from golem_pockettts.model import PocketTts

__all__ = ["encoded"]

FRAMES = 4  # of a pass


def encoded(model: PocketTts, samples: Samples, *, device: str, threads: int) -> Array:
    """Steps of 200 Hz, float32 [stride * frames, width]; the last frame is filled up with zeros."""
    c = model.config
    hop = c.samples // c.stride
    samples = np.concatenate([samples, np.zeros(-len(samples) % c.samples, np.float32)])
    columns = samples.reshape(-1, hop)
    width = FRAMES * c.stride
    pages = -(-len(columns) // PAGE) + 1
    program = model.program(
        model.encoder(), device=device, width=width, outputs=width, pages=pages, states=1,
        threads=threads,
    )  # fmt: skip
    try:
        return _run(program, columns, width, pages)
    finally:
        program.close()


def _run(program: Program, columns: Samples, width: int, pages: int) -> Array:
    found = []
    table = np.arange(pages, dtype=np.int32)[None]
    for at in range(0, len(columns), width):
        part = columns[at : at + width]
        n = len(part)
        keeps = np.full(n, -1, np.int32)
        keeps[-1] = 0
        batch = Batch(
            ids=np.zeros(n, np.int32),
            positions=np.arange(at, at + n, dtype=np.int32),
            sequence=np.zeros(n, np.int32),
            pages=(table,),
            outputs=np.arange(n, dtype=np.int32),
            states=np.array([0 if at else -1], np.int32),
            keeps=keeps,
            inputs={"samples": part},
        )
        found.append(program.run(batch).copy())
    return np.concatenate(found)
