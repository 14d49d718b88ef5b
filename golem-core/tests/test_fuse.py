"""Stages hold what a record says, fused where it may be and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from golem_core.graph.fuse import fuse
from golem_core.graph.graph import Graph
from golem_core.graph.ops import OPS
from golem_core.graph.record import Tensor
from golem_core.graph.stages import AttendStage, ExpertStage, ProductStage, RowStage
from golem_core.graph.storage import storage

from .carrying import record_mixture, record_recurrent, write_mixture, write_recurrent
from .encoding import record_encoder, write_encoder
from .programs import BLOCKS, record, write
from .sounding import record_sounding, write_sounding

CODED = ("Q8_0",)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return record(write(tmp_path / "tiny.gguf", "Q8_0"))


def test_a_block_is_three_products_and_one_attention(graph: Graph) -> None:
    stages = fuse(graph, CODED, ())
    products = [s for s in stages if isinstance(s, ProductStage)]
    assert len([s for s in stages if isinstance(s, AttendStage)]) == BLOCKS
    assert len(products) == 4 * BLOCKS + 1  # qkv, output, gate and up, down; and the head
    qkv = products[0].products
    assert [p.weight.name for p in qkv] == [f"blk.0.attn_{x}.weight" for x in "qkv"]


def test_the_residual_and_the_gate_are_finished_in_the_product(graph: Graph) -> None:
    products = {
        p.out.name: p
        for s in fuse(graph, CODED, ())
        if isinstance(s, ProductStage)
        for p in s.products
    }
    residual = products["blk.0.attn_residual"].residual
    assert residual is not None
    assert residual.name == "scaled"
    glu = products["blk.0.ffn_act"]
    assert glu.gate is not None
    assert (glu.gate.name, glu.weight.name) == ("blk.0.ffn_gate.weight", "blk.0.ffn_up.weight")
    assert products["blk.3.ffn_up"].gate is None  # read twice


def test_one_input_is_quantised_once(graph: Graph) -> None:
    quantised = [
        t.name for s in fuse(graph, CODED, ()) if isinstance(s, RowStage) for t in s.quantise
    ]
    assert len(quantised) == len(set(quantised)) == 4 * BLOCKS + 1


def test_one_input_is_rounded_once_beside_its_codes(graph: Graph) -> None:
    formats = {w.stored.format.name for op in graph.ops if op.kind == "linear" for w in op.weights}
    stages = fuse(graph, CODED, (), rounded=sorted(formats))
    rows = [s for s in stages if isinstance(s, RowStage)]
    rounded = [t.name for s in rows for t in s.rounding]
    assert len(rounded) == len(set(rounded)) == 4 * BLOCKS + 1
    assert {t.name for s in rows for t in s.quantise} <= set(rounded)


def test_a_kept_waypoint_is_not_fused_away(graph: Graph) -> None:
    names = tuple(graph.named())
    stages = fuse(graph, CODED, names)
    written = set()
    for stage in stages:
        if isinstance(stage, RowStage):
            written |= {op.output.name for op in stage.ops if op.output is not None}
        elif isinstance(stage, ProductStage):
            written |= {p.out.name for p in stage.products}
        else:
            assert isinstance(stage, AttendStage)
            assert stage.op.output is not None
            written.add(stage.op.output.name)
    views = {op.name for op in graph.ops if op.kind == "reshape"}
    assert written | views == set(names)


def test_every_stage_reads_what_an_earlier_one_wrote(graph: Graph) -> None:
    views = storage(graph)
    for keep in ((), tuple(graph.named())):
        done: set[Tensor] = set()
        for stage in fuse(graph, CODED, keep):
            if isinstance(stage, RowStage):
                for op in stage.ops:
                    assert all(views[t].root in done for t in op.inputs)
                    if op.output is not None:
                        done.add(op.output)
            elif isinstance(stage, ProductStage):
                assert views[stage.x].root in done
                assert all(views[p.residual].root in done for p in stage.products if p.residual)
                done |= {p.out for p in stage.products}
            else:
                assert isinstance(stage, AttendStage)
                assert all(views[t].root in done for t in stage.op.inputs)
                assert stage.op.output is not None
                done.add(stage.op.output)


def test_the_graphs_of_the_tests_hold_every_operation(graph: Graph, tmp_path: Path) -> None:
    mixture = record_mixture(write_mixture(tmp_path / "mixture.gguf", "F32"))
    recurrent = record_recurrent(write_recurrent(tmp_path / "recurrent.gguf", "F32"))
    sounding = record_sounding(write_sounding(tmp_path / "sounding.gguf", "F32"))
    encoder = record_encoder(write_encoder(tmp_path / "encoder.gguf", 16), 16, True)
    recorded = [op for g in (graph, mixture, recurrent, sounding, encoder) for op in g.ops]
    assert {op.kind for op in recorded} == set(OPS)


def test_experts_share_a_sort_and_fuse_their_gate(tmp_path: Path) -> None:
    graph = record_mixture(write_mixture(tmp_path / "mixture.gguf", "Q8_0"))
    stages = [s for s in fuse(graph, CODED, ()) if isinstance(s, ExpertStage)]
    assert [s.sorts for s in stages] == [True, False, True, False]
    assert [len(s.products) for s in stages] == [1, 1, 2, 1]
    assert [s.each for s in stages] == [False, True, False, True]
    assert stages[0].products[0].act == "silu"


def test_a_flat_slice_lies_in_what_it_is_cut_from(tmp_path: Path) -> None:
    graph = record_recurrent(write_recurrent(tmp_path / "recurrent.gguf", "F32"))
    views, named = storage(graph), graph.named()
    value, mixed = views[named["blk.0.v"]], named["blk.0.conv_silu"]
    assert value.root is mixed
    assert value.offset + value.size == mixed.size
