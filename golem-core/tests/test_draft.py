"""Drafting: the text is the one without, whoever guesses, however well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from golem_core.engine import Engine, Request, Result, Stats
from golem_core.engine.depth import Depths
from golem_core.engine.draft import Always, Judge, Recurrence
from golem_core.engine.reach import Reach
from golem_core.errors import BadRequest, PassFailed, Unsupported
from golem_core.sampling import Sampling

from .engines import GREEDY, Letters, nothing_leaked
from .fake_program import END, POISON, VOCABULARY, CarryingProgram, HashProgram

CONTEXT = 256
WARM = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias={POISON: -100})


def run(
    program: HashProgram, requests: Sequence[Request], draft: str, sequences: int = 4
) -> tuple[list[Result], Stats]:
    """Runs `requests` together; the second number is what the engine counted."""
    made = Engine(program, Letters(), context=CONTEXT, max_sequences=sequences, draft=draft)
    with made:
        results = [stream.result(30) for stream in [made.submit(r) for r in requests]]
        stats = made.stats()
    nothing_leaked(made)
    return results, stats


def said(results: Sequence[Result]) -> list[tuple]:
    return [(r.ids, r.text, r.finish_reason, r.end_id) for r in results]


class Repeating(CarryingProgram):
    """Says the same few tokens again and again, with a rare surprise."""

    def _logits(self, batch: object, column: int) -> np.ndarray:
        state, position = self._after[column], int(batch.positions[column])
        logits = super()._logits(batch, column) / 100
        logits[state % 5 if state % 11 == 0 else 10 + position % 7] += 1.0
        return logits


# The same text


@pytest.mark.parametrize("chains", [False, True])
@pytest.mark.parametrize("hits", [0, 3, 6, 8])
@pytest.mark.parametrize("seed", [None, *range(10)])
def test_the_text_is_the_same_with_the_prediction_block(
    hits: int, seed: int | None, chains: bool
) -> None:
    sampling = GREEDY if seed is None else Sampling(**WARM, seed=seed)
    requests = [
        Request([(7 * i + salt) % 100 for i in range(20 * salt + 1)], sampling, 90)
        for salt in range(6)
    ]
    plain, none = run(CarryingProgram(), requests, "off")
    drafted, some = run(CarryingProgram(hits=hits, chains=chains), requests, "mtp")
    assert said(drafted) == said(plain)
    assert none.drafted_tokens == none.accepted_tokens == 0
    assert none.acceptance is None
    assert some.drafted_tokens > 50
    if seed is None and not chains:
        assert some.acceptance == pytest.approx(hits / 8, abs=0.15)
    elif seed is None and hits == 8:
        assert some.acceptance > 0.9
    elif hits == 0:
        assert some.acceptance < 0.1


@pytest.mark.parametrize("program", [Repeating, HashProgram])
@pytest.mark.parametrize("seed", [None, *range(10)])
def test_the_text_is_the_same_with_repetitions(program: type, seed: int | None) -> None:
    cold = dict(WARM, temperature=0.1)
    sampling = GREEDY if seed is None else Sampling(**cold, seed=seed)
    requests = [Request([1, 2, 3, 4, 5, salt] * 8, sampling, 120) for salt in range(6)]
    plain, _ = run(program(), requests, "off")
    drafted, stats = run(program(), requests, "ngram")
    assert said(drafted) == said(plain)
    if program is Repeating:
        assert stats.acceptance > 0.5
        assert stats.passes < sum(len(r.ids) for r in plain)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(**WARM, seed=1, repeat_penalty=1.5, presence_penalty=1.0, penalty_window=-1),
        Sampling(**WARM, seed=2, frequency_penalty=2.0),
        Sampling(temperature=0.0, repeat_penalty=1.7, penalty_window=5),
    ],
)
@pytest.mark.parametrize(("draft", "hits"), [("mtp", 7), ("ngram", None)])
def test_penalties_masks_and_logprobs_are_those_of_the_text(
    sampling: Sampling, draft: str, hits: int | None
) -> None:
    seen: list[int] = []

    def mask(tokens: np.ndarray, logits: np.ndarray) -> None:
        seen.append(len(tokens))
        logits[(np.arange(VOCABULARY) + len(tokens)) % 3 == 0] = -np.inf

    def ask() -> Request:
        return Request([1, 2, 3] * 9, sampling, 80, mask=mask, logprobs=3, ignore_eos=True)

    told = []
    for way in ("off", draft):
        seen.clear()
        made = Engine(Repeating(hits=hits), Letters(), context=CONTEXT, max_sequences=1, draft=way)
        with made:
            told.append(list(made.submit(ask())))
        assert seen == list(range(27, 27 + 80))  # asked once for each token, in order
    assert told[0] == told[1]


def test_suppressed_tokens_are_not_drawn() -> None:
    logits = CarryingProgram()
    prompt = [3, 4, 5]
    (free,), _ = run(logits, [Request(prompt, GREEDY, 30)], "off")
    never = sorted({*free.ids[::2]})
    for sampling in (GREEDY, Sampling(**WARM, seed=3)):
        with Engine(
            CarryingProgram(hits=8),
            Letters(),
            context=CONTEXT,
            max_sequences=2,
            suppressed=never,
            draft="mtp",
        ) as made:
            for _ in range(5):
                drawn = made.submit(Request(prompt, sampling, 60)).result().ids
                assert drawn
                assert not set(drawn) & set(never)


# How an answer ends


@pytest.mark.parametrize(("draft", "hits"), [("mtp", 8), ("ngram", None)])
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 250, 251, 252, 253, 254, 255])
@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 33, None])
def test_no_text_is_longer_than_it_may_be(
    draft: str, hits: int | None, length: int, most: int | None
) -> None:
    request = Request([5, 6] * (length // 2) + [5] * (length % 2), GREEDY, most, ignore_eos=True)
    (plain,), _ = run(Repeating(pages=[8]), [request], "off", 1)
    (drafted,), stats = run(Repeating(pages=[8], hits=hits), [request], draft, 1)
    assert said([drafted]) == said([plain])
    assert len(drafted.ids) == min(most or CONTEXT, CONTEXT - length)
    assert stats.generated_tokens == len(drafted.ids)
    assert drafted.timings["drafted_tokens"] == stats.drafted_tokens
    assert drafted.timings["accepted_tokens"] == stats.accepted_tokens <= len(drafted.ids)


class Fixed(HashProgram):
    """Says one text wherever it is in it, and then begins again."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.text = text

    def _logits(self, batch: object, column: int) -> np.ndarray:
        logits = np.zeros(VOCABULARY, dtype=np.float32)
        logits[self.text[int(batch.positions[column]) % len(self.text)]] = 1.0
        return logits


def test_what_was_guessed_beyond_the_end_is_not_said() -> None:
    text = b"abcdefghij" + bytes([END])
    # The prompt has all of the text and what would be guessed after its end.
    prompt = list(b"j" + text) + list(text)[:3]
    (result,), stats = run(Fixed(text), [Request(prompt, GREEDY, 50)], "ngram", 1)
    assert result.text == "defghij"
    assert (result.finish_reason, result.end_id) == ("stop", END)
    assert stats.accepted_tokens > len(result.ids) / 2
    prompt = list(b"abcdefghijabc")
    request = Request(prompt, GREEDY, 50, stop="hi")
    (stopped,), stats = run(Fixed(b"abcdefghij"), [request], "ngram", 1)
    assert stopped.text == "cdefg"
    assert stopped.finish_reason == "stop"
    assert stats.passes < len(stopped.ids)


class Damaged(CarryingProgram):
    """Computes NaN from one position on."""

    def _logits(self, batch: object, column: int) -> np.ndarray:
        logits = super()._logits(batch, column)
        return np.full_like(logits, np.nan) if batch.positions[column] >= 70 else logits


def test_a_nan_is_met_where_it_would_be_without_guesses() -> None:
    told = []
    for draft, hits in (("off", None), ("mtp", 8), ("mtp", 4)):
        made = Engine(Damaged(hits=hits), Letters(), context=CONTEXT, max_sequences=2, draft=draft)
        with made:
            stream = made.submit(Request([*range(50)], GREEDY, 80, ignore_eos=True))
            tokens = []
            with pytest.raises(PassFailed, match=r"pass \d+, position 70\)"):
                tokens.extend(t.id for t in stream)
            again = made.submit(Request([*range(50)], GREEDY, 10, ignore_eos=True)).result()
        nothing_leaked(made)
        told.append(again.ids)
    assert told[0] == told[1] == told[2]


def test_a_callback_that_fails_between_guesses_ends_its_own_request() -> None:
    def broken(event: object) -> None:
        raise KeyError("mine")

    made = Engine(CarryingProgram(hits=8), Letters(), context=64, max_sequences=2, draft="mtp")
    with made:
        with pytest.raises(KeyError, match="mine"):
            made.submit(Request([1, 2], GREEDY, 20, on_event=broken)).result(10)
        assert len(made.submit(Request([1, 2], GREEDY, 5, ignore_eos=True)).result().ids) == 5
    nothing_leaked(made)


# Room


def test_guesses_take_only_what_others_leave() -> None:
    requests = [Request([i] * 40, GREEDY, 100, ignore_eos=True) for i in range(1, 5)]
    plain, _ = run(CarryingProgram(), requests, "off")
    for rest in (
        dict(width=4),
        dict(outputs=4),
        dict(outputs=5),
        dict(slots=4),
        dict(slots=5),
        dict(pages=[16]),
        dict(pages=[9], slots=6, width=8),
    ):
        drafted, stats = run(CarryingProgram(hits=8, **rest), requests, "mtp")
        assert said(drafted) == said(plain), rest
        if rest in (dict(width=4), dict(outputs=4)):
            assert stats.drafted_tokens < 200  # none while all four run
    drafted, stats = run(CarryingProgram(hits=8, slots=8), requests, "mtp")
    assert stats.acceptance > 0.95  # the end of an answer is guessed, and not drawn
    assert stats.drafted_tokens >= 4 * 40


def test_a_way_that_is_not_there_is_refused() -> None:
    for program, draft, error, match in (
        (HashProgram(), "mtp", Unsupported, "no prediction block"),
        (HashProgram(), "wild", BadRequest, "draft is 'wild', expected one of auto, off, mtp"),
    ):
        with pytest.raises(error, match=match):
            Engine(program, Letters(), context=CONTEXT, draft=draft)


# What repeats


@pytest.mark.parametrize(
    ("tokens", "most", "guess"),
    [
        ([1, 2, 3, 9, 9, 1, 2, 3], 4, [9, 9, 1]),  # three agree, so three are guessed
        ([1, 2, 3, 9, 9, 1, 2, 3], 2, [9, 9]),
        ([1, 2, 3, 9, 9, 2, 1, 3], 4, []),  # one alone agrees
        ([5, 1, 2, 7, 5, 1, 2, 8, 4, 1, 2], 4, [8, 4]),  # equally long: the last place
        ([5, 1, 2, 7, 4, 1, 2, 8, 5, 1, 2], 4, [7, 4, 1]),  # longer: an earlier one
        ([1, 2, 1, 2, 1, 2], 4, [1, 2, 1, 2]),  # beyond the end of the text
        ([7] * 9, 4, [7, 7, 7, 7]),
        ([1], 4, []),
        ([1, 1], 4, []),
        ([1, 2, 3], 4, []),
    ],
)
def test_what_followed_before_is_guessed(tokens: list[int], most: int, guess: list[int]) -> None:
    assert Recurrence().after(np.array(tokens, dtype=np.int32), most) == guess


# Whether it pays


def drive(judge: Judge, passes: int, plain: float, drafted: float, tokens: int) -> list[bool]:
    """Runs so many passes of one conversation with these seconds and tokens a drafted pass."""
    wanted = []
    for _ in range(passes):
        count = judge.wants(1, 4)
        assert count in (0, 4)
        wanted.append(count > 0)
        right = tokens - 1 if count else 0
        judge.observe(1, count, drafted if count else plain, [(count, right)])
    return wanted


def drive_depths(depths: Depths, passes: int, seconds: list[float], chance: float) -> list[int]:
    """So many passes of one conversation; a guess is right by chance, if those before it are."""
    random = np.random.default_rng(5)
    wanted = []
    for _ in range(passes):
        count = depths.wants(1, 3)
        wanted.append(count)
        wrong = np.flatnonzero(random.random(count) >= chance)
        right = int(wrong[0]) if len(wrong) else count
        depths.observe(1, count, seconds[count], [(count, right)])
    return wanted


@pytest.mark.parametrize(
    ("seconds", "chance", "best"),
    [
        ([1.0, 1.2, 1.4, 1.6], 0.95, 3),
        ([1.0, 1.2, 1.5, 2.6], 0.95, 2),
        ([1.0, 1.3, 2.0, 2.7], 0.7, 1),
        ([1.0, 1.3, 1.6, 1.9], 0.1, 0),
        ([1.0, 2.5, 4.0, 5.5], 0.9, 0),
    ],
)
def test_as_many_are_guessed_as_pay(seconds: list[float], chance: float, best: int) -> None:
    wanted = drive_depths(Depths(3), 2000, seconds, chance)
    first = [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6
    assert wanted[: 24 if best else 12] == first[: 24 if best else 12]
    assert np.mean(np.array(wanted[100:]) == best) > 0.85
    assert 0 < np.mean(np.array(wanted[500:]) != best) < 0.15  # others are tried


def test_guesses_that_are_asked_for_are_made_though_they_do_not_pay() -> None:
    wanted = drive_depths(Depths(3, least=1), 400, [1.0, 2.5, 4.0, 5.5], 0.5)
    assert min(wanted) == 1
    assert np.mean(np.array(wanted[50:]) == 1) > 0.9
    assert Depths(3, least=1).wants(1, 0) == 0  # no room for one


def test_the_number_of_guesses_follows_the_text() -> None:
    depths = Depths(3)
    seconds = [1.0, 1.2, 1.4, 1.6]
    assert np.mean(drive_depths(depths, 400, seconds, 0.95)[100:]) > 2.7
    assert np.mean(drive_depths(depths, 600, seconds, 0.05)[300:]) < 0.3
    assert np.mean(drive_depths(depths, 2500, seconds, 0.95)[-100:]) > 2.5


def test_no_more_are_guessed_than_there_is_room_for() -> None:
    depths = Depths(3)
    drive_depths(depths, 400, [1.0, 1.2, 1.4, 1.6], 0.95)
    assert [depths.wants(1, most) for most in range(4)] == [0, 1, 2, 3]
    for _ in range(40):  # eight conversations have room for one guess each
        count = depths.wants(8, 1)
        assert count <= 1
        depths.observe(8, count, 1.0 + 0.1 * count, [(count, count)] * 8)
    assert depths.wants(8, 1) == 1


# Of how many tokens


def test_tokens_that_are_not_drawn_are_not_considered() -> None:
    reach = Reach(100_000, 4e-6)
    assert reach.tokens == 100_000
    reach.see([500, 20, 1000] * 30)
    low = reach.tokens
    assert 1024 <= low < 4096
    for _ in range(20):
        reach.see([90_000, 80_000, 20] * 30)
    assert reach.tokens == 100_000  # another script
    for _ in range(20):
        reach.see([500, 20, 1000] * 30)
    assert reach.tokens == low


def test_rare_tokens_are_considered_where_that_costs_little() -> None:
    text = [10] * 95 + [60_000] * 5
    reached = []
    for share in (1e-7, 1e-5):
        reach = Reach(100_000, share)
        for _ in range(5):
            reach.see(text)
        reached.append(reach.tokens)
    assert reached == [100_000, 1568]
    whole = Reach(100_000, 0.0)
    whole.see(text * 5)
    assert whole.tokens == 100_000


def test_drafting_that_pays_goes_on_and_is_compared_now_and_then() -> None:
    wanted = drive(Judge(), 1000, plain=1.0, drafted=1.2, tokens=2)
    assert wanted[:20] == [False] * 4 + [True] * 16
    assert 0.95 < np.mean(wanted) < 0.99


def test_drafting_that_does_not_pay_steps_aside_longer_each_time() -> None:
    wanted = drive(Judge(), 4000, plain=1.0, drafted=2.2, tokens=2)
    assert wanted[4:20] == [True] * 16
    assert np.mean(wanted) < 0.04
    assert any(wanted[2000:])  # it is tried again


def test_drafting_comes_back_when_it_pays_again() -> None:
    judge = Judge()
    assert not all(drive(judge, 200, plain=1.0, drafted=2.2, tokens=2)[100:])
    assert all(drive(judge, 1200, plain=1.0, drafted=1.1, tokens=2)[-100:])


def test_each_number_of_conversations_is_judged_by_itself() -> None:
    judge = Judge()
    drive(judge, 100, plain=1.0, drafted=2.2, tokens=2)
    assert judge.wants(1, 4) == 0
    for _ in range(Judge.PLAIN):
        assert judge.wants(2, 4) == 0
        judge.observe(2, 0, 1.0, [(0, 0), (0, 0)])
    assert judge.wants(2, 4) == 4
    assert Always().wants(1, 4) == 4


def test_an_engine_steps_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock by which a guess takes longer than it can ever save."""
    program = CarryingProgram(hits=8, chains=False)
    now = [0.0]
    run_plain, draft_plain = program.run, program.draft

    def timed_run(batch: object) -> np.ndarray:
        now[0] += 1.0
        return run_plain(batch)

    def timed_draft(batch: object, again: bool) -> np.ndarray:
        now[0] += cost[0]
        return draft_plain(batch, again)

    monkeypatch.setattr(program, "run", timed_run)
    monkeypatch.setattr(program, "draft", timed_draft)
    monkeypatch.setattr("golem_core.engine.engine.time.perf_counter", lambda: now[0])
    requests = [Request([1, 2, 3], GREEDY, 250, ignore_eos=True)]
    for seconds, least, most in ((2.0, 14, 40), (0.1, 100, 125)):
        cost = [seconds]
        _, stats = run(program, requests, "auto", 1)
        program.closed = False
        assert least <= stats.drafted_tokens <= most
        assert stats.draft_seconds > 0
