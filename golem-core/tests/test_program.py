"""A program of the processor against the reference, and independence of all but its own rows."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from golem_core.errors import BadRequest, Unsupported
from golem_core.graph import PAGE, Program, compile
from golem_core.graph.ops import OPS
from golem_core.reference.program import Pages
from golem_core.weights import Weights
from golem_core.weights.formats import Format

from .programs import VOCABULARY, batch, record, write

FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
PAGES = 24


def tokens(seed: int, count: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count).tolist()


def program(weights: Weights, **options) -> Program:
    return compile(record(weights), **{"pages": (PAGES, PAGES), "kv": "f32", **options})


@pytest.fixture(params=FORMATS)
def weights(request: pytest.FixtureRequest, tmp_path: Path) -> Weights:
    return write(tmp_path / "tiny.gguf", request.param)


@pytest.fixture
def plain(tmp_path: Path) -> Weights:
    return write(tmp_path / "tiny.gguf", "F32")


def whole(made: Program, ids: list[int], pages: list[int], piece: int = 512) -> np.ndarray:
    """The logits of every position, read in pieces."""
    rows = []
    for start in range(0, len(ids), piece):
        rows.append(made.run(batch([(ids[start : start + piece], start, pages)])).copy())
    return np.concatenate(rows)


def test_every_waypoint_is_the_reference(plain: Weights) -> None:
    # Both sides are float32; what is left is the order of the sums, over 4 blocks.
    ids = tokens(3, 75)
    one = batch([(ids, 0, [5, 2, 9]), (tokens(4, 9), 0, [1])])
    ours = program(plain, outputs=128, keep=None).trace(one)
    reference = program(plain, outputs=128, device="reference").trace(one)
    assert list(ours) == [name for name in reference]
    for name, value in reference.items():
        assert ours[name].shape == value.shape, name
        assert np.abs(ours[name] - value).max() <= 1e-5 * np.abs(value).max(), name


def coded(x: np.ndarray) -> np.ndarray:
    """Columns as the products of integers read them: 8 bits and a scale for each 32."""
    blocks = x.reshape(-1, 32).astype(np.float32)
    peak = np.abs(blocks).max(axis=1, keepdims=True)
    inverse = np.divide(np.float32(127), peak, out=np.zeros_like(peak), where=peak > 0)
    codes, scale = np.round(blocks * inverse), peak / np.float32(127)
    return (codes * scale).reshape(x.shape)


def prepared(x: np.ndarray, format: Format) -> np.ndarray:
    """Columns as the products of a format read them."""
    if format.name != "BF16" or format.quantize is None:
        return coded(x) if format.block > 1 else x
    return format.dequantize(format.quantize(x.reshape(-1))).reshape(x.shape)


def test_every_operation_is_its_reference(weights: Weights) -> None:
    # Each operation on what it was given here: a rounding that tips a code over cannot spread.
    # Both sides are float32; what is left is the order of the sums.
    format = weights.tensors["blk.0.attn_q.weight"].format
    one = batch([(tokens(3, 75), 0, [5, 2, 9]), (tokens(4, 9), 0, [1])])
    graph = record(weights)
    ours = program(weights, outputs=128, keep=None).trace(one)
    kept = [np.zeros((2, PAGES, PAGE, c.heads, c.dim), np.float32) for c in graph.caches]
    setting = Pages(kept, ([], [], 0), one, True, {})
    for op in graph.ops:
        inputs = [ours[t.name] for t in op.inputs]
        if op.kind == "linear":
            inputs = [prepared(inputs[0], format)]
        floats = [w.floats() for w in op.weights]
        expected = OPS[op.kind].reference(setting, inputs, floats, op.attributes)
        if expected is not None:
            off = np.abs(ours[op.name] - expected).max()
            assert off <= 4e-6 * np.abs(expected).max(), op.name


def test_fusing_changes_no_bit(weights: Weights) -> None:
    one = batch([(tokens(3, 75), 0, [5, 2, 9])])
    fused = program(weights, outputs=128).run(one).copy()
    kept = program(weights, outputs=128, keep=None).trace(one)
    assert np.array_equal(fused, kept["logits"])


def test_a_sequence_does_not_see_its_company(weights: Weights) -> None:
    ids = tokens(3, 75)
    alone = whole(program(weights, outputs=128, threads=1), ids, [0, 1, 2])
    for threads in (1, 2):
        made = program(weights, outputs=512, threads=threads)
        for piece in (1, 7, 32):
            assert np.array_equal(whole(made, ids, [7, 3, 11], piece), alone), (threads, piece)
        others = [(tokens(10 + i, 20 + i), 0, [12 + i]) for i in range(7)]
        others[3] = (others[3][0], 0, [20])
        crowd = made.run(batch([*others[:4], (ids, 0, [1, 0, 9]), *others[4:]]))
        first = sum(len(o[0]) for o in others[:4])
        assert np.array_equal(crowd[first : first + len(ids)], alone), threads


def test_what_a_page_held_before_does_not_matter(plain: Weights) -> None:
    made = program(plain, outputs=128)
    ids = tokens(3, 40)
    clean = whole(made, ids, [0, 1])
    whole(made, tokens(8, 64), [2, 3])
    assert np.array_equal(whole(made, ids, [3, 2]), clean)


def test_a_window_reads_no_page_behind_it(plain: Weights) -> None:
    made = program(plain, outputs=128)
    ids = tokens(3, 100)
    before = whole(made, ids, [0, 1, 2, 3])
    made.run(batch([(ids[:99], 0, [0, 1, 2, 3])]))
    last = batch([(ids[99:], 99, [0, 1, 2, 3])])
    last.pages[0][0, 0] = -1  # group 0 has the window of 40 positions
    assert np.array_equal(made.run(last)[0], before[99])


def test_rows_without_logits_are_not_computed(plain: Weights) -> None:
    made = program(plain)
    first = batch([(tokens(3, 31), 0, [0])])
    first.outputs = first.outputs[:0]
    assert made.run(first).shape == (0, VOCABULARY)
    assert made.run(batch([(tokens(5, 1), 31, [0])])).shape == (1, VOCABULARY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b.ids.__setitem__(3, VOCABULARY), r"token id 211 is outside 0\.\.210"),
        (lambda b: b.ids.__setitem__(0, -1), "token id -1"),
        (lambda b: b.pages[1].__setitem__((0, 1), -1), "page -1 of 24 at position 32"),
        (lambda b: b.pages[0].__setitem__((0, 0), PAGES), "page 24 of 24 at position 0"),
        (lambda b: b.positions.__setitem__(0, 96), "position 96 has no entry"),
        (lambda b: b.sequence.__setitem__(5, 1), "sequence 1 of 1"),
        (lambda b: b.outputs.__setitem__(0, 40), "output row 40 of 40"),
    ],
)
def test_a_batch_outside_its_bounds_is_refused(plain: Weights, change, message: str) -> None:
    one = batch([(tokens(3, 40), 0, [0, 1, 2])])
    change(one)
    with pytest.raises(ValueError, match=message):
        program(plain).run(one)


def test_a_pass_wider_than_the_program_is_refused(plain: Weights) -> None:
    with pytest.raises(ValueError, match="a pass of 33 columns; this program takes 1 to 32"):
        program(plain, width=32).run(batch([(tokens(3, 33), 0, [0, 1])]))


def test_an_unknown_device_and_waypoint_are_named(plain: Weights) -> None:
    with pytest.raises(BadRequest, match="no device 'gpu'; golem has reference, cpu, vulkan"):
        program(plain, device="gpu")
    with pytest.raises(BadRequest, match=r"no waypoint blk\.9\.x"):
        program(plain, keep=("blk.9.x",))
    with pytest.raises(BadRequest, match="was not kept"):
        program(plain).trace(batch([([1], 0, [0])]), ["blk.0.attend"])


def test_a_format_without_a_kernel_is_named(tmp_path: Path) -> None:
    graph = record(write(tmp_path / "tiny.gguf", "F32"))
    stored = graph.weights.tensors["blk.1.ffn_up.weight"]
    object.__setattr__(
        stored, "format", type(stored.format)(**{**vars(stored.format), "name": "I8"})
    )
    with pytest.raises(Unsupported, match=r"blk\.1\.ffn_up\.weight is I8"):
        compile(graph)


def test_a_pass_lets_other_threads_run(plain: Weights) -> None:
    made = program(plain, threads=1)
    ticks, stop = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            stop.wait(0.0002)

    ticker = threading.Thread(target=tick)
    one = batch([(tokens(3, 40), 0, [0, 1])])
    ticker.start()
    before = ticks
    for _ in range(100):
        made.run(one)
    after = ticks
    stop.set()
    ticker.join()
    assert after - before > 10


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_workers_of_its_own(plain: Weights) -> None:
    made = program(plain, threads=2)
    one = batch([(tokens(3, 40), 0, [0, 1])])
    expected = made.run(one).copy()
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(made.run(one), expected) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_closed_program_says_so(plain: Weights) -> None:
    made = program(plain)
    made.close()
    made.close()
    with pytest.raises(ValueError, match="not finished, or closed"):
        made.run(batch([([1], 0, [0])]))


def test_logits_outlive_their_program(plain: Weights) -> None:
    one = batch([([1, 2, 3], 0, [0])])
    made = program(plain)
    expected = made.run(one).copy()
    logits = made.run(one)
    made.close()
    del made
    assert np.array_equal(logits, expected)


def test_a_program_in_a_cycle_is_collected(plain: Weights) -> None:
    made = program(plain)
    made.self = made
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
