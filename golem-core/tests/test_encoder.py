"""The operations of encoders: the processor's are the reference's, and a text sees itself alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from golem_core.cpu import dispatch
from golem_core.graph import Batch, Graph, Program, compile

from .encoding import HEADS, VOCABULARY, record_encoder, write_encoder


@pytest.fixture(scope="module", params=dispatch.LAYERS)
def layer(request: pytest.FixtureRequest) -> Any:
    dispatch.use(request.param)
    yield request.param
    dispatch.use(dispatch.LAYERS[-1])


def batch(lengths: list[int], first: int = 0, picks: str = "first") -> Batch:
    rng = np.random.default_rng(3)
    texts = [rng.integers(0, VOCABULARY, 190) for _ in range(9)][first:]
    ids = np.concatenate([text[:n] for text, n in zip(texts, lengths, strict=False)])
    sequence = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum([0, *lengths[:-1]])
    outputs = np.arange(len(ids)) if picks == "all" else starts
    return Batch(
        ids=ids.astype(np.int32),
        positions=np.concatenate([np.arange(n) for n in lengths]).astype(np.int32),
        sequence=sequence.astype(np.int32),
        pages=(),
        outputs=outputs.astype(np.int32),
        kinds=(ids % 2).astype(np.int32),
    )


def program(graph: Graph, device: str = "cpu", threads: int = 2) -> Program:
    return compile(graph, device, width=512, outputs=512, threads=threads)


LENGTHS = [1, 17, 190, 2, 99, 33]


@pytest.mark.parametrize("dim", [4, 16, 40])
@pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"reach": 5}, {"reach": 40, "causal": True}, {"biased": True}],
    ids=str,
)
def test_attention_is_the_reference_s(
    tmp_path: Path, layer: str, dim: int, options: dict[str, Any]
) -> None:
    weights = write_encoder(tmp_path / "w.gguf", dim)
    given = batch(LENGTHS, picks="all")
    wanted = program(record_encoder(weights, dim, False, **options), "reference").run(given)
    found = program(record_encoder(weights, dim, False, **options)).run(given)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


def test_a_mean_is_of_its_text_alone(tmp_path: Path, layer: str) -> None:
    weights = write_encoder(tmp_path / "w.gguf", 16)
    given = batch(LENGTHS)
    wanted = program(record_encoder(weights, 16, True), "reference").run(given)
    made = program(record_encoder(weights, 16, True))
    np.testing.assert_allclose(made.run(given), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("options", [{}, {"reach": 30}, {"biased": True}], ids=str)
def test_company_changes_no_bit(tmp_path: Path, mean: bool, options: dict[str, Any]) -> None:
    weights = write_encoder(tmp_path / "w.gguf", 16)
    together = program(record_encoder(weights, 16, mean, **options)).run(batch(LENGTHS)).copy()
    alone = program(record_encoder(weights, 16, mean, **options), threads=1)
    for i, length in enumerate(LENGTHS):
        assert np.array_equal(alone.run(batch([length], first=i))[0], together[i])


def test_what_is_out_of_range_is_refused(tmp_path: Path) -> None:
    weights = write_encoder(tmp_path / "w.gguf", 16)
    made = program(record_encoder(weights, 16, True))
    far = batch([3])
    far.positions = far.positions + 196
    with pytest.raises(ValueError, match=r"position 198 is outside 0\.\.197"):
        made.run(far)
    odd = batch([3])
    odd.kinds = odd.kinds + 5
    with pytest.raises(ValueError, match=r"kind \d is outside 0\.\.1"):
        made.run(odd)
    g = Graph(weights)
    table = g.weight("tokens.weight", (VOCABULARY, 96))
    with pytest.raises(ValueError, match="no rows by 'size'"):
        g.embed(table, by="size")
    x = g.heads(g.embed(table), 16)
    with pytest.raises(ValueError, match="a bias comes with its buckets"):
        g.attend_within(x, x, x, 1.0, bias=g.weight("bias.weight", (32, HEADS)))
