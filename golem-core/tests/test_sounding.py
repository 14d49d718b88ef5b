"""Programs of sound: the reference, company, cuts, workers, keys and values from outside."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core.errors import Unsupported
from golem_core.graph import PAGE, Batch, Graph, Program, compile
from golem_core.graph.record import COLUMNS, PICKED, at_rate, rate
from golem_core.weights import Weights, open_weights

from .sounding import HEAD, WIDTH, record_sounding, write_sounding

SLOTS, PAGES = 4, 12


@pytest.fixture(params=["F32", "F16"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Graph:
    return record_sounding(write_sounding(tmp_path / "sounding.gguf", request.param))


def compiled(graph: Graph, device: str, **options) -> Program:
    usual = {"width": 40, "outputs": 40, "pages": (PAGES,), "states": SLOTS, "kv": "f32"}
    return compile(graph, device, **{**usual, **options})


def sound(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 2, WIDTH)).astype(np.float32)


class Take:
    """A sequence that is read in pieces: its slot and its pages are its number's."""

    def __init__(self, number: int, rows: np.ndarray) -> None:
        self.number, self.rows, self.at = number, rows, 0
        self.table = np.arange(3 * number, 3 * number + 3, dtype=np.int32)

    def piece(self, count: int) -> tuple[int, np.ndarray, int]:
        start, self.at = self.at, self.at + count
        return start, self.rows[start : self.at], -1 if start == 0 else self.number


def run(program: Program, *pieces: tuple[Take, int], names=None) -> np.ndarray | dict:
    """One pass of pieces of sequences, every row of it wanted."""
    positions, sequence, keeps, steps, states = [], [], [], [], []
    for i, (take, count) in enumerate(pieces):
        start, rows, slot = take.piece(count)
        positions += range(start, start + count)
        sequence += [i] * count
        keeps += [-1] * (count - 1) + [take.number]
        steps.append(rows)
        states.append(slot)
    rows = np.concatenate(steps)
    n = len(positions)
    batch = Batch(
        ids=np.zeros(n, np.int32),
        positions=np.array(positions, np.int32),
        sequence=np.array(sequence, np.int32),
        pages=(np.stack([take.table for take, _ in pieces]),),
        outputs=np.arange(n, dtype=np.int32),
        states=np.array(states, np.int32),
        keeps=np.array(keeps, np.int32),
        inputs={"steps": rows[:, 0], "noise": rows[:, 1]},
    )
    return program.run(batch).copy() if names is None else program.trace(batch, names)


def test_rows_have_rates() -> None:
    assert (rate(COLUMNS), rate(PICKED), rate("n*30")) == (1, 1, 30)
    assert (at_rate(1), at_rate(6)) == (COLUMNS, "n*6")


def test_every_waypoint_is_that_of_the_reference(graph: Graph) -> None:
    names = list(graph.named())
    rows = sound(33)
    expected, got = (
        run(compiled(graph, device, keep=None), (Take(0, rows), 33), names=names)
        for device in ("reference", "cpu")
    )
    for name in names:
        assert expected[name].shape == got[name].shape, name
        np.testing.assert_allclose(got[name], expected[name], atol=2e-5, err_msg=name)


def test_fusing_changes_no_bit(graph: Graph) -> None:
    rows = sound(33)
    plain = run(compiled(graph, "cpu", keep=None), (Take(0, rows), 33))
    assert np.array_equal(run(compiled(graph, "cpu"), (Take(0, rows), 33)), plain)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_alone_in_company_and_in_pieces(graph: Graph, workers: int) -> None:
    rows = [sound(37, seed) for seed in range(3)]
    alone = compiled(graph, "cpu", threads=1)
    whole = [run(alone, (Take(i, r), 37)) for i, r in enumerate(rows)]
    program = compiled(graph, "cpu", threads=workers)
    takes = [Take(i, r) for i, r in enumerate(rows)]
    found: list[list[np.ndarray]] = [[], [], []]
    rng = np.random.default_rng(3)
    while any(take.at < 37 for take in takes):
        pieces = []
        for take in takes:
            count = int(rng.choice([0, 1, 2, 5, 9, 13]))
            if count := min(count, 37 - take.at):
                pieces.append((take, count))
        if not pieces:
            continue
        result = run(program, *pieces)
        at = 0
        for take, count in pieces:
            found[take.number].append(result[at : at + count])
            at += count
    for number, pieces in enumerate(found):
        assert np.array_equal(np.concatenate(pieces), whole[number])


def one_matrix(path: Path, rows: int, cols: int) -> Weights:
    """A file with one matrix in 8 bits."""
    kind = gguf.GGMLQuantizationType.Q8_0
    file = gguf.GGUFWriter(path, "tiny")
    values = np.random.default_rng(2).standard_normal((rows, cols), dtype=np.float32)
    file.add_tensor("w.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return open_weights(path)


@pytest.mark.parametrize("workers", [1, 3])
def test_windows_of_codes_are_rows_of_codes(tmp_path: Path, workers: int) -> None:
    taps, size, fast, n = 3, 64, 4, 33
    weights = one_matrix(tmp_path / "coded.gguf", 48, taps * size)
    g = Graph(weights)
    x = g.split(g.input("steps", (fast * size,)), fast)
    weight = g.weight("w.weight", (48, taps * size))
    x = g.convolve(x, weight, None, g.state((taps - 1, size)), name="windows")
    g.result = g.pick(g.join(x, fast), name="result")
    program = compile(g, "cpu", width=2 * n, outputs=2 * n, states=2, threads=workers)
    steps = np.random.default_rng(3).standard_normal((2, n, fast * size)).astype(np.float32)

    # The same windows as the columns of a plain product: their blocks have the same codes.
    plain = Graph(weights)
    y = plain.linear(plain.input("rows", (taps * size,)), plain.weight("w.weight", (48, 192)))
    plain.result = plain.pick(y, name="result")
    rows = np.concatenate([np.zeros((2, taps - 1, size), np.float32),
                           steps.reshape(2, n * fast, size)], axis=1)  # fmt: skip
    windows = np.lib.stride_tricks.sliding_window_view(rows, taps, axis=1).transpose(0, 1, 3, 2)
    count = 2 * n * fast
    product = compile(plain, "cpu", width=count, outputs=count, threads=1)
    order = np.arange(count, dtype=np.int32)
    expected = product.run(
        Batch(ids=np.zeros(count, np.int32), positions=order, sequence=np.zeros(count, np.int32),
              pages=(), outputs=order, inputs={"rows": windows.reshape(count, -1).copy()})
    ).reshape(2, n, -1)  # fmt: skip

    found: list[list[np.ndarray]] = [[], []]
    for start, end in ((0, 1), (1, 9), (9, n)):  # both sequences, in pieces
        m = end - start
        keeps = np.full(2 * m, -1, np.int32)
        keeps[m - 1], keeps[-1] = 0, 1
        states = np.array([0, 1], np.int32) if start else np.full(2, -1, np.int32)
        result = program.run(
            Batch(ids=np.zeros(2 * m, np.int32),
                  positions=np.array([*range(start, end)] * 2, np.int32),
                  sequence=np.repeat(np.arange(2), m).astype(np.int32), pages=(),
                  outputs=np.arange(2 * m, dtype=np.int32), states=states, keeps=keeps,
                  inputs={"steps": steps[:, start:end].reshape(2 * m, -1)})
        )  # fmt: skip
        for sequence in range(2):
            found[sequence].append(result[sequence * m : (sequence + 1) * m].copy())
    for sequence in range(2):
        assert np.array_equal(np.concatenate(found[sequence]), expected[sequence])


def test_codes_of_rows_at_a_rate_have_room(tmp_path: Path) -> None:
    g = Graph(one_matrix(tmp_path / "coded.gguf", 32, 32))
    fast = g.split(g.input("steps", (256,)), 8)
    slow = g.join(g.linear(fast, g.weight("w.weight", (32, 32)), name="point"), 8)
    g.result = g.pick(slow, name="result")
    n = 40
    steps = np.random.default_rng(3).standard_normal((n, 256)).astype(np.float32)
    zeros = np.zeros(n, np.int32)
    batch = Batch(
        ids=zeros, positions=np.arange(n, dtype=np.int32), sequence=zeros, pages=(),
        outputs=np.arange(n, dtype=np.int32), inputs={"steps": steps},
    )  # fmt: skip
    expected = compile(g, "reference", width=n, outputs=n).run(batch).copy()
    for width in (n, 512):
        program = compile(g, "cpu", width=width, outputs=n)
        # 8 bits of an activation are half a percent of a block's greatest.
        np.testing.assert_allclose(program.run(batch), expected, atol=0.01 * np.abs(expected).max())


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_keys_and_values_are_put_and_got(graph: Graph, device: str, kv: str) -> None:
    program = compiled(graph, device, kv=kv)
    heads = WIDTH // HEAD
    made = np.random.default_rng(1).standard_normal((2, 45, heads, HEAD)).astype(np.float32)
    table = np.array([7, 2, 5], np.int32)
    program.put(table, 3, [made])
    (got,) = program.get(table, 3, 48)
    wanted = made if kv == "f32" else made.astype(np.float16).astype(np.float32)
    assert np.array_equal(got, wanted)
    (part,) = program.get(table, PAGE + 1, PAGE + 4)
    assert np.array_equal(part, wanted[:, PAGE - 2 : PAGE + 1])


def test_what_does_not_fit_is_refused(graph: Graph, tmp_path: Path) -> None:
    program = compiled(graph, "cpu")
    made = np.zeros((2, 4, WIDTH // HEAD, HEAD), np.float32)
    with pytest.raises(ValueError, match="positions in 1 pages"):
        program.put(np.zeros(1, np.int32), 30, [made])
    with pytest.raises(ValueError, match="page 99 at position 0"):
        program.put(np.array([99], np.int32), 0, [made])
    with pytest.raises(ValueError, match="heads of"):
        program.put(np.zeros(1, np.int32), 0, [made[..., :4]])
    with pytest.raises(ValueError, match="are wanted rows"):
        graph.split(graph.result, 2)
    fast = graph.split(graph.input("more", (4,)), 2)
    with pytest.raises(ValueError, match="which has rows n\\*2"):
        graph.pick(fast)
    with pytest.raises(ValueError, match="not to be joined 3"):
        graph.join(fast, 3)
    graph = record_sounding(write_sounding(tmp_path / "bf16.gguf", "BF16"))
    with pytest.raises(Unsupported, match=r"wide\.weight is BF16; the processor convolves with"):
        compiled(graph, "cpu")
    g = Graph(one_matrix(tmp_path / "coded.gguf", 16, 96))
    x = g.convolve(g.input("odd", (48,)), g.weight("w.weight", (16, 96)), None, g.state((1, 48)))
    g.result = g.pick(x, name="result")
    with pytest.raises(Unsupported, match="rows of whole blocks of 32 with Q4_0"):
        compile(g, "cpu", width=4, outputs=4, states=1)
