"""From a model to an engine, and the engine over programs that really compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from golem_core.engine import Engine, Request, start, start_engine
from golem_core.errors import BadRequest, NoMemory, PassFailed, Unsupported
from golem_core.graph import PAGE, Batch, Graph, Program, Rope, Tensor, compile
from golem_core.model import Generator, Options
from golem_core.sampling import Sampling
from golem_core.weights import Weights, open_weights

from . import programs
from .programs import DIM, EPS, HEADS, KV_HEADS, VOCABULARY, WIDTH

GREEDY = Sampling(temperature=0.0)
CONTEXT = 300


class Numbers:
    """Tokens are written as their numbers; none ends an answer."""

    end_ids: frozenset[int] = frozenset()

    def piece(self, token: int) -> bytes:
        return f" {token}".encode()

    def is_control(self, token: int) -> bool:
        return False


class Tiny(Generator):
    """Two blocks of attention, one of them over a window, and nothing else."""

    vocab = VOCABULARY
    context = CONTEXT

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Tiny:
        return cls()

    def forward(self, g: Graph) -> Tensor:
        table = g.weight("token_embd.weight", (VOCABULARY, WIDTH))
        x = g.embed(table)
        for i, window in enumerate((40, None)):

            def w(name: str, *shape: int, block: int = i):
                return g.weight(f"blk.{block}.{name}.weight", shape)

            with g.scope(f"blk.{i}"):
                h = g.rms_norm(x, w("attn_norm", WIDTH), EPS)
                q = g.heads(g.linear(h, w("attn_q", HEADS * DIM, WIDTH)), DIM)
                k = g.heads(g.linear(h, w("attn_k", KV_HEADS * DIM, WIDTH)), DIM)
                v = g.heads(g.linear(h, w("attn_v", KV_HEADS * DIM, WIDTH)), DIM)
                rope = Rope(DIM, 10000.0)
                cache = g.cache(KV_HEADS, DIM, window)
                q, k = g.rope(q, rope, name="q_rope"), g.rope(k, rope, name="k_rope")
                out = g.attend(q, k, v, cache, DIM**-0.5, name="attend")
                x = g.add(x, g.linear(out, w("attn_output", WIDTH, HEADS * DIM)), name="out")
        x = g.rms_norm(g.pick(x), g.weight("output_norm.weight", (WIDTH,)), EPS)
        return g.linear(x, table, name="logits")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return programs.write(tmp_path_factory.mktemp("start") / "tiny.gguf")


def prompt(length: int, salt: int) -> list[int]:
    shared = [(3 * i) % VOCABULARY for i in range(min(length // 2, 70))]
    return shared + [(7 * i + salt) % VOCABULARY for i in range(length - len(shared))]


def plainly(weights: Weights, ids: list[int], most: int, device: str = "reference") -> list[int]:
    """The greedy answer without an engine: its prompt in one pass, then a pass for each token."""
    graph = Graph(weights)
    graph.result = Tiny().forward(graph)
    pages = -(-CONTEXT // PAGE)
    made = compile(graph, device, width=CONTEXT, pages=(pages,) * len(graph.windows))
    table = np.arange(pages, dtype=np.int32)[None]
    answer: list[int] = []
    start, given = 0, ids
    while len(answer) < most:
        count = len(given)
        batch = Batch(
            ids=np.array(given, dtype=np.int32),
            positions=np.arange(start, start + count, dtype=np.int32),
            sequence=np.zeros(count, dtype=np.int32),
            pages=(table,) * len(graph.windows),
            outputs=np.array([count - 1], dtype=np.int32),
        )
        given = [int(made.run(batch)[0].argmax())]
        answer += given
        start += count
    made.close()
    return answer


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_an_answer_does_not_depend_on_pages_pieces_or_company(
    weights: Weights, device: str
) -> None:
    prompts = [prompt(length, salt) for salt, length in enumerate((1, 33, 90, 150))]
    alone = [plainly(weights, ids, 12, device) for ids in prompts]
    for width, sequences in ((512, 4), (7, 4), (32, 1)):
        with start_engine(
            Tiny(),
            weights,
            tokenizer=Numbers(),
            device=device,
            context=CONTEXT,
            width=width,
            max_sequences=sequences,
        ) as engine:
            for _ in range(2):  # once read, once from the pages of the first time
                streams = [engine.submit(Request(ids, GREEDY, 12)) for ids in prompts]
                assert [list(s.result().ids) for s in streams] == alone
            again = sum((len(ids) - 1) // 32 * 32 for ids in prompts)
            assert sequences == 1 or engine.stats().cached_tokens >= again


def test_a_pool_for_one_long_text_sets_the_others_aside(weights: Weights) -> None:
    graph = Graph(weights)
    graph.result = Tiny().forward(graph)
    pages = -(-CONTEXT // PAGE)
    program = compile(graph, "reference", width=64, pages=(12, pages))
    requests = [Request(prompt(20, salt), GREEDY, 120) for salt in range(3)]
    with Engine(program, Numbers(), context=CONTEXT, max_sequences=3) as engine:
        streams = [engine.submit(request) for request in requests]
        for salt, stream in enumerate(streams):
            assert list(stream.result().ids) == plainly(weights, prompt(20, salt), 120)
        assert engine.stats().set_aside > 0


def test_a_damaged_weight_fails_the_request_that_meets_it(tmp_path: Path) -> None:
    made = programs.write(tmp_path / "damaged.gguf")
    row = made.tensors["token_embd.weight"].dequantize()[41].tobytes()
    made.close()
    at = (tmp_path / "damaged.gguf").read_bytes().find(row)
    assert at > 0
    with (tmp_path / "damaged.gguf").open("r+b") as file:
        file.seek(at)
        file.write(np.float32(np.nan).tobytes())
    damaged = open_weights(tmp_path / "damaged.gguf")
    graph = Graph(damaged)
    graph.result = _embedding_only(graph)
    with Engine(
        compile(graph, "reference", pages=()), Numbers(), context=CONTEXT, max_sequences=2
    ) as engine:
        bad = engine.submit(Request([5, 41], GREEDY, 5))
        good = engine.submit(Request([5, 42], GREEDY, 5))
        with pytest.raises(PassFailed, match=r"logits has 128 NaN of 128 values \(pass 1"):
            bad.result()
        assert len(good.result().ids) == 5
        assert len(engine.submit(Request([5, 42], GREEDY, 5)).result().ids) == 5


def _embedding_only(g: Graph) -> Tensor:
    x = g.pick(g.embed(g.weight("token_embd.weight", (VOCABULARY, WIDTH))))  # 128 logits
    return g.linear(x, g.weight("blk.0.attn_k.weight", (KV_HEADS * DIM, WIDTH)), name="logits")


def test_the_context_is_what_was_trained_up_to_a_limit() -> None:
    assert start.choose_context(None, 2048) == 2048
    assert start.choose_context(None, 131072) == 8192
    assert start.choose_context(131072, 131072) == 131072
    for asked in (1, 0, -5, 2049):
        with pytest.raises(BadRequest, match=f"context is {asked}, expected 2 to 2048") as caught:
            start.choose_context(asked, 2048)
        assert caught.value.field == "context"


def test_the_pool_holds_what_the_memory_allows(weights: Weights) -> None:
    graph = Graph(weights)
    Tiny().forward(graph)
    page = 2 * 2 * PAGE * KV_HEADS * DIM  # of either group, which have one layer each
    windowed = 2 * -(-(40 + 64) // PAGE)
    assert graph.windows == [40, None]
    assert start.choose_room(graph, 320, 4, 64, 1 << 30) == ((4 * windowed, 40), 0)
    assert start.choose_room(graph, 320, 4, 64, 3 * page * (windowed + 10)) == (
        (3 * windowed, 30),
        0,
    )
    assert start.choose_room(graph, 320, 1, 64, None) == ((windowed, 10), 0)
    assert start.choose_room(graph, 64, 1, 64, page * 4) == ((2, 2), 0)
    with pytest.raises(NoMemory, match=r"320 tokens needs 0\.3 MiB .* and 0\.0 MiB is available"):
        start.choose_room(graph, 320, 4, 64, page * 2)


class Carrying(Tiny):
    """A `Tiny` that also adds what the row before had, and has a block that guesses from it."""

    suppressed = (3, 5)

    def forward(self, g: Graph) -> Tensor:
        table = g.weight("token_embd.weight", (VOCABULARY, WIDTH))
        norm = g.weight("output_norm.weight", (WIDTH,))
        x = g.embed(table)
        state = g.state((WIDTH,))
        h = g.add(x, g.scale(g.previous(x, state, name="before"), 0.5, name="half"), name="sum")
        if g.drafts:
            with g.drafting():
                y = g.add(g.embed(table), g.recall(state), name="guess_sum")
                g.draft = g.linear(g.rms_norm(y, norm, EPS, name="y"), table, name="guess")
        return g.linear(g.rms_norm(g.pick(h), norm, EPS), table, name="logits")


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_states_and_guesses_change_no_answer(weights: Weights, device: str) -> None:
    prompts = [prompt(length, salt) for salt, length in enumerate((1, 33, 90, 150))]
    told = []
    for draft, sequences, memory in (
        ("off", 1, None),
        ("off", 4, None),
        ("mtp", 4, None),
        ("ngram", 4, None),
        ("auto", 4, None),
        ("mtp", 4, 2 * 2 * 4 * WIDTH),  # slots for one sequence, and one more
    ):
        with start_engine(
            Carrying(),
            weights,
            tokenizer=Numbers(),
            device=device,
            context=CONTEXT,
            max_sequences=sequences,
            width=16,
            memory=memory,
            draft=draft,
        ) as engine:
            for _ in range(2):
                streams = [engine.submit(Request(ids, GREEDY, 20)) for ids in prompts]
                told.append([stream.result().ids for stream in streams])
            states = engine.stats().states
            assert states is not None
            assert states.slots == (2 if memory else 4 * sequences)
    assert all(each == told[0] for each in told)
    assert not {3, 5} & {token for ids in told[0] for token in ids}


def test_slots_are_what_the_memory_allows(weights: Weights) -> None:
    graph = Graph(weights)
    Carrying().forward(graph)
    slot = 4 * WIDTH

    def slots(sequences: int, memory: int | None, drafts: int) -> int:
        return start.choose_room(graph, 320, sequences, 64, memory, drafts).states

    assert slots(4, None, 0) == 4 * (1 + start.SNAPSHOTS)
    assert slots(4, 12 * slot, 0) == 3 * (1 + start.SNAPSHOTS)
    assert slots(4, 3 * slot, 0) == 2  # one snapshot
    assert slots(4, slot, 0) == 1
    # A guess is remembered by the row that it brings, which is as large as the state here.
    assert slots(1, None, 3) == 1 + start.SNAPSHOTS
    assert slots(4, 12 * slot, 2) == 1 + start.SNAPSHOTS
    assert slots(4, 2 * slot, 1) == 1
    with pytest.raises(
        NoMemory, match=r"needs 0\.0 MiB for its keys and values and recurrent states and 0\.0 MiB"
    ):
        slots(4, 2 * slot - 1, 1)


def test_a_way_to_guess_is_refused_by_name(weights: Weights) -> None:
    with pytest.raises(Unsupported, match=r"draft is 'mtp', and .*tiny\.gguf has no prediction"):
        start_engine(Tiny(), weights, tokenizer=Numbers(), draft="mtp")
    with pytest.raises(BadRequest, match="draft is 'best', expected one of auto, off, mtp, ngram"):
        start_engine(Tiny(), weights, tokenizer=Numbers(), draft="best")
    # Where it is not to be used the block is not even recorded.
    for draft in start.WAYS:
        graph = start.record(Carrying(), weights, draft)
        assert (graph.draft is not None) == (draft in ("auto", "mtp"))


def test_a_program_is_closed_when_its_engine_cannot_start(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Program] = []

    def compiled(*args: object, **rest: object) -> Program:
        made = compile(*args, **rest)
        monkeypatch.setattr(made, "close", lambda: closed.append(made))
        return made

    monkeypatch.setattr(start, "compile", compiled)
    with pytest.raises(BadRequest, match="max_sequences is 99"):
        start_engine(
            Tiny(), weights, tokenizer=Numbers(), device="reference", max_sequences=99, width=8
        )
    assert len(closed) == 1
