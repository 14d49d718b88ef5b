"""Mixtures of experts and carried states on the processor: the reference, company, cuts, slots."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golem_core.graph import PAGE, Batch, Graph, Program, compile
from golem_core.graph.ops import OPS
from golem_core.graph.record import DRAFTING, READING
from golem_core.reference.program import Pages
from golem_core.weights import Weights

from .carrying import (
    VOCABULARY,
    cut,
    record_mixture,
    record_recurrent,
    write_mixture,
    write_recurrent,
)
from .test_program import prepared

FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1")
RECORDS = {"mixture": record_mixture, "recurrent": record_recurrent}
WRITERS = {"mixture": write_mixture, "recurrent": write_recurrent}
SLOTS = 6


@pytest.fixture(params=FORMATS)
def mixture(request: pytest.FixtureRequest, tmp_path: Path) -> Weights:
    return write_mixture(tmp_path / "mixture.gguf", request.param)


@pytest.fixture(params=FORMATS)
def recurrent(request: pytest.FixtureRequest, tmp_path: Path) -> Weights:
    return write_recurrent(tmp_path / "recurrent.gguf", request.param)


@pytest.fixture(params=list(RECORDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def tokens(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()


def compiled(graph: Graph, **options) -> Program:
    pages = (8,) * len(graph.windows)
    return compile(graph, **{"pages": pages, "states": SLOTS, "kv": "f32", **options})


def batch(*spans: tuple[list[int], int, int, dict[int, int]], groups: int = 1) -> Batch:
    """Columns of sequences: (ids, first position, slot to read, slots to keep by column)."""
    ids, positions, sequence, keeps = [], [], [], []
    for index, (tokens, start, _slot, kept) in enumerate(spans):
        ids += tokens
        positions += range(start, start + len(tokens))
        sequence += [index] * len(tokens)
        keeps += [kept.get(i, -1) for i in range(len(tokens))]
    table = np.arange(len(spans) * 2, dtype=np.int32).reshape(len(spans), 2)
    return Batch(
        np.array(ids, np.int32),
        np.array(positions, np.int32),
        np.array(sequence, np.int32),
        (table,) * groups,
        np.arange(len(ids), dtype=np.int32),
        np.array([slot for _, _, slot, _ in spans], np.int32),
        np.array(keeps, np.int32),
    )


def grouped(program: Program, *spans: tuple[list[int], int, int, dict[int, int]]) -> Batch:
    return batch(*spans, groups=len(program.groups))


def whole(program: Program, ids: list[int], pieces: tuple[int, ...] = ()) -> np.ndarray:
    """The logits of every position, read in pieces with slot 2."""
    rows, at = [], 0
    for piece in cut(ids, pieces):
        one = grouped(program, (piece, at, 2 if at else -1, {len(piece) - 1: 2}))
        rows.append(program.run(one).copy())
        at += len(piece)
    return np.concatenate(rows)


@pytest.mark.parametrize("format", FORMATS)
def test_every_operation_is_its_reference(kind: str, format: str, tmp_path: Path) -> None:
    # Each operation on what it was given here; what is left is the order of float32 sums.
    weights = WRITERS[kind](tmp_path / "tiny.gguf", format)
    graph = RECORDS[kind](weights)
    program = compiled(RECORDS[kind](weights), outputs=64, keep=None)
    program.run(grouped(program, (tokens(8, 9), 0, -1, {8: 3}), (tokens(9, 4), 0, -1, {3: 1})))
    one = grouped(program, (tokens(3, 21), 9, 3, {20: 3}), (tokens(4, 5), 4, 1, {0: 0, 4: 5}))
    ours = program.trace(one)
    assert any(op.kind in ("linear_experts", "delta") for op in graph.ops)
    for op in graph.part(READING):
        if op.kind in ("conv", "delta", "previous"):
            continue  # of what came before only this program knows: the next test
        inputs = [ours[t.name] for t in op.inputs]
        stored = op.weights[0].stored.format if op.weights else None
        if op.kind in ("linear", "linear_experts") and stored is not None:
            inputs[0] = prepared(inputs[0], stored)
        if op.kind == "store":
            continue
        setting = Pages([], ([], [], 0), one, True, {})
        floats = [w.floats() for w in op.weights]
        expected = OPS[op.kind].reference(setting, inputs, floats, op.attributes)
        assert expected is not None
        off = np.abs(ours[op.name] - expected).max()
        assert off <= 4e-6 * np.abs(expected).max(), op.name


def test_both_passes_are_the_reference(kind: str, tmp_path: Path) -> None:
    # Float32 on both sides over two blocks; what is left is the order of the sums.
    weights = WRITERS[kind](tmp_path / "tiny.gguf", "F32")
    programs = [
        compiled(RECORDS[kind](weights), device=d, outputs=64) for d in ("cpu", "reference")
    ]
    assert programs[0].groups[:0] == programs[1].groups[:0]
    spans = [
        [(tokens(8, 9), 0, -1, {8: 3}), (tokens(9, 4), 0, -1, {1: 4, 3: 1})],
        [(tokens(3, 21), 9, 3, {20: 3}), (tokens(4, 5), 2, 4, {0: 0, 4: 5})],
        [(tokens(5, 1), 30, 3, {0: 3}), (tokens(6, 1), 3, 0, {0: 0})],
    ]
    for span in spans:
        got, wanted = (p.run(grouped(p, *span)).copy() for p in programs)
        assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
        if programs[1].drafts:
            next = [([7], s[1] + len(s[0]), s[3][len(s[0]) - 1], {}) for s in span]
            got, wanted = (p.draft(grouped(p, *next)).copy() for p in programs)
            assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_text_does_not_see_its_cuts_or_its_company(
    kind: str, format: str, threads: int, tmp_path: Path
) -> None:
    weights = WRITERS[kind](tmp_path / "tiny.gguf", format)
    ids = tokens(3, 60)
    alone = whole(compiled(RECORDS[kind](weights), outputs=64, threads=1), ids)
    program = compiled(RECORDS[kind](weights), outputs=256, threads=threads)
    for pieces in ((1,) * 60, (7,) * 9, (32, 28), (2, 1, 3, 31, 23)):
        assert np.array_equal(whole(program, ids, pieces), alone), pieces
    others = [(tokens(20 + i, 5 + 6 * i), 0, -1, {0: 3 + i}) for i in range(3)]
    crowd = program.run(grouped(program, *others[:2], (ids, 0, -1, {}), others[2]))
    first = sum(len(other[0]) for other in others[:2])
    assert np.array_equal(crowd[first : first + 60], alone)


def test_fusing_changes_no_bit(mixture: Weights) -> None:
    ids = tokens(3, 40)
    fused = whole(compiled(record_mixture(mixture), outputs=64), ids)
    kept = compiled(record_mixture(mixture), outputs=64, keep=None)
    assert np.array_equal(fused, whole(kept, ids))


def test_a_slot_takes_a_text_back_to_where_it_was_kept(recurrent: Weights) -> None:
    ids, other = tokens(3, 40), tokens(4, 10)
    program = compiled(record_recurrent(recurrent), outputs=64)
    straight = whole(program, ids)
    # Kept in the middle of a pass, after each of two columns, and in place at the end.
    first = program.run(grouped(program, (ids[:20], 0, -1, {11: 0, 12: 4, 19: 2}))).copy()
    assert np.array_equal(first, straight[:20])
    for at, slot in ((12, 0), (13, 4), (20, 2)):
        astray = grouped(program, (other, at, slot, {9: 5}))
        program.run(astray)  # must leave the slot that it reads as it is
        again = program.run(grouped(program, (ids[at:], at, slot, {39 - at: 5})))
        assert np.array_equal(again, straight[at:]), at


def test_a_slot_may_be_written_over_while_it_is_read(recurrent: Weights) -> None:
    ids = tokens(3, 12)
    program = compiled(record_recurrent(recurrent), outputs=64)
    straight = whole(program, ids)
    program.run(grouped(program, (ids[:6], 0, -1, {5: 1})))
    for first, second in ((1, 0), (0, 1)):
        program.run(grouped(program, (ids[6:8], 6, 1, {0: first, 1: second})))
        after = program.run(grouped(program, (ids[8:], 8, second, {}))).copy()
        assert np.array_equal(after, straight[8:])
        back = program.run(grouped(program, (ids[7:], 7, first, {}))).copy()
        assert np.array_equal(back, straight[7:])
        program.run(grouped(program, (ids[:6], 0, -1, {5: 1})))


def test_a_drafting_pass_changes_nothing_that_reading_sees(recurrent: Weights) -> None:
    ids = tokens(3, 40)
    program = compiled(record_recurrent(recurrent), outputs=64)
    straight = whole(program, ids)
    drafted = []
    for at in range(len(ids)):
        if at:
            next = grouped(program, ([ids[at]], at, 2, {}))
            drafted.append(program.draft(next).copy())
            assert np.array_equal(program.draft(next), drafted[-1])
        one = program.run(grouped(program, ([ids[at]], at, 2 if at else -1, {0: 2})))
        assert np.array_equal(one[0], straight[at])
    # What a pass in company drafts is what a pass alone drafts.
    program.run(grouped(program, (ids[:30], 0, -1, {29: 3})))
    two = grouped(program, ([ids[30]], 30, 3, {}), ([5], 0, -1, {}))
    assert np.array_equal(program.draft(two)[0], drafted[29][0])


def test_a_guess_goes_on_from_a_guess(recurrent: Weights) -> None:
    """Without Python between the guesses what it is with it, of a part of the vocabulary too."""
    ids = tokens(3, 13)
    program = compiled(record_recurrent(recurrent), outputs=16)
    assert program.chains
    program.run(grouped(program, (ids[:12], 0, -1, {11: 3})))
    two = grouped(program, (ids[12:], 12, 3, {}), ([5], 0, -1, {}))
    for reach in (VOCABULARY, 48, 7):
        guesses = program.guess(two, 3, reach)
        assert guesses.shape == (3, 2)
        assert guesses.max() < reach
        assert np.array_equal(guesses, Program.guess(program, two, 3, reach))
        alone = program.guess(grouped(program, (ids[12:], 12, 3, {})), 3, reach)
        assert np.array_equal(alone[:, 0], guesses[:, 0])
    assert two.positions.tolist() == [12, 0]
    for reach in (0, VOCABULARY + 1):
        with pytest.raises(ValueError, match="rows"):
            program.guess(two, 1, reach)


def test_a_further_draft_is_the_reference(tmp_path: Path) -> None:
    graph = record_recurrent(write_recurrent(tmp_path / "tiny.gguf", "F32"))
    drafts = []
    for device in ("cpu", "reference"):
        program = compiled(graph, device=device, outputs=16)
        program.run(grouped(program, (tokens(3, 12), 0, -1, {11: 3})))
        program.draft(grouped(program, ([7], 12, 3, {}), ([5], 0, -1, {})))
        rest = grouped(program, ([8], 13, 3, {}), ([6], 1, -1, {}))
        drafts.append(program.draft(rest, True).copy())
        assert not np.array_equal(program.draft(rest), drafts[-1])
    assert np.abs(drafts[0] - drafts[1]).max() <= 1e-5 * np.abs(drafts[1]).max()


def going_on(program: Program, span: tuple, replays: int, *others: tuple) -> Batch:
    """A pass whose first sequence goes on from so many columns behind the one that was kept."""
    one = grouped(program, span, *others)
    one.replays = np.array([replays, *[0] * len(others)], np.int32)
    return one


@pytest.mark.parametrize("slot", [1, 0])
@pytest.mark.parametrize("right", range(4))
def test_a_text_goes_on_from_the_guesses_that_were_right(
    recurrent: Weights, right: int, slot: int
) -> None:
    """Time after time, in the slot that it has or in others, alone and beside others."""
    ids = tokens(3, 44)
    straight = whole(compiled(record_recurrent(recurrent), outputs=64), ids)
    program = compiled(record_recurrent(recurrent), outputs=64, guesses=3)
    program.run(grouped(program, (ids[:12], 0, -1, {11: 1})))
    other = (tokens(5, 6), 0, -1, {2: 4, 5: 5})
    at, held, replays = 12, 1, 0
    while at < 40:
        wrong = [(t + 1) % VOCABULARY for t in ids[at + 1 + right : at + 4]]
        columns = [*ids[at : at + 1 + right], *wrong]
        next = slot if held != slot else 1
        one = going_on(program, (columns, at, held, {0: next}), replays, other)
        assert np.array_equal(program.run(one)[: 1 + right], straight[at : at + 1 + right]), at
        at, held, replays = at + 1 + right, next, right
    rest = program.run(going_on(program, (ids[at:], at, held, {}), replays))
    assert np.array_equal(rest, straight[at:])


def test_guesses_are_drafted_from_guesses_that_were_right(recurrent: Weights) -> None:
    ids = tokens(3, 20)
    program = compiled(record_recurrent(recurrent), outputs=64, guesses=2)
    for right in range(3):
        program.run(grouped(program, (ids[:14], 0, -1, {13: 1})))
        program.run(grouped(program, (ids[14 : 15 + right], 14, 1, {right: 2})))
        end = 15 + right
        wanted = program.draft(grouped(program, (ids[end : end + 1], end, 2, {}))).copy()
        program.run(grouped(program, ([*ids[14:end], 3, 5, 7][:3], 14, 1, {0: 0})))
        one = going_on(program, (ids[end : end + 1], end, 0, {}), right)
        assert np.array_equal(program.draft(one), wanted)
        assert np.array_equal(
            program.guess(one, 2, VOCABULARY), Program.guess(program, one, 2, VOCABULARY)
        )


def test_what_stands_behind_a_slot_is_the_reference(tmp_path: Path) -> None:
    # Float32 on both sides over two blocks; what is left is the order of the sums.
    weights = write_recurrent(tmp_path / "tiny.gguf", "F32")
    ids, rows = tokens(3, 20), []
    for device in ("cpu", "reference"):
        program = compiled(record_recurrent(weights), device=device, outputs=64, guesses=2)
        program.run(grouped(program, (ids[:9], 0, -1, {4: 3, 8: 1})))
        passes = [
            program.run(going_on(program, (ids[at:], at, 3, {}), at - 5)).copy() for at in (5, 6, 7)
        ]
        passes.append(program.draft(going_on(program, (ids[7:8], 7, 3, {}), 2)).copy())
        rows.append(np.concatenate(passes))
    assert np.abs(rows[0] - rows[1]).max() <= 1e-5 * np.abs(rows[1]).max()


def test_replays_are_checked(recurrent: Weights) -> None:
    program = compiled(record_recurrent(recurrent), outputs=64, guesses=2)
    for slot, replays in ((1, 3), (1, -1), (-1, 1)):
        with pytest.raises(ValueError, match="columns after slot"):
            program.run(going_on(program, ([1], 4, slot, {0: 1}), replays))
    one = going_on(program, ([1], 4, 1, {0: 1}), 1, ([1], 0, -1, {}))
    one.replays = one.replays[:1]
    with pytest.raises(ValueError, match="1 replays for 2 sequences"):
        program.run(one)


def test_slots_are_checked(recurrent: Weights) -> None:
    program = compiled(record_recurrent(recurrent), outputs=64)
    assert program.states is not None
    assert program.states.slots == SLOTS
    for slot, kept in ((SLOTS, {}), (-2, {}), (0, {0: SLOTS}), (0, {0: -2})):
        with pytest.raises(ValueError, match="slot"):
            program.run(grouped(program, ([1], 0, slot, kept)))
    missing = grouped(program, ([1], 0, -1, {}))
    missing.states = None
    with pytest.raises(ValueError, match="states"):
        program.run(missing)


def test_the_two_passes_share_no_value(recurrent: Weights) -> None:
    graph = record_recurrent(recurrent)
    written = {op.output for op in graph.part(READING)}
    assert all(t not in written for op in graph.part(DRAFTING) for t in op.inputs)
    assert all(op.name.startswith("draft.") for op in graph.part(DRAFTING))
    x = next(op.output for op in graph.part(READING) if op.output is not None)
    with graph.drafting(), pytest.raises(ValueError, match="drafting"):
        graph.scale(x, 2.0)
    assert PAGE == 32  # the tables of `batch` have room for 64 positions
