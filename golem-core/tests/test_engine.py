"""The engine over a program that would notice any wrong page."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golem_core.engine import Engine, Request, Stream
from golem_core.engine.schedule import Pace
from golem_core.errors import BadRequest, ContextFull, NoMemory, PassFailed
from golem_core.graph import Batch
from golem_core.sampling import Sampling

from .engines import EVENTS, Letters, ask, engine, nothing_leaked, together
from .fake_program import END, POISON, VOCABULARY, HashProgram, expected

# One request


@pytest.mark.parametrize("windows", [(None,), (None, 40), (16,), (None, 1), (None, 33, 64)])
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 65, 200])
def test_a_text_is_what_a_run_without_pages_gives(windows: tuple, length: int) -> None:
    prompt = [(7 * i + 3) % 100 for i in range(length)]
    with engine(HashProgram(windows, [12] * len(windows), width=24), context=256) as made:
        result = made.submit(ask(prompt, 50)).result()
        again = made.submit(ask(prompt, 50)).result()
        stats = made.stats()
    assert list(result.ids) == expected(prompt, windows, 50, 256)
    assert again.ids == result.ids
    assert result.text == bytes(result.ids).decode()
    assert result.timings["cached_tokens"] == 0
    assert again.timings["cached_tokens"] == (length - 1) // 32 * 32
    assert stats.generated_tokens >= 2 * len(result.ids)
    assert made._program.closed
    nothing_leaked(made)


def test_what_is_not_shared_is_read_again_and_by_nobody_else() -> None:
    prompt = [(7 * i + 3) % 100 for i in range(100)]
    with engine(HashProgram()) as made:
        results = [
            made.submit(ask(prompt, 20, shared=shared)).result()
            for shared in (False, False, True, False, True)
        ]
    assert [result.timings["cached_tokens"] for result in results] == [0, 0, 0, 0, 96]
    assert len({result.ids for result in results}) == 1
    nothing_leaked(made)


@pytest.mark.parametrize(
    ("length", "most", "answer"),
    [(62, 1, 1), (62, 10, 2), (62, None, 2), (63, 1, 1), (63, 10, 1), (63, None, 1)],
)
def test_an_answer_ends_with_the_context(length: int, most: int | None, answer: int) -> None:
    with engine(HashProgram(), context=64) as made:
        banned = ask([1] * length, most, ignore_eos=True)
        result = made.submit(banned).result()
    assert (len(result.ids), result.finish_reason) == (answer, "length")


@pytest.mark.parametrize("length", [64, 65, 1000])
def test_a_prompt_that_can_never_fit_is_refused_at_once(length: int) -> None:
    with engine(HashProgram(), context=64) as made:
        with pytest.raises(ContextFull, match=f"the prompt has {length} tokens and the context 64"):
            made.submit(ask([1] * length))
        assert made.stats().passes == 0
    with pytest.raises(ContextFull) as caught:
        ask([1] * length).tokens(VOCABULARY, 64)
    assert (caught.value.prompt_tokens, caught.value.context) == (length, 64)
    assert caught.value.field == "prompt"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"stop": ("",)}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": tuple("abcde")}, "stop"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"prompt_ids": []}, "prompt"),
        ({"prompt_ids": [1, VOCABULARY]}, "prompt"),
        ({"prompt_ids": [-1]}, "prompt"),
        ({"prompt_ids": [1.5]}, "prompt"),
        ({"sampling": Sampling(logit_bias={VOCABULARY: 1.0})}, "logit_bias"),
    ],
)
def test_a_request_out_of_range_is_refused_by_name(fields: dict, field: str) -> None:
    with engine(HashProgram()) as made, pytest.raises(BadRequest) as caught:
        made.submit(Request(**{"prompt_ids": [1], **fields}))
    assert caught.value.field == field
    assert field in str(caught.value)


def test_an_engine_is_refused_what_its_program_has_no_room_for() -> None:
    with pytest.raises(BadRequest, match="max_sequences is 9, expected 1 to 8"):
        engine(HashProgram(width=8), sequences=9)
    with pytest.raises(NoMemory, match=r"256 tokens needs 8 pages .* the pool has 7"):
        engine(HashProgram(pages=[7]), context=256)
    with pytest.raises(BadRequest, match="context is 1"):
        engine(HashProgram(), context=1)


class Script(HashProgram):
    """Says a fixed text, one byte a pass."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.text = text
        self.asked = 0

    vocabulary = 256

    def run(self, batch: object) -> np.ndarray:
        logits = np.zeros((len(batch.outputs), 256), dtype=np.float32)
        logits[0, self.text[self.asked]] = 1.0
        self.asked += 1
        return logits


def test_characters_are_whole_and_half_of_one_comes_last() -> None:
    text = "né 깰 🎉".encode() + b"\xea\xb9"
    with engine(Script(text)) as made:
        tokens = list(made.submit(ask([1], len(text))))
    assert "".join(t.text for t in tokens) == "né 깰 🎉\ufffd\ufffd"
    assert [t.id for t in tokens] == list(text)
    assert all("\ufffd" not in t.text for t in tokens[:-1])


def test_a_stop_string_is_never_said() -> None:
    with engine(Script(b"The quick brown fox jumps" + bytes([END]))) as made:
        stream = made.submit(ask([1], stop=("own fox", "zebra")))
        tokens = list(stream)
        result = stream.result()
    assert "".join(t.text for t in tokens) == result.text == "The quick br"
    assert result.finish_reason == "stop"
    assert result.end_id is None
    assert result.stop == "own fox"
    assert all("own" not in "".join(t.text for t in tokens[:i]) for i in range(len(tokens)))


@pytest.mark.parametrize("most", [25, None])
def test_what_a_stop_string_held_back_is_said_at_the_end(most: int | None) -> None:
    with engine(Script(b"The quick brown fox jumps" + bytes([END]))) as made:
        stream = made.submit(ask([1], most, stop="fox jumps!"))
        tokens = list(stream)
    assert "".join(t.text for t in tokens) == "The quick brown fox jumps"
    assert stream.result().text == "The quick brown fox jumps"
    assert stream.result().finish_reason == ("length" if most else "stop")
    assert stream.result().end_id == (None if most else END)
    assert stream.result().stop is None
    assert len(stream.result().ids) == 25
    assert [t.id for t in tokens if t.id is not None] == list(stream.result().ids)


def test_logprobs_are_the_models_own() -> None:
    with engine(Script(b"ab")) as made:
        first, second = made.submit(ask([1], 2, logprobs=3))
    total = np.log(255 + np.e)
    assert first.logprobs is not None
    assert first.logprobs.logprob == pytest.approx(1 - total, abs=1e-5)
    assert [i for i, _ in first.logprobs.top] == [ord("a"), 0, 1]
    assert second.logprobs is not None
    assert [i for i, _ in second.logprobs.top] == [ord("b"), 0, 1]


def test_ends_are_not_drawn_when_they_are_to_be_ignored() -> None:
    class Ends(HashProgram):
        def run(self, batch: object) -> np.ndarray:
            logits = super().run(batch)
            logits[:, END] = 100.0
            return logits

    with engine(Ends()) as made:
        assert made.submit(ask([1, 2], 20)).result().ids == ()
        assert len(made.submit(ask([1, 2], 20, ignore_eos=True)).result().ids) == 20


# Several requests


def test_a_beginning_is_read_once_by_all_who_share_it() -> None:
    system = [(5 * i) % 90 for i in range(160)]
    requests = [ask([*system, i, i + 1, i + 2], 5) for i in range(8)]
    program = HashProgram(pages=[100], width=64)
    results, made = together(program, requests, sequences=8)
    for request, result in zip(requests, results, strict=True):
        assert list(result.ids) == expected(request.prompt_ids, (None,), 5, 256)
    stats = made.stats()
    assert stats.read_tokens == 160 + 3 * 8
    assert stats.cached_tokens == 160 * 7
    nothing_leaked(made)


def test_answers_go_on_beside_a_long_prompt_and_short_prompts_pass_it() -> None:
    long = ask([i % 90 for i in range(200)], 3)
    short = [ask([i + 1, i + 2], 30, ignore_eos=True) for i in range(3)]
    program = HashProgram(pages=[64], width=16, windows=(None,))
    results, _ = together(program, [short[0], long, *short[1:]])
    assert [r.finish_reason for r in results[:1] + results[2:]] == ["length"] * 3
    # While the long prompt is read (passes with a wide share) each answer gets its token.
    reading = [p for p in program.passes if max(p) > 2]
    assert all(p.count(1) >= 3 for p in reading[1:])
    assert results[1].timings["prompt_tokens"] == 200


def test_the_youngest_is_set_aside_when_the_pages_run_out_and_no_answer_changes() -> None:
    requests = [ask([i] * 40, 150, ignore_eos=True) for i in range(1, 5)]
    program = HashProgram(pages=[8], width=16)
    orders: list[list[int]] = []

    class Watched(Engine):
        def _pass(self, plan: list) -> None:
            scheduler = self._scheduler
            everyone = [*scheduler.running, *scheduler.waiting]
            orders.append([int(sequence.tokens[0]) for sequence in everyone])
            super()._pass(plan)

    results, made = together(program, requests, kind=Watched)
    assert made.stats().set_aside > 0
    assert all(order == sorted(order) for order in orders)  # as they came
    for request, result in zip(requests, results, strict=True):
        assert len(result.ids) == 150
        alone = Engine(HashProgram(pages=[8]), Letters(), context=256, max_sequences=1)
        with alone:
            assert alone.submit(request).result().ids == result.ids
    nothing_leaked(made)


def test_a_seeded_text_does_not_depend_on_company_or_on_being_set_aside() -> None:
    warm = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=-9007199254740991)
    request = ask([3] * 40, 120, sampling=warm, ignore_eos=True)
    with engine(HashProgram(pages=[8])) as made:
        alone = made.submit(request).result()
    others = [ask([i] * 40, 120, ignore_eos=True) for i in range(10, 13)]
    results, made = together(HashProgram(pages=[8], width=16), [*others, request])
    assert made.stats().set_aside > 0
    assert results[3].ids == alone.ids
    assert alone.seed == -9007199254740991


def test_a_nan_ends_its_own_request_and_is_not_cached() -> None:
    poisoned = ask([*range(40), POISON, *range(120)], 5)  # read in several passes
    clean = ask([*range(40), 50, *range(40)], 40)
    program = HashProgram(width=64)
    with engine(program) as made:
        other = made.submit(clean)
        bad = made.submit(poisoned)
        with pytest.raises(PassFailed, match=r"logits has 128 NaN of 128 values \(pass \d+") as e:
            bad.result()
        assert (e.value.waypoint, e.value.kind) == ("logits", "nan_logits")
        assert list(other.result().ids) == expected(clean.prompt_ids, (None,), 40, 256)
        with pytest.raises(PassFailed):
            list(made.submit(poisoned))
        after = ask([*range(41)], 5)
        assert list(made.submit(after).result().ids) == expected(range(41), (None,), 5, 256)
        pending = [made._memory.tree.root]
        for node in pending:
            pending += node.children.values()
            assert POISON not in np.frombuffer(node.key, dtype=np.int32)
    nothing_leaked(made)


def test_nothing_left_to_draw_is_an_error_of_that_request() -> None:
    def nothing(tokens: np.ndarray, logits: np.ndarray) -> None:
        logits[:] = -np.inf

    def only(tokens: np.ndarray, logits: np.ndarray) -> None:
        logits[np.arange(VOCABULARY) != len(tokens)] = -np.inf

    with engine(HashProgram()) as made:
        with pytest.raises(PassFailed, match="no token is left") as caught:
            made.submit(ask([1], 5, mask=nothing)).result()
        assert caught.value.kind == "no_candidates"
        assert made.submit(ask([1], 5, mask=only)).result().ids == (1, 2, 3, 4, 5)


# Anything at all


@given(
    events=EVENTS,
    windows=st.sampled_from([(None,), (None, 20), (None, 64), (33,), (None, 1, 50)]),
    spare=st.integers(0, 6),
    width=st.integers(4, 70),
    sequences=st.integers(1, 4),
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_the_one_it_would_be_alone(
    events: list, windows: tuple, spare: int, width: int, sequences: int
) -> None:
    context = 192
    pages = [
        (6 if window is None else min(6, (window + 30) // 32 + 1)) + spare for window in windows
    ]
    program = HashProgram(windows, pages, width)
    with engine(program, context, sequences) as made:
        streams: dict[int, Stream] = {}

        def due(number: int) -> None:
            for index, (at, prompt, most, cancelled) in enumerate(events):
                if at <= number and index not in streams:
                    streams[index] = made.submit(ask(prompt, most))
                if cancelled is not None and cancelled <= number and index in streams:
                    streams[index].cancel()

        # Submitted and cancelled on the engine's own thread, so that an example always runs alike.
        program.before = due
        made.submit(ask([99], 2)).result(30)
        while len(streams) < len(events):
            for stream in list(streams.values()):
                stream.result(30)
            made.submit(ask([98], 1)).result(30)
            events = [(0 if i not in streams else e[0], *e[1:]) for i, e in enumerate(events)]
        results = [streams[i].result(30) for i in range(len(events))]
    for (_, prompt, most, cancelled), result in zip(events, results, strict=True):
        answer = expected(prompt, windows, most, context)
        if result.finish_reason == "cancelled":
            assert cancelled is not None
            assert list(result.ids) == answer[: len(result.ids)]
        else:
            assert list(result.ids) == answer
            assert result.text == bytes(answer).decode()
            assert result.finish_reason in ("stop", "length")
    nothing_leaked(made)


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name == "golem-engine" and t.is_alive()]


def test_a_pass_may_take_longer_where_nobody_else_waits() -> None:
    pace = Pace()
    assert pace.tokens(alone=True) == pace.tokens(alone=False) == 128  # nothing is known
    pace.observe(128, 1.6)
    assert pace.tokens(alone=False) == 32  # 40 in half a second
    assert pace.tokens(alone=True) == 320  # in four seconds
    pace.observe(8, 10.0)  # too few to say anything
    assert pace.tokens(alone=True) == 320
    pace.observe(320, 3.2)
    assert pace.tokens(alone=True) == 352  # 90 a second by now


def test_a_prompt_is_read_in_wide_passes_alone_and_in_narrow_ones_in_company() -> None:
    class Slow(HashProgram):
        def run(self, batch: Batch) -> np.ndarray:
            widths.append(len(batch.ids))
            time.sleep(0.004 * len(batch.ids))  # 250 tokens a second
            return super().run(batch)

    widths: list[int] = []
    prompts = [[(i * step + step) % 100 for i in range(240)] for step in (3, 7, 11)]
    with engine(Slow(width=256), context=256) as made:
        made.submit(ask(prompts[0], 1)).result()
        assert widths == [128, 112]  # nothing was known of the machine
        widths.clear()
        made.submit(ask(prompts[1], 1)).result()
        assert widths == [240]
        drawing = made.submit(ask([1], 200, ignore_eos=True))
        next(drawing)
        widths.clear()
        made.submit(ask(prompts[2], 1)).result()
        assert max(widths) <= 97  # what is read in half a second, and the other's token
        drawing.cancel()
