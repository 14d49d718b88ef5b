"""The memory plan never lets two living values share a byte, and wastes little."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from golem_core.graph.plan import ALIGN, Block, place

LIVES = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=40
)


@given(LIVES)
def test_living_blocks_do_not_overlap(lives: list[tuple[int, int, int]]) -> None:
    blocks = [Block(nbytes, first, first + length) for nbytes, first, length in lives]
    end = place(blocks)
    for index, a in enumerate(blocks):
        assert a.offset % ALIGN == 0
        assert a.offset + a.nbytes <= end
        for b in blocks[:index]:
            together = a.first <= b.last and b.first <= a.last
            apart = a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset
            assert apart or not together


def test_a_chain_needs_two_places() -> None:
    chain = [Block(640, stage, stage + 1) for stage in range(50)]
    assert place(chain) == 2 * 640


def test_blocks_of_one_life_lie_side_by_side() -> None:
    assert place([Block(64, 0, 9), Block(128, 0, 9), Block(1, 0, 9)]) == 256
