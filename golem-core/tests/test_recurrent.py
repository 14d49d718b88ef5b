"""Slots of recurrent state: what is carried, remembered, gone back to and given up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golem_core.engine import Engine, Request, Result, Stream
from golem_core.errors import NoMemory, PassFailed
from golem_core.graph.program import PAGE, PageGroup
from golem_core.memory import Hold, Memory, token_keys
from golem_core.sampling import Sampling

from .engines import EVENTS, Letters, ask, nothing_leaked
from .fake_program import POISON, CarryingProgram, carrying_logits, expected

CONTEXT = 256


def engine(program: CarryingProgram, sequences: int = 4, draft: str = "off") -> Engine:
    return Engine(program, Letters(), context=CONTEXT, max_sequences=sequences, draft=draft)


def alone(prompt: Sequence[int], most: int, windows: Sequence[int | None] = (None,)) -> list[int]:
    return expected(prompt, windows, most, CONTEXT, carrying_logits)


def together(
    program: CarryingProgram, requests: Sequence[Request], sequences: int = 4
) -> tuple[list[Result], Engine]:
    """Runs `requests` submitted before the first pass ends."""
    with engine(program, sequences) as made:
        streams: list[Stream] = []
        program.before = lambda number: (
            streams.extend(made.submit(r) for r in requests[1:]) if number == 0 else None
        )
        first = made.submit(requests[0]).result()
        return [first, *(s.result() for s in streams)], made


# One conversation


@pytest.mark.parametrize("windows", [(None,), (None, 40), (16,), ()])
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 64, 65, 200])
def test_a_text_is_what_a_run_without_slots_gives(windows: tuple, length: int) -> None:
    prompt = [(7 * i + 3) % 100 for i in range(length)]
    with engine(CarryingProgram(windows, [12] * len(windows), width=24)) as made:
        result = made.submit(ask(prompt, 50)).result()
        again = made.submit(ask(prompt, 50)).result()
    assert list(result.ids) == alone(prompt, 50, windows)
    assert again.ids == result.ids
    assert again.timings["cached_tokens"] == (length - 1) // 32 * 32
    nothing_leaked(made)


def test_one_slot_is_enough_and_then_nothing_is_remembered_but_what_it_has() -> None:
    prompt = [(7 * i + 3) % 100 for i in range(100)]
    with engine(CarryingProgram(width=24, slots=1), sequences=1) as made:
        for _ in range(3):
            assert list(made.submit(ask(prompt, 50)).result().ids) == alone(prompt, 50)
        stats = made.stats().states
    assert stats is not None
    assert stats.slots == 1
    nothing_leaked(made)


def test_the_next_turn_goes_on_from_the_last_page_of_the_answer() -> None:
    prompt = [(5 * i) % 90 for i in range(70)]
    with engine(CarryingProgram(slots=8)) as made:
        first = made.submit(ask(prompt, 100, ignore_eos=True)).result()
        assert len(first.ids) == 100
        talk = [*prompt, *first.ids, 1, 2, 3]
        second = made.submit(ask(talk, 10)).result()
        # Read were 70 and 99 tokens, and the last of the answer comes with the next turn.
        assert second.timings["cached_tokens"] == 160
        assert list(second.ids) == alone(talk, 10)
        # The answer is said otherwise: back to the last page of the prompt.
        other = [*prompt, 9, 9, 9]
        third = made.submit(ask(other, 10)).result()
        assert third.timings["cached_tokens"] == 64
        assert list(third.ids) == alone(other, 10)
    nothing_leaked(made)


def test_while_an_answer_is_drawn_only_its_last_page_is_remembered() -> None:
    with engine(CarryingProgram(slots=8), sequences=1) as made:
        made.submit(ask([1] * 40, 180, ignore_eos=True)).result()
        stats = made.stats().states
    assert stats is not None
    assert (stats.free, stats.idle) == (6, 2)  # the prompt's last page, and the answer's


# What is shared


def test_a_shared_beginning_is_remembered_where_the_second_leaves_it() -> None:
    system = [(5 * i) % 90 for i in range(170)]
    with engine(CarryingProgram(slots=16)) as made:
        cached = []
        for i in range(4):
            prompt = [*system, *[i + 1] * 40]
            result = made.submit(ask(prompt, 5)).result()
            assert list(result.ids) == alone(prompt, 5)
            cached.append(result.timings["cached_tokens"])
    assert cached == [0, 0, 160, 160]
    nothing_leaked(made)


def test_a_beginning_is_read_once_by_all_who_share_it_at_a_time() -> None:
    system = [(5 * i) % 90 for i in range(160)]
    requests = [ask([*system, i, i + 1, i + 2], 5) for i in range(8)]
    program = CarryingProgram(pages=[100], width=64, slots=24)
    results, made = together(program, requests, sequences=8)
    for request, result in zip(requests, results, strict=True):
        assert list(result.ids) == alone(request.prompt_ids, 5)
    stats = made.stats()
    assert stats.read_tokens == 160 + 3 * 8
    assert stats.cached_tokens == 160 * 7
    nothing_leaked(made)


def test_who_follows_does_not_wait_for_one_that_is_gone() -> None:
    system = [(5 * i) % 90 for i in range(160)]
    program = CarryingProgram(pages=[100], width=8, slots=24)
    with engine(program) as made:
        streams: list[Stream] = []

        def before(number: int) -> None:
            if number == 0:
                streams.extend(made.submit(ask([*system, i], 5)) for i in (1, 2))
            if number == 4:
                first.cancel()

        program.before = before
        first = made.submit(ask([*system, 0], 5))
        assert first.result(10).finish_reason == "cancelled"
        for i, stream in zip((1, 2), streams, strict=True):
            assert list(stream.result(10).ids) == alone([*system, i], 5)
    nothing_leaked(made)


def test_the_snapshot_that_was_used_least_recently_is_given_up() -> None:
    with engine(CarryingProgram(slots=5), sequences=1) as made:

        def cached(kind: int) -> int:
            # A prompt that ends with its page and one token: one snapshot, nothing rolls.
            prompt = [kind] * 33
            result = made.submit(ask(prompt, 1, ignore_eos=True)).result()
            assert list(result.ids) == alone(prompt, 1)
            return result.timings["cached_tokens"]

        assert [cached(kind) for kind in (1, 2, 3, 4)] == [0, 0, 0, 0]
        assert cached(1) == 32
        assert [cached(kind) for kind in (5, 6)] == [0, 0]  # 2 and 3 go
        assert [cached(kind) for kind in (1, 4, 5, 6)] == [32, 32, 32, 32]
        assert cached(2) == 0
    nothing_leaked(made)


def test_a_failed_text_leaves_no_state_behind() -> None:
    poisoned = ask([*range(40), POISON, *range(30)], 5)
    with engine(CarryingProgram(slots=8)) as made:
        with pytest.raises(PassFailed, match="128 NaN of 128 values"):
            made.submit(poisoned).result()
        after = [*range(40), 7, 8]
        assert list(made.submit(ask(after, 5)).result().ids) == alone(after, 5)
    nothing_leaked(made)


# Few slots, few pages


@pytest.mark.parametrize("slots", [2, 3, 4, 5, 8])
def test_as_many_run_as_there_are_slots(slots: int) -> None:
    shared = [(5 * i) % 90 for i in range(64)]
    requests = [ask([*shared, i], 60, ignore_eos=True) for i in range(6)]
    program = CarryingProgram(pages=[64], width=16, slots=slots)
    results, made = together(program, requests, sequences=4)
    alike = Engine(CarryingProgram(), Letters(), context=CONTEXT, max_sequences=1)
    with alike:
        for request, result in zip(requests, results, strict=True):
            assert alike.submit(request).result().ids == result.ids
    assert max(len(columns) for columns in program.passes) <= min(slots, 4)
    nothing_leaked(made)


def test_who_is_set_aside_loses_its_slot_and_no_answer_changes() -> None:
    warm = Sampling(
        temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5, logit_bias={POISON: -100}
    )
    requests = [ask([i] * 40, 150, ignore_eos=True, sampling=warm) for i in range(1, 5)]
    results, made = together(CarryingProgram(pages=[8], width=16, slots=6), requests)
    assert made.stats().set_aside > 0
    with Engine(CarryingProgram(), Letters(), context=CONTEXT, max_sequences=1) as alike:
        for request, result in zip(requests, results, strict=True):
            assert alike.submit(request).result().ids == result.ids
    nothing_leaked(made)


@pytest.mark.parametrize("draft", ["mtp", "ngram"])
@pytest.mark.parametrize("guesses", [0, 1, 2])
def test_no_more_is_guessed_than_the_program_remembers(draft: str, guesses: int) -> None:
    prompt = [1, 2, 3] * 12
    program = CarryingProgram(hits=8, guesses=guesses)
    with engine(program, sequences=1, draft=draft) as made:
        assert list(made.submit(ask(prompt, 40)).result().ids) == alone(prompt, 40)
    assert max(columns[0] for columns in program.passes[1:]) <= 1 + guesses
    assert (program.drafted > 0) == (draft == "mtp" and guesses > 0)
    nothing_leaked(made)


def test_no_slot_at_all_is_refused() -> None:
    with pytest.raises(NoMemory, match="needs a slot for its recurrent state and there is none"):
        engine(CarryingProgram(slots=0))


@given(
    events=EVENTS,
    windows=st.sampled_from([(None,), (None, 20), (33,), ()]),
    spare=st.integers(0, 6),
    width=st.integers(4, 70),
    outputs=st.integers(4, 20),
    sequences=st.integers(1, 4),
    slots=st.integers(1, 12),
    draft=st.sampled_from([("off", None), ("mtp", 0), ("mtp", 5), ("mtp", 8), ("ngram", None)]),
)
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_the_one_it_would_be_alone(
    events: list,
    windows: tuple,
    spare: int,
    width: int,
    outputs: int,
    sequences: int,
    slots: int,
    draft: tuple,
) -> None:
    context = 192
    pages = [
        (6 if window is None else min(6, (window + 30) // 32 + 1)) + spare for window in windows
    ]
    way, hits = draft
    program = CarryingProgram(windows, pages, width, outputs, slots, hits)
    made = Engine(program, Letters(), context=context, max_sequences=sequences, draft=way)
    with made:
        streams: dict[int, Stream] = {}

        def due(number: int) -> None:
            for index, (at, prompt, most, cancelled) in enumerate(events):
                if at <= number and index not in streams:
                    streams[index] = made.submit(ask(prompt, most))
                if cancelled is not None and cancelled <= number and index in streams:
                    streams[index].cancel()

        program.before = due
        made.submit(ask([99], 2)).result(30)
        while len(streams) < len(events):
            for stream in list(streams.values()):
                stream.result(30)
            made.submit(ask([98], 1)).result(30)
            events = [(0 if i not in streams else e[0], *e[1:]) for i, e in enumerate(events)]
        results = [streams[i].result(30) for i in range(len(events))]
    for (_, prompt, most, cancelled), result in zip(events, results, strict=True):
        answer = expected(prompt, windows, most, context, carrying_logits)
        if result.finish_reason == "cancelled":
            assert cancelled is not None
            assert list(result.ids) == answer[: len(result.ids)]
        else:
            assert list(result.ids) == answer
            assert result.finish_reason in ("stop", "length")
    nothing_leaked(made)


# Without an engine


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 90), st.booleans()),
        max_size=60,
    ),
    windows=st.sampled_from([(None,), (None, 20), (40,), ()]),
    pages=st.integers(16, 24),
    slots=st.integers(4, 12),
)
def test_no_slot_is_lost_or_held_twice(
    steps: list[tuple[int, int, int, bool]], windows: tuple, pages: int, slots: int
) -> None:
    """Four places; in each a text begins, goes on by some positions, or ends."""
    made = Memory([PageGroup(w, 1, 1, pages) for w in windows], 512, 4, slots)
    states = made.states
    assert states is not None
    held: dict[int, tuple[Hold, np.ndarray]] = {}
    for place, kind, count, ends in steps:
        if place not in held:
            shared, own = np.arange(40 * kind), np.arange(512 - 40 * kind)
            tokens = np.concatenate([shared, own + 1000 * (kind + place // 2)]).astype(np.int32)
            hold = made.open()
            made.extend(hold, token_keys(tokens), 300)
            held[place] = hold, tokens
        hold, tokens = held[place]
        count = min(count, made.room(hold), 512 - hold.length)
        if ends or count < 1:
            made.close(hold)
            del held[place]
        else:
            states.budget(h for h, _ in held.values())
            assert states.is_ready(hold)
            made.reserve(hold, count)
            states.keep(hold, count)
            made.advance(hold, count, token_keys(tokens))
        _check(made, [h for h, _ in held.values()])
    for hold, _ in held.values():
        made.close(hold)
    made.tree.clear()
    assert made.tree.nodes == 0
    assert (states.pool.free, states.pool.idle) == (slots, 0)


def _check(made: Memory, holds: list[Hold]) -> None:
    """Every count is what the conversations and the tree say."""
    states = made.states
    assert states is not None
    group = len(made.pools)
    kept = []
    pending = list(made.tree.root.children.values())
    while pending:
        node = pending.pop()
        pending += node.children.values()
        if node.pages[group] >= 0:
            kept.append(node.pages[group])
    assert len(set(kept)) == len(kept)
    live = [hold.state for hold in holds if hold.state >= 0]
    for hold in holds:
        assert states.read[hold.row] == hold.state
        assert hold.state_end + states.replays[hold.row] == hold.length
        assert (hold.state >= 0) == (hold.length > 0)
    counts = [live.count(slot) + kept.count(slot) for slot in range(states.pool.pages)]
    assert counts == [states.pool.holders(slot) for slot in range(states.pool.pages)]
    assert states.pool.free == counts.count(0)
    assert states.pool.idle == sum(slot not in live for slot in kept)


def test_a_wanted_page_is_kept_while_the_pass_goes_on() -> None:
    made = Memory([PageGroup(None, 1, 1, 16)], 512, 2, 4)
    assert made.states is not None
    tokens = np.arange(200, dtype=np.int32)
    hold = made.open()
    made.extend(hold, token_keys(tokens), 200)
    assert hold.wanted == {200 // PAGE}
    made.states.budget([hold])
    made.reserve(hold, 200)
    made.states.keep(hold, 200)
    assert sorted(offset for offset, _ in hold.kept) == [191, 199]
    made.advance(hold, 200, token_keys(tokens))
    assert hold.wanted == set()
    made.close(hold)
    hold = made.open()
    assert made.extend(hold, token_keys(tokens), 200) == 192
    made.close(hold)
