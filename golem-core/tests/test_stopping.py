"""A pass that nobody waits for is given up between two stages, and nothing of it counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from golem_core.engine import Engine, Result, Stream
from golem_core.engine.schedule import Pace
from golem_core.graph import PAGE, Batch, Program, Stopped, compile
from golem_core.sampling import Logprobs

from .carrying import record_recurrent, write_recurrent
from .engines import Letters, ask, engine, nothing_leaked
from .fake_program import CarryingProgram, HashProgram, carrying_logits, expected, hashed
from .programs import batch as paged
from .programs import record, write
from .test_carrying import batch as carrying
from .test_carrying import compiled, tokens, whole


def ends_before(program: Program, one: Batch, stage: int) -> bool:
    """Whether a pass that is to be given up before `stage` is."""
    one.stop = np.array([stage], np.int32)
    try:
        program.run(one)
    except Stopped:
        return True
    finally:
        one.stop = None
    return False


@pytest.mark.parametrize("threads", [1, 2])
def test_the_workers_leave_before_the_stage_that_is_named(threads: int, tmp_path: Path) -> None:
    graph = record(write(tmp_path / "tiny.gguf", "Q8_0"))
    program = compile(graph, pages=(4, 4), outputs=64, threads=threads)
    one = paged([(tokens(1, 60), 0, [0, 1])])
    right = program.run(one).copy()
    begun = program.tape.time_stages()[:, :, 0]
    for stage in range(1, len(program.stages)):
        begun[:] = 0
        assert ends_before(program, one, stage)
        assert (begun[:stage] > 0).all()
        assert (begun[stage:] == 0).all()
    assert not ends_before(program, one, len(program.stages))  # there is no such stage
    assert np.array_equal(program.run(one), right)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pass_may_be_asked_to_stop_at_any_time(threads: int, tmp_path: Path) -> None:
    graph = record(write(tmp_path / "tiny.gguf", "Q8_0"))
    program = compile(graph, pages=(4, 4), outputs=64, threads=threads)
    one = paged([(tokens(1, 60), 0, [0, 1])])
    right = program.run(one).copy()
    one.stop = np.zeros(1, np.int32)
    for _ in range(50):
        one.stop[0] = 0
        asking = threading.Thread(target=one.stop.fill, args=(1,))
        asking.start()
        try:
            assert np.array_equal(program.run(one), right)
        except Stopped:
            assert one.stop[0] == 1
        asking.join()
        one.stop[0] = 0
        assert np.array_equal(program.run(one), right)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_states_are_as_before_a_pass_that_was_given_up(device: str, tmp_path: Path) -> None:
    graph = record_recurrent(write_recurrent(tmp_path / "tiny.gguf", "Q8_0"))
    program = compiled(graph, device=device, outputs=64)
    ids = tokens(2, 50)
    right = whole(program, ids, (23,))
    first = program.run(carrying((ids[:23], 0, -1, {22: 2}))).copy()
    assert np.array_equal(first, right[:23])
    rest, stage = carrying((ids[23:], 23, 2, {26: 3})), 1
    while ends_before(program, rest, stage):
        assert np.array_equal(program.run(rest), right[23:]), stage
        stage += 1 if device == "cpu" else 5
    assert stage > 20


class Spoiling(HashProgram):
    """Gives passes up where it can, and has then kept what is wrong."""

    given_up = 0

    def run(self, batch: Batch) -> np.ndarray:
        logits = super().run(batch)
        if self.stops(batch):
            self.given_up += 1
            self.passes.pop()
            for table, kept in zip(batch.pages, self._kept, strict=True):
                kept[table[batch.sequence, batch.positions // PAGE], batch.positions % PAGE] = 99
            raise Stopped
        return logits

    def stops(self, batch: Batch) -> bool:
        assert batch.stop is not None
        return bool(batch.stop[0])


class SpoilingCarrier(Spoiling, CarryingProgram):
    """The same with a recurrent state."""

    def run(self, batch: Batch) -> np.ndarray:
        try:
            return super().run(batch)
        except Stopped:
            assert batch.keeps is not None
            for slot in batch.keeps[batch.keeps >= 0].tolist():
                self._slots[slot] = -1, 0
            raise


KINDS: dict[type[Spoiling], Callable] = {Spoiling: hashed, SpoilingCarrier: carrying_logits}
PROMPT = [(3 * i + 3) % 100 for i in range(150)]


@pytest.fixture(params=list(KINDS))
def program(request: pytest.FixtureRequest) -> Spoiling:
    made = request.param(width=64)
    assert isinstance(made, Spoiling)
    return made


def right(program: Spoiling, prompt: list[int], most: int) -> list[int]:
    return expected(prompt, [None], most, 256, KINDS[type(program)])


@pytest.mark.parametrize("at", [0, 1, 2, 5])
def test_who_cancels_alone_waits_for_no_pass(program: Spoiling, at: int) -> None:
    streams: list[Stream] = []
    program.before = lambda number: streams[0].cancel() if number == at else None
    with engine(program) as made:
        ready = threading.Event()
        before, program.before = program.before, lambda number: (ready.wait(10), before(number))
        streams.append(made.submit(ask(PROMPT, 8, ignore_eos=True)))
        ready.set()
        result = streams[0].result(10)
        assert result.finish_reason == "cancelled"
        assert program.given_up == 1
        assert len(program.passes) == at  # the others were of use
        assert list(result.ids) == right(program, PROMPT, 8)[: max(0, at - 2)]
        program.before = lambda number: None
        assert list(made.submit(ask(PROMPT, 8)).result(10).ids) == right(program, PROMPT, 8)
    nothing_leaked(made)


def test_a_pass_with_others_is_finished(program: Spoiling) -> None:
    streams: list[Stream] = []
    other = [5, 4, 3]

    def before(number: int) -> None:
        if number == 0:
            streams.append(made.submit(ask(other, 30)))
        elif number == 2:
            streams[0].cancel()

    with engine(program) as made:
        ready = threading.Event()
        program.before = lambda number: (ready.wait(10), before(number))
        streams.append(made.submit(ask(PROMPT, 8)))
        ready.set()
        assert streams[0].result(10).finish_reason == "cancelled"
        assert list(streams[1].result(10).ids) == right(program, other, 30)
        assert program.given_up == 0
    nothing_leaked(made)


def test_a_pass_that_all_have_left_is_given_up(program: Spoiling) -> None:
    streams: list[Stream] = []

    def before(number: int) -> None:
        if number == 0:
            streams.append(made.submit(ask([5, 4, 3], 30, ignore_eos=True)))
        elif number == 2:
            for stream in streams:
                stream.cancel()

    with engine(program) as made:
        ready = threading.Event()
        program.before = lambda number: (ready.wait(10), before(number))
        streams.append(made.submit(ask(PROMPT, 8)))
        ready.set()
        assert {stream.result(10).finish_reason for stream in streams} == {"cancelled"}
        assert program.given_up == 1
        assert len(program.passes) == 2
    nothing_leaked(made)


def test_closing_gives_the_pass_up() -> None:
    class Long(HashProgram):
        def run(self, batch: Batch) -> np.ndarray:
            assert batch.stop is not None
            begun.set()
            while not batch.stop[0]:
                if given_up.wait(0.001):
                    raise AssertionError("nobody gave the pass up")
            raise Stopped

    begun, given_up = threading.Event(), threading.Event()
    late = threading.Timer(30, given_up.set)
    late.start()
    made = engine(Long())
    stream = made.submit(ask(PROMPT))
    assert begun.wait(10)
    made.close()
    late.cancel()
    assert stream.result(10).finish_reason == "cancelled"
    nothing_leaked(made)


def slow(made: Engine) -> None:
    """From now on a pass should take so long that a test is always early in it."""
    made._scheduler.pace._rate = 0.1  # 32 tokens in half a second, 256 in an hour


@pytest.mark.parametrize("late", [False, True])
def test_a_pass_gives_way_to_who_comes_early(
    program: Spoiling, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "ALONE", 3600.0)
    streams: list[Stream] = []
    program.width = 256

    def before(number: int) -> None:
        if number == 0 and len(streams) == 1:
            made._passing_since -= 3000 if late else 0
            streams.append(made.submit(ask([5, 4, 3], 30)))

    with engine(program) as made:
        slow(made)
        ready = threading.Event()
        program.before = lambda number: (ready.wait(10), before(number))
        streams.append(made.submit(ask(PROMPT, 8)))
        ready.set()
        results: list[Result] = [stream.result(10) for stream in streams]
        assert program.given_up == (0 if late else 1)
        assert len(program.passes[0]) == (1 if late else 2)  # the two read together
        assert list(results[0].ids) == right(program, PROMPT, 8)
        assert list(results[1].ids) == right(program, [5, 4, 3], 30)
        assert results[0].timings["cached_tokens"] == 0  # what it read itself is not
        assert made.stats().set_aside == 0  # nor for want of pages
    nothing_leaked(made)


def test_no_prompt_loses_a_pass_twice(program: Spoiling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "ALONE", 3600.0)
    streams: list[Stream] = []
    program.width = 64

    def before(number: int) -> None:
        slow(made)
        alone = len(made._passing) == 1 and made._passing[0].tokens == 64
        if alone and len(streams) < 4:
            comers.append(made._passing[0].sequence.set_aside)
            streams.append(made.submit(ask([len(streams)], 1)))

    comers: list[int] = []
    with engine(program) as made:
        ready = threading.Event()
        program.before = lambda number: (ready.wait(10), before(number))
        streams.append(made.submit(ask(PROMPT, 8)))
        ready.set()
        assert list(streams[0].result(10).ids) == right(program, PROMPT, 8)
        for stream in streams[1:]:
            stream.result(10)
    assert comers[:2] == [0, 1]
    assert program.given_up == 1
    nothing_leaked(made)


@pytest.mark.parametrize("draft", ["off", "mtp"])
def test_a_conversation_goes_on_after_a_pass_of_delta_nets_was_given_up(
    draft: str, tmp_path: Path
) -> None:
    weights = write_recurrent(tmp_path / "tiny.gguf", "Q8_0")

    def started() -> tuple[Engine, Program]:
        program = compiled(record_recurrent(weights), pages=(16,), width=64, states=24, outputs=8)
        return Engine(program, Letters(), context=256, max_sequences=2, draft=draft), program

    def read(
        made: Engine, prompt: list[int], most: int
    ) -> list[tuple[int | None, Logprobs | None]]:
        stream = made.submit(ask(prompt, most, logprobs=3))
        return [(token.id, token.logprobs) for token in stream]

    prompt, then = tokens(4, 150), tokens(5, 40)
    made, program = started()
    with made:
        first = read(made, prompt, 12)
        second = read(made, prompt + [id for id, _ in first[:4]] + then, 12)
    for at, stage in [(p, s) for p in (0, 1, 2, 4, 5) for s in range(1, 24, 5)]:
        made, program = started()
        with made:
            passes: list[int] = []

            def run(
                batch: Batch,
                made: Engine = made,
                whole: Callable = program.run,
                passes: list[int] = passes,
                at: int = at,
                stage: int = stage,
            ) -> np.ndarray:
                passes.append(len(batch.ids))
                if len(passes) == at + 1:
                    made._passing[0].sequence.stream.cancel()
                    assert batch.stop is not None
                    assert batch.stop[0] == 1
                    batch.stop[0] = stage
                logits: np.ndarray = whole(batch)
                return logits

            program.run = run
            stopped = made.submit(ask(prompt, 12)).result(10)
            assert stopped.finish_reason == "cancelled"
            assert stopped.ids == tuple(id for id, _ in first[: len(stopped.ids)])
            assert len(passes) == at + 1
            if at % 2:
                assert read(made, prompt, 12) == first
            assert read(made, prompt + [id for id, _ in first[:4]] + then, 12) == second
        nothing_leaked(made)


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name == "golem-engine" and t.is_alive()]
