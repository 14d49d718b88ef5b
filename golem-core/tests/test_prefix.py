"""The prefix tree: what is shared, what is found again, what goes first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.graph.program import PAGE, PageGroup
from golem_core.memory import Hold, Memory, token_keys


def memory(windows: tuple[int | None, ...] = (None,), pages: int = 32, rows: int = 4) -> Memory:
    return Memory([PageGroup(w, 1, 1, pages) for w in windows], context=512, rows=rows)


def text(*parts: tuple[int, int]) -> np.ndarray:
    """So many tokens of each kind, one after another."""
    return np.concatenate(
        [np.arange(kind * 1000, kind * 1000 + count) for kind, count in parts]
    ).astype(np.int32)


def read(made: Memory, tokens: np.ndarray, step: int = 50) -> tuple[Hold, int]:
    """Reads all of `tokens` as an engine does; gives how many were there already."""
    keys = token_keys(tokens)
    hold = made.open()
    cached = made.extend(hold, keys, len(tokens))
    while hold.length < len(tokens):
        count = min(step, len(tokens) - hold.length, made.room(hold))
        assert count > 0
        made.reserve(hold, count)
        made.advance(hold, count, keys)
    return hold, cached


@pytest.mark.parametrize(
    ("length", "again", "cached"),
    [(31, 31, 0), (32, 32, 0), (33, 33, 32), (64, 64, 32), (64, 65, 64), (200, 200, 192)],
)
def test_a_text_is_found_again_but_for_its_last_token(length: int, again: int, cached: int) -> None:
    made = memory()
    hold, none = read(made, text((1, length)))
    assert none == 0
    made.close(hold)
    hold, found = read(made, text((1, again)))
    assert found == cached
    made.close(hold)


def test_two_that_begin_alike_store_it_once() -> None:
    made = memory()
    first, _ = read(made, text((1, 100), (2, 20)))
    second, cached = read(made, text((1, 100), (3, 20)))
    assert cached == 96
    table = made.tables[0]
    assert (table[first.row, :3] == table[second.row, :3]).all()
    assert table[first.row, 3] != table[second.row, 3]
    assert made.pools[0].free == 32 - 3 - 1 - 1
    made.close(first)
    assert made.pools[0].free == 32 - 3 - 1
    made.close(second)
    assert (made.pools[0].free, made.pools[0].idle, made.tree.nodes) == (29, 3, 3)


def test_a_page_that_two_read_at_once_is_kept_once() -> None:
    made = memory()
    tokens = text((1, 64))
    keys = token_keys(tokens)
    first, second = made.open(), made.open()
    for hold in (first, second):
        assert made.extend(hold, keys, 64) == 0
        made.reserve(hold, 64)
    assert made.pools[0].free == 28
    for hold in (first, second):
        made.advance(hold, 64, keys)
    assert made.pools[0].free == 30
    assert (made.tables[0][first.row] == made.tables[0][second.row]).all()
    made.close(first)
    made.close(second)
    assert (made.pools[0].free, made.pools[0].idle) == (30, 2)


def test_a_text_takes_over_what_another_has_read_meanwhile() -> None:
    made = memory((None, 40))
    tokens = text((1, 200))
    keys = token_keys(tokens)
    late = made.open()
    made.reserve(late, 32)
    made.advance(late, 32, keys)
    early, cached = read(made, tokens)
    assert cached == 32
    assert made.extend(late, keys, 200) == 160
    assert late.length == 192
    made.reserve(late, 4)
    made.advance(late, 4, keys)
    assert made.extend(late, keys, 200) == 0  # it stands in the middle of a page
    made.close(late)
    made.close(early)
    assert all(pool.available == pool.pages for pool in made.pools)


def test_the_same_tokens_after_other_tokens_are_other_pages() -> None:
    made = memory()
    hold, _ = read(made, text((1, 32), (2, 32), (3, 32)))
    made.close(hold)
    hold, cached = read(made, text((2, 32), (3, 32), (4, 1)))
    assert cached == 0
    made.close(hold)


def test_an_extra_key_parts_what_has_the_same_ids() -> None:
    made = memory()
    tokens = text((1, 70))
    for extra, cached in (({1: b"a"}, 0), ({1: b"b"}, 32), ({1: b"a"}, 64), (None, 32)):
        hold = made.open()
        keys = token_keys(tokens, extra)
        assert made.extend(hold, keys, 70) == cached
        made.reserve(hold, 70 - cached)
        made.advance(hold, 70 - cached, keys)
        made.close(hold)


@pytest.mark.parametrize("window", [1, 20, 32, 33, 64, 65, 100])
def test_a_hit_needs_what_its_window_reads(window: int) -> None:
    made = memory((None, window))
    hold, _ = read(made, text((1, 160)))
    made.close(hold)
    needed = range((160 - window + 1) // PAGE, 5)
    hold = made.open()
    assert made.extend(hold, token_keys(text((1, 161))), 161) == 160
    assert np.flatnonzero(made.tables[1][hold.row] >= 0).tolist() == list(needed)
    made.close(hold)
    # Without the last of these only what ends before it can be used.
    node = made.tree.root
    while node.children:
        (node,) = node.children.values()
    made.pools[1].forget(node.pages[1])
    node.pages[1] = -1
    hold = made.open()
    cached = made.extend(hold, token_keys(text((1, 161))), 161)
    assert cached == (160 if window == 1 else 128)
    made.close(hold)


def test_the_longest_unused_goes_first_and_leaves_before_their_parents() -> None:
    made = memory(pages=16)
    for kind in (1, 2, 3):
        hold, _ = read(made, text((kind, 128)))
        made.close(hold)
    hold, cached = read(made, text((1, 129)))  # used again, so the youngest
    assert cached == 128
    made.close(hold)
    assert made.pools[0].idle == 12
    hold, _ = read(made, text((4, 192)))  # four free pages and two more
    made.close(hold)
    for kind, left in ((2, 64), (1, 128), (3, 128), (4, 192)):
        hold = made.open()
        tokens = text((kind, 200))
        assert made.extend(hold, token_keys(tokens), 200) == left, kind
        made.close(hold)


def test_what_is_in_use_is_never_evicted() -> None:
    made = memory(pages=16)
    held, _ = read(made, text((1, 256)))
    pages = made.tables[0][held.row].copy()
    for kind in range(2, 9):
        hold, _ = read(made, text((kind, 200)))
        made.close(hold)
    assert (made.tables[0][held.row] == pages).all()
    made.close(held)


def test_a_page_behind_its_window_is_given_up_before_it_is_missed() -> None:
    made = Memory([PageGroup(None, 1, 1, 16), PageGroup(40, 1, 1, 4)], context=512, rows=2)
    hold, _ = read(made, text((1, 400)), step=20)  # 13 pages of the window group, in turn
    assert made.pools[1].pages == 4
    made.close(hold)
    hold = made.open()
    assert made.extend(hold, token_keys(text((1, 401))), 401) == 384
    made.close(hold)


def test_queues_do_not_grow_with_what_was_done() -> None:
    made = memory((None, 40))
    for _ in range(500):
        hold, _ = read(made, text((1, 140)))
        made.close(hold)
    assert len(made.tree._leaves) < 100
    assert len(made.tree._idle[1]) < 100


def test_a_tree_of_windows_alone_does_not_keep_empty_nodes() -> None:
    made = memory((40,), pages=8)
    for kind in range(50):
        hold, _ = read(made, text((kind, 100)))
        made.close(hold)
    assert made.tree.nodes <= 8 + 3


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 90), st.booleans()),
        max_size=60,
    ),
    windows=st.sampled_from([(None,), (None, 20), (40,), (None, 1, 70)]),
    pages=st.integers(16, 24),
)
def test_no_page_is_lost_or_held_twice(
    steps: list[tuple[int, int, int, bool]], windows: tuple, pages: int
) -> None:
    """Four places; in each a text begins, goes on by some positions, or ends."""
    made = memory(windows, pages)
    held: dict[int, tuple[Hold, np.ndarray]] = {}
    for place, kind, count, ends in steps:
        if place not in held:
            tokens = text((0, 40 * kind), (kind + place // 2, 512 - 40 * kind))
            hold = made.open()
            made.extend(hold, token_keys(tokens), 300)
            held[place] = hold, tokens
        hold, tokens = held[place]
        count = min(count, made.room(hold), 512 - hold.length)
        if ends or count < 1:
            made.close(hold)
            del held[place]
        else:
            made.reserve(hold, count)
            made.advance(hold, count, token_keys(tokens))
        check(made, [hold for hold, _ in held.values()])
    for hold, _ in held.values():
        made.close(hold)
    check(made, [])
    made.tree.clear()
    assert made.tree.nodes == 0
    assert all(pool.free == pool.pages for pool in made.pools)


def check(made: Memory, holds: list[Hold]) -> None:
    """Every count is what the tables and the tree say."""
    nodes = []
    pending = list(made.tree.root.children.values())
    while pending:
        node = pending.pop()
        nodes.append(node)
        pending += node.children.values()
    assert len(nodes) == made.tree.nodes
    for node in nodes:
        assert node.users == sum(node in hold.nodes for hold in holds)
    for group, pool in enumerate(made.pools):
        counts = [0] * pool.pages
        kept = [node.pages[group] for node in nodes if node.pages[group] >= 0]
        assert len(set(kept)) == len(kept)
        for page in [*kept, *made.tables[group][made.tables[group] >= 0].tolist()]:
            counts[page] += 1
        assert counts == [pool.holders(page) for page in range(pool.pages)]
        assert pool.free == counts.count(0)
        assert pool.idle == sum(counts[page] == 1 for page in kept)
