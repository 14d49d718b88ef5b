"""What a pass costs: matrices once, experts that are asked, rows that are wanted."""

from __future__ import annotations

from pathlib import Path

from golem_core.graph.cost import cost

from .carrying import EXPERTS, FEED, USED, record_mixture, write_mixture
from .carrying import WIDTH as NARROW
from .programs import BLOCKS, DIM, HEADS, KV_HEADS, VOCABULARY, WIDTH, record, write
from .programs import FEED as FFN


def test_a_dense_model_costs_its_matrices(tmp_path: Path) -> None:
    found = cost(record(write(tmp_path / "tiny.gguf", "F16")))
    attention = 2 * WIDTH * HEADS * DIM + 2 * WIDTH * KV_HEADS * DIM
    block = attention + 3 * WIDTH * FFN
    head = VOCABULARY * WIDTH
    # Of the last block only keys and values are of every column.
    column = (BLOCKS - 1) * block + 2 * WIDTH * KV_HEADS * DIM
    assert found.column == column
    assert found.output == BLOCKS * block + head - column
    assert found.bytes == 2 * (BLOCKS * block + head)


def test_a_mixture_costs_the_experts_that_are_asked(tmp_path: Path) -> None:
    found = cost(record_mixture(write_mixture(tmp_path / "tiny.gguf", "F32")))
    experts = 3 * EXPERTS * FEED * NARROW * USED // EXPERTS
    products = 2 * (EXPERTS * NARROW + experts) + 97 * NARROW
    assert (found.column, found.output) == (0, products)
    assert found.bytes == 4 * products
