"""A pass of the codec's decoder: frames of several lines, several of each, to sound.

Where somebody waits for sound a frame is decoded as soon as it is drawn, else some at a time: rows
of several frames are multiplied faster than those of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from golem_core.graph import Batch
from golem_core.graph.program import PAGE
from golem_core.speech import Samples
from golem_pockettts.derived import Array
from golem_pockettts.drawing import Drawn
from golem_pockettts.places import Places

if TYPE_CHECKING:
    from golem_pockettts.model import PocketTts

__all__ = ["FRAMES", "DecoderPass", "heard_pages"]

FRAMES = 8  # of a pass
TOGETHER = 4  # frames of a line that are decoded at a time where nobody waits
FADE = 0.005  # seconds over which a line's first samples are faded in


def heard_pages(model: PocketTts) -> int:
    """Pages of the decoder's past that a line may have: its window, and what a pass adds."""
    c = model.config
    return ((c.decoder_layers.window or 0) + FRAMES * c.stride) // PAGE + 2


class DecoderPass:
    """The decoder's program, with a slot and pages for each of `sequences` lines."""

    def __init__(
        self, model: PocketTts, kept: str | None, *, sequences: int, device: str, threads: int
    ) -> None:
        self.config = c = model.config
        self._window = c.decoder_layers.window or 0
        columns = FRAMES * c.stride
        self.program = model.program(
            model.decoder(kept), device=device, width=columns, outputs=columns,
            pages=sequences * heard_pages(model), states=sequences, threads=threads,
        )  # fmt: skip

    def decode(self, lines: Sequence[Drawn], places: Places) -> None:
        """Sound of lines where somebody waits for it or enough frames have gathered."""
        chosen: list[tuple[Drawn, int]] = []
        room = FRAMES
        for drawn in lines:
            wanted = drawn.done or not drawn.began or drawn.spoken.hurried
            if room and (wanted or len(drawn.steps) >= TOGETHER):
                chosen.append((drawn, min(room, len(drawn.steps))))
                room -= chosen[-1][1]
        if not chosen:
            return
        result = self.program.run(self._columns(chosen, places))
        at = 0
        for drawn, count in chosen:
            own = count * self.config.stride
            self._give(drawn, result[at : at + own].reshape(-1).copy(), own)
            at += own

    def _columns(self, chosen: Sequence[tuple[Drawn, int]], places: Places) -> Batch:
        c = self.config
        n = sum(count for _, count in chosen) * c.stride
        positions, sequence = np.empty(n, np.int32), np.empty(n, np.int32)
        keeps = np.full(n, -1, np.int32)
        steps: Array = np.empty((n, c.outer), np.float32)
        at = 0
        for i, (drawn, count) in enumerate(chosen):
            own = count * c.stride
            places.hear(drawn, own, self._window)
            positions[at : at + own] = np.arange(drawn.at, drawn.at + own)
            sequence[at : at + own] = i
            steps[at : at + own] = np.concatenate([drawn.steps.popleft() for _ in range(count)])
            at += own
            keeps[at - 1] = drawn.slot
        tables = np.full((len(chosen), max(max(d.heard) for d, _ in chosen) + 1), -1, np.int32)
        for i, (drawn, _) in enumerate(chosen):
            tables[i, list(drawn.heard)] = list(drawn.heard.values())
        return Batch(
            ids=np.zeros(n, np.int32),
            positions=positions,
            sequence=sequence,
            pages=(tables,),
            outputs=np.arange(n, dtype=np.int32),
            states=np.array([d.slot if d.began else -1 for d, _ in chosen], np.int32),
            keeps=keeps,
            inputs={"steps": steps},
        )

    def _give(self, drawn: Drawn, sound: Samples, columns: int) -> None:
        """A line's sound to who listens; its first samples are faded in."""
        if not drawn.began:
            fade = min(int(FADE * self.config.sample_rate), len(sound))
            sound[:fade] *= np.linspace(0, 1, fade, dtype=np.float32)
        drawn.began = True
        drawn.at += columns
        drawn.spoken.put(drawn.number, sound)
