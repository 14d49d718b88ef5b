"""Rows that nobody asks for are left out, and the others keep their bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golem_core.cpu.lower import lower
from golem_core.graph import Graph
from golem_core.graph.prune import prune

from .carrying import record_mixture, record_recurrent, write_mixture, write_recurrent
from .programs import BLOCKS, batch, record, write
from .test_program import tokens


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return record(write(tmp_path / "tiny.gguf", "Q8_0"))


def rows(graph: Graph) -> dict[str, str]:
    return {op.name: op.output.rows for op in graph.ops if op.output is not None}


def test_behind_the_last_keys_and_values_only_wanted_rows_are_computed(graph: Graph) -> None:
    before, after = rows(graph), rows(prune(graph, ()))
    last = f"blk.{BLOCKS - 1}."
    for name in ("attn_q", "q_rope", "attend", "attn_output", "ffn_gate", "ffn_down", "out"):
        assert (before[last + name], after[last + name]) == ("n", "m")
    for name in ("attn_k", "attn_v", "k_rope", "attn_norm"):
        assert after[last + name] == "n"
    assert all(after[name] == "n" for name in after if name.startswith("blk.1."))


def test_what_is_asked_for_by_name_stays_whole(graph: Graph) -> None:
    last = f"blk.{BLOCKS - 1}."
    after = rows(prune(graph, (last + "attn_output",)))
    assert after[last + "attend"] == after[last + "attn_output"] == "n"
    assert after[last + "ffn_gate"] == "m"
    names = tuple(graph.named())
    assert rows(prune(graph, names)) == rows(graph)


def test_a_scan_needs_every_row(tmp_path: Path) -> None:
    graph = record_recurrent(write_recurrent(tmp_path / "recurrent.gguf", "F32"))
    after = prune(graph, ())
    found = rows(after)
    assert found["blk.1.delta"] == found["blk.1.out"] == "n"  # `previous` keeps what comes of it
    assert after.part("drafting") == graph.part("drafting")


def test_a_mixture_asks_for_the_wanted_rows_alone(tmp_path: Path) -> None:
    weights = write_mixture(tmp_path / "mixture.gguf", "Q8_0")
    after = rows(prune(record_mixture(weights), ()))
    # Nothing is kept from row to row here: all but the table is of the wanted rows.
    assert {name for name, symbol in after.items() if symbol == "n"} == {"token_embd"}
    whole, some = (run_mixture(weights, wanted) for wanted in (range(20), (3, 4, 19)))
    assert np.array_equal(whole[[3, 4, 19]], some)


def run_mixture(weights, wanted) -> np.ndarray:
    made = lower(
        record_mixture(weights), device="cpu", width=32, outputs=32, pages=(), states=0,
        guesses=0, threads=2, kv="f16", keep=(),
    )  # fmt: skip
    one = batch([(tokens(3, 20), 0, [0])], groups=0)
    one.ids %= 97
    one.outputs = np.array(list(wanted), np.int32)
    return made.run(one).copy()


@pytest.mark.parametrize("format", ["F32", "Q8_0", "Q4_0"])
def test_asking_for_fewer_rows_changes_no_bit(format: str, tmp_path: Path) -> None:
    weights = write(tmp_path / "tiny.gguf", format)
    made = lower(
        record(weights), device="cpu", width=512, outputs=256, pages=(24, 24), states=0,
        guesses=0, threads=2, kv="f16", keep=(),
    )  # fmt: skip
    spans = [(tokens(3, 75), 0, [5, 2, 9]), (tokens(4, 9), 0, [1]), (tokens(5, 40), 0, [7, 8])]
    everything = batch(spans)
    whole = made.run(everything).copy()
    for wanted in ([83], [0, 1, 2, 74, 75, 83, 84, 100, 123], [5], list(range(60, 110))):
        some = batch(spans)
        some.outputs = np.array(wanted, np.int32)
        assert np.array_equal(made.run(some), whole[wanted]), wanted
