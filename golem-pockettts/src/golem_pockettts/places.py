"""Room for the lines under way: pages of the flow model, pages and slots of the decoder.

What the flow model keeps of a voice fills whole pages and a rest. The whole ones are there once,
for all lines of that voice, and stay for the next as long as nobody else needs them; the rest is
put before each line's own positions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from golem_core.graph import Program
from golem_core.graph.program import PAGE
from golem_pockettts.drawing import Drawn
from golem_pockettts.voice import PocketVoice

__all__ = ["LINE", "Places", "positions"]

LINE = 1024  # positions of the lines that there is room for at the same time, each


class Places:
    """The free pages and slots, and the voices that have pages.

    sequences  lines that may be under way
    heard      pages of the decoder for each of them
    """

    def __init__(self, sequences: int, heard: int) -> None:
        self.count = sequences * (LINE // PAGE)
        self.pages = list(range(self.count - 1, -1, -1))
        self.heard = list(range(sequences * heard - 1, -1, -1))
        self.slots = list(range(sequences - 1, -1, -1))
        self.resident: dict[
            PocketVoice, list[int]
        ] = {}  # whole pages; the one used last at the end

    def settle(self, drawn: Drawn, flow: Program, speaking: Collection[PocketVoice]) -> bool:
        """Gives a line that begins its slot and its pages, with its voice in them.

        speaking  voices that must keep their pages

        False where there is no room now.
        """
        voice, count = drawn.spoken.voice, len(drawn.line.ids)
        whole, left = divmod(voice.positions, PAGE)
        missing = whole if voice not in self.resident else 0
        needed = missing - (-(left + count + drawn.longest) // PAGE)
        own = self.take(needed, {voice, *speaking})
        if not self.slots or own is None:
            self.pages += own or []
            return False
        if voice not in self.resident:
            self.resident[voice], own = own[:whole], own[whole:]
            table = np.array(self.resident[voice], np.int32)
            flow.put(table, 0, [k[:, : whole * PAGE] for k in voice.kept])
        self.resident[voice] = self.resident.pop(voice)
        drawn.own, drawn.slot = own, self.slots.pop()
        drawn.table = np.array([*self.resident[voice], *own], np.int32)
        flow.put(drawn.table, whole * PAGE, [k[:, whole * PAGE :] for k in voice.kept])
        drawn.position = voice.positions
        return True

    def take(self, count: int, keep: Collection[PocketVoice]) -> list[int] | None:
        """So many pages, for which voices not in `keep` may have to go; None: there are too few."""
        for voice in list(self.resident):
            if len(self.pages) >= count:
                break
            if voice not in keep:
                self.pages += self.resident.pop(voice)
        if len(self.pages) < count:
            return None
        taken = self.pages[len(self.pages) - count :]
        del self.pages[len(self.pages) - count :]
        return taken

    def give_back(self, pages: Sequence[int]) -> None:
        """Pages that were taken."""
        self.pages += pages

    def hear(self, drawn: Drawn, columns: int, window: int) -> None:
        """Pages for the decoder's next columns; those that its window has left are given back."""
        first = max(0, drawn.at - window + 1) // PAGE
        for place in [p for p in drawn.heard if p < first]:
            self.heard.append(drawn.heard.pop(place))
        for place in range(drawn.at // PAGE, (drawn.at + columns - 1) // PAGE + 1):
            if place not in drawn.heard:
                drawn.heard[place] = self.heard.pop()

    def free(self, drawn: Drawn) -> None:
        """All that a line had."""
        self.pages += drawn.own
        self.heard += drawn.heard.values()
        self.slots.append(drawn.slot)
        drawn.own, drawn.heard = [], {}


def positions(voice: PocketVoice, count: int, longest: int) -> int:
    """Positions of the pages that a line of `count` pieces may need with its voice."""
    return (-(-(voice.positions + count + longest) // PAGE) + 1) * PAGE
