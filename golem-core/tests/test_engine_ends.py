"""How answers end that are not drawn to their end: cancelled, closed, failed; and what is told."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from golem_core.engine import Result, Stream, Token
from golem_core.errors import DeviceError

from .engines import ask, engine, nothing_leaked
from .fake_program import HashProgram


def test_cancelling_leaves_within_one_pass() -> None:
    program = HashProgram(pages=[9])
    with engine(program) as made:
        for _ in range(3):
            stream = made.submit(ask([1, 2, 3], None, ignore_eos=True))
            next(stream)
            stream.cancel()
            result = stream.result(timeout=10)
            assert result.finish_reason in ("cancelled", "length")
            assert list(stream) == []
        with made.submit(ask([1], None, ignore_eos=True)) as stream:
            next(stream)
        assert stream.result(timeout=10).finish_reason in ("cancelled", "length")
    nothing_leaked(made)


def test_cancelling_while_queued_and_while_reading() -> None:
    gate = threading.Event()
    program = HashProgram(width=8, before=lambda number: gate.wait(10) and None)
    with engine(program, sequences=1) as made:
        reading = made.submit(ask([1] * 200))
        queued = made.submit(ask([2] * 20))
        queued.cancel()
        reading.cancel()
        gate.set()
        assert reading.result(10).finish_reason == queued.result(10).finish_reason == "cancelled"
        assert len(program.passes) <= 1
        assert made.submit(ask([3], 4)).result(10).finish_reason in ("length", "stop")
    nothing_leaked(made)


def test_closing_ends_every_stream() -> None:
    made = engine(HashProgram(), sequences=1)
    streams = [made.submit(ask([i], None, ignore_eos=True)) for i in range(1, 5)]
    made.close()
    made.close()
    assert {s.result(10).finish_reason for s in streams} <= {"cancelled", "length"}
    with pytest.raises(Exception, match="the engine is closed"):
        made.submit(ask([1]))
    nothing_leaked(made)


def test_a_program_that_fails_fails_every_stream_and_hangs_none() -> None:
    submitted = threading.Event()

    def fail(number: int) -> None:
        submitted.wait(10)
        if number == 3:
            raise DeviceError("the device is lost")

    program = HashProgram(before=fail)
    made = engine(program, sequences=1)
    streams = [made.submit(ask([i], 50, ignore_eos=True)) for i in range(1, 4)]
    submitted.set()
    for stream in streams:
        with pytest.raises(DeviceError, match="the device is lost"):
            list(stream)
        with pytest.raises(DeviceError):
            stream.result(10)
        assert list(stream) == []
    with pytest.raises(DeviceError):
        made.submit(ask([1]))
    made.close()
    assert program.closed


def test_a_defect_in_the_thread_is_told_and_not_waited_for() -> None:
    def fail(number: int) -> None:
        raise ZeroDivisionError("a defect")

    with engine(HashProgram(before=fail)) as made:
        stream = made.submit(ask([1]))
        with pytest.raises(RuntimeError, match="the engine stopped: ZeroDivisionError: a defect"):
            stream.result(10)


def test_events_can_be_called_back() -> None:
    seen: list[Token | Result] = []
    with engine(HashProgram()) as made:
        result = made.submit(ask([5, 6], 8, on_event=seen.append)).result(10)
        assert seen[-1] is result
        assert tuple(t.id for t in seen[:-1] if t.id is not None) == result.ids

        def broken(event: Token | Result) -> None:
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            made.submit(ask([5, 6], 8, on_event=broken)).result(10)
        assert made.submit(ask([5, 6], 8)).result(10).ids == result.ids
    nothing_leaked(made)


def test_an_engine_with_nothing_to_do_uses_no_processor() -> None:
    with engine(HashProgram()) as made:
        made.submit(ask([1], 3)).result(10)
        gc.collect()
        time.sleep(0.05)
        begun = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - begun < 0.05
        with pytest.raises(TimeoutError):
            Stream(lambda: None).result(timeout=0.01)


@pytest.fixture(autouse=True)
def _threads_end() -> Iterator[None]:
    yield
    assert not [t for t in threading.enumerate() if t.name == "golem-engine" and t.is_alive()]
