"""The memory plan: which values share which bytes of a program's arena.

A value lives from the stage that writes it to the last stage that reads it. Values whose lives do
not overlap may lie at the same place; the largest are placed first, each at the lowest offset that
is free for its whole life (greedy by size, Pisarchyk and Lee, 2020).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass

ALIGN = 64  # bytes: one cache line, one AVX-512 register


@dataclass(eq=False)
class Block:
    """`nbytes` that are needed from stage `first` to `last`; `offset` is the plan's answer."""

    nbytes: int
    first: int
    last: int
    offset: int = -1


def place(blocks: Sequence[Block]) -> int:
    """Sets every block's offset; gives the bytes of the whole arena."""
    placed: list[Block] = []
    end = 0
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.first)):
        size = -(-block.nbytes // ALIGN) * ALIGN
        offset = 0
        for other in placed:
            if other.first > block.last or other.last < block.first:
                continue
            if offset + size <= other.offset:
                break
            offset = max(offset, other.offset + -(-other.nbytes // ALIGN) * ALIGN)
        block.offset = offset
        insort(placed, block, key=lambda b: b.offset)
        end = max(end, offset + size)
    return end
