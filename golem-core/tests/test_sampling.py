"""Sampling: against a plain reference that sorts everything, and at its edges."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from golem_core.errors import BadRequest, BadWeights, PassFailed
from golem_core.sampling import Chances, Sampler, Sampling, filters, logprobs

NOTHING = np.empty(0, dtype=np.int32)
OPEN = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}


def row(size: int, seed: int = 0, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * scale).astype(np.float32)


def candidates(logits: np.ndarray, asked: Sampling) -> set[int]:
    """The filters as their definitions say, in float64 with a full sort for each."""
    kept = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if 0 < asked.top_k < len(logits):
        kept = kept[: asked.top_k]

    def p(ids: list[int]) -> np.ndarray:
        values = np.exp(logits[ids].astype(np.float64) - float(logits[ids].max()))
        return values / values.sum()

    if asked.typical_p < 1.0:
        kept = sorted(kept)
        share = p(kept)
        with np.errstate(divide="ignore"):
            surprise = np.where(share > 0, -np.log(share), np.inf)
        entropy = float((share[share > 0] * surprise[share > 0]).sum())
        order = sorted(range(len(kept)), key=lambda i: (abs(surprise[i] - entropy), i))
        count = int(np.searchsorted(np.cumsum(share[order]), asked.typical_p, side="right")) + 1
        kept = [kept[i] for i in order[:count]]
        kept.sort(key=lambda i: (-logits[i], i))
    if asked.top_p < 1.0:
        count = int(np.searchsorted(np.cumsum(p(kept)), asked.top_p)) + 1
        kept = kept[:count]
    if asked.min_p > 0.0:
        share = p(kept)
        kept = [i for i, s in zip(kept, share, strict=True) if s >= asked.min_p * share.max()]
    return set(kept)


def drawn(logits: np.ndarray, asked: Sampling, times: int) -> np.ndarray:
    """How often each token is drawn over so many positions."""
    sampler = Sampler(asked)
    counts = np.zeros(len(logits), dtype=np.int64)
    for position in range(times):
        counts[sampler.draw(logits, np.zeros(position, dtype=np.int32))] += 1
    return counts


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.0},
        {"temperature": 1e-9},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 0.0},
    ],
)
def test_where_nothing_is_left_to_chance_the_lowest_of_the_likeliest_is_drawn(fields: dict) -> None:
    for size in (1, 2, 31, 1000, 262_144):
        logits = row(size, size)
        for ties in ([0], [size - 1], [size // 2, size - 1]):
            logits[ties] = 50.0
            sampler = Sampler(Sampling(**fields))
            assert {sampler.draw(logits, NOTHING) for _ in range(3)} == {min(ties)}
            logits[ties] = 0.0
    assert Sampler(Sampling(**fields)).draw(np.zeros(9, dtype=np.float32), NOTHING) == 0


@pytest.mark.parametrize("temperature", [2e-5, 1e-3, 100.0])
def test_extreme_temperatures_make_no_nan(temperature: float) -> None:
    logits = np.array([-np.inf, 80.0, -3e38, 79.0, 3e38, -np.inf], dtype=np.float32)
    asked = Sampling(temperature=temperature, **OPEN)
    assert drawn(logits, asked, 50)[4] == 50


@settings(max_examples=200, deadline=None)
@given(
    logits=arrays(
        np.float32,
        st.integers(1, 400),
        elements=st.floats(-30, 30, width=32) | st.sampled_from([-np.inf, 0.0, 1.0]),
    ),
    count=st.integers(1, 400),
)
def test_the_largest_are_those_of_a_full_sort(logits: np.ndarray, count: int) -> None:
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    assert filters.largest(logits, count).tolist() == order[:count]


@pytest.mark.parametrize("size", [1, 31, 1055, 262_145])
def test_greedy_draws_the_first_of_the_largest_and_finds_a_nan_anywhere(size: int) -> None:
    sampler = Sampler(Sampling(temperature=0.0))
    nothing = np.empty(0, np.int32)
    logits = np.round(row(size))
    for place in {0, size // 3, size - 1}:
        assert sampler.draw(logits, nothing) == np.flatnonzero(logits == logits.max())[0]
        logits[place] = logits.max() + 1
        assert sampler.draw(logits, nothing) == place
        broken = logits.copy()
        broken[place] = np.nan
        with pytest.raises(PassFailed, match="1 NaN"):
            sampler.draw(broken, nothing)


@pytest.mark.parametrize("size", [5, 64, 4096, 4097, 50_000, 262_144])
@pytest.mark.parametrize("count", [1, 2, 40, 64, 1000])
def test_the_largest_of_a_vocabulary(size: int, count: int) -> None:
    for logits in (row(size), np.round(row(size)), np.zeros(size, dtype=np.float32)):
        order = np.argsort(-logits, kind="stable")[:count]
        assert (filters.largest(logits, count) == order).all()


FIELDS = st.fixed_dictionaries(
    {
        "top_k": st.sampled_from([0, 2, 5, 40, 10_000]),
        "typical_p": st.sampled_from([1.0, 0.9, 0.3]),
        "top_p": st.sampled_from([1.0, 0.95, 0.5, 1e-6]),
        "min_p": st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    }
)


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([3, 60, 700, 5000]), fields=FIELDS)
@example(seed=0, size=60, fields={"top_k": 0, "typical_p": 1.0, "top_p": 1.0, "min_p": 0.0})
def test_filters_keep_what_their_definitions_keep(seed: int, size: int, fields: dict) -> None:
    logits = row(size, seed)
    asked = Sampling(temperature=1.0, seed=seed, **fields)
    kept = candidates(logits, asked)
    sampler = Sampler(asked)
    ids = set()
    for chance in np.linspace(0, 1, 200, endpoint=False).tolist():
        sampler._chances = SimpleNamespace(at=lambda _, chance=chance: chance)
        ids.add(sampler.draw(logits, NOTHING))
    assert ids <= kept
    assert len(kept) > 20 or ids >= {i for i in kept if logits[i] > logits.max() - 3}


def test_draws_follow_the_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], dtype=np.float32))
    asked = Sampling(temperature=1.0, seed=7, **OPEN)
    assert np.abs(drawn(logits, asked, 4000) / 4000 - np.exp(logits)).max() < 0.03
    squared = np.exp(logits) ** 2
    cold = Sampling(temperature=0.5, seed=7, **OPEN)
    assert np.abs(drawn(logits, cold, 4000) / 4000 - squared / squared.sum()).max() < 0.03


def test_the_temperature_comes_after_the_filters() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], dtype=np.float32))
    hot = Sampling(temperature=50.0, top_k=0, top_p=0.7, min_p=0.0, seed=1)
    assert np.flatnonzero(drawn(logits, hot, 200)).tolist() == [0, 1]


@pytest.mark.parametrize("seed", [0, 1, -1, -9007199254740991, 2**63 - 1, -(2**63), 2**64 - 1])
def test_a_seed_gives_the_same_text_again(seed: int) -> None:
    logits = row(1000)
    asked = Sampling(temperature=1.5, seed=seed, **OPEN)
    first = [Sampler(asked).draw(logits, np.zeros(i, dtype=np.int32)) for i in range(20)]
    assert first == [Sampler(asked).draw(logits, np.zeros(i, dtype=np.int32)) for i in range(20)]
    other = Sampling(temperature=1.5, seed=(seed + 1) % 2**63, **OPEN)
    assert first != [Sampler(other).draw(logits, np.zeros(i, dtype=np.int32)) for i in range(20)]


def test_chances_depend_on_seed_and_position_alone() -> None:
    forward, backward = Chances(5), Chances(5)
    there = [forward.at(i) for i in range(0, 1000, 7)]
    assert there == [backward.at(i) for i in reversed(range(0, 1000, 7))][::-1]
    assert len(set(there)) == len(there)
    assert all(0.0 <= chance < 1.0 for chance in there)


def test_without_a_seed_every_request_has_its_own() -> None:
    seeds = {Sampler(Sampling()).seed for _ in range(5)}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_no_token_can_be_drawn_from(bad: float, temperature: float) -> None:
    logits = row(100)
    logits[41] = bad
    with pytest.raises(PassFailed) as caught:
        Sampler(Sampling(temperature=temperature)).draw(logits, NOTHING)
    assert caught.value.waypoint == "logits"
    assert caught.value.kind == ("nan_logits" if math.isnan(bad) else "infinite_logits")
    with pytest.raises(PassFailed, match="logits has -inf for its largest value"):
        Sampler(Sampling()).draw(np.full(9, -np.inf, dtype=np.float32), NOTHING)
    with pytest.raises(PassFailed, match="logits has 9 NaN of 9 values"):
        Sampler(Sampling()).draw(np.full(9, np.nan, dtype=np.float32), NOTHING)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", None),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("top_p", math.nan),
        ("min_p", 1.01),
        ("typical_p", -0.5),
        ("top_k", -1),
        ("top_k", 1.5),
        ("top_k", True),
        ("repeat_penalty", 0.0),
        ("repeat_penalty", -1.0),
        ("frequency_penalty", math.inf),
        ("presence_penalty", math.nan),
        ("penalty_window", -2),
        ("seed", 2**64),
        ("seed", -(2**63) - 1),
        ("seed", 0.5),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {"999999999": 1.0}),
        ("logit_bias", {1: 101.0}),
        ("logit_bias", {1: math.nan}),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(BadRequest) as caught:
        Sampling(**{field: value})
    assert caught.value.field == field
    assert field in str(caught.value)


def test_messages_say_what_was_found_and_what_is_expected() -> None:
    with pytest.raises(BadRequest, match=r"top_p is 1\.5, expected 0 to 1$"):
        Sampling(top_p=1.5)
    with pytest.raises(BadRequest, match=r"logit_bias names token 999999999, and the vocabulary"):
        Sampling(logit_bias={999999999: 1.0}).check_vocabulary(1000)


def test_a_bias_compels_and_bans() -> None:
    logits = row(100)
    logits[3] = 500.0
    greedy = {"temperature": 0.0}
    assert Sampler(Sampling(**greedy, logit_bias={7: 100})).draw(logits, NOTHING) == 7
    assert Sampler(Sampling(**greedy, logit_bias={3: -100})).draw(logits, NOTHING) != 3
    nearly = Sampling(**greedy, logit_bias={7: 99.0})
    assert Sampler(nearly).draw(logits, NOTHING) == 3
    two = Sampling(temperature=100.0, **OPEN, logit_bias={7: 100, 8: 100}, seed=3)
    assert np.flatnonzero(drawn(logits, two, 100)).tolist() == [7, 8]
    assert logits[3] == 500.0
    with pytest.raises(PassFailed, match="no token is left to draw"):
        Sampler(Sampling(logit_bias={7: 100}), frozenset({7})).draw(logits, NOTHING)


def test_penalties_are_those_of_their_definitions() -> None:
    logits = np.array([2.0, -1.0, 0.5, 0.0], dtype=np.float32)
    asked = Sampling(
        temperature=0.0,
        repeat_penalty=2.0,
        frequency_penalty=0.25,
        presence_penalty=0.5,
        penalty_window=4,
    )
    tokens = np.array([2, 2, 2, 0, 1, 0, 3], dtype=np.int32)  # the window: 0 1 0 3
    changed = logits.copy()
    Sampler(asked)._change(changed, tokens)
    assert changed.tolist() == [2 / 2 - 0.5 - 0.5, -1 * 2 - 0.25 - 0.5, 0.5, -0.25 - 0.5]
    assert Sampler(asked).draw(logits, tokens) == 2
    assert Sampler(asked).draw(logits, tokens[:0]) == 0
    whole = Sampling(temperature=0.0, presence_penalty=5.0, penalty_window=-1)
    assert Sampler(whole).draw(logits, tokens[:3]) == 0
    assert Sampler(whole).draw(logits, np.tile(np.int32([0, 2]), 500)) == 3
    off = Sampling(temperature=0.0, presence_penalty=5.0, penalty_window=0)
    assert Sampler(off).draw(logits, tokens) == 0


def test_a_file_recommends_and_a_caller_decides() -> None:
    metadata = {
        "general.sampling.temp": 0.25,
        "general.sampling.top_k": -1,
        "general.sampling.top_p": 0.5,
        "general.sampling.penalty_last_n": 32,
        "general.sampling.penalty_repeat": 1.25,
        "general.sampling.mirostat": 2,
        "general.name": "x",
    }
    found = Sampling.from_metadata(metadata, top_p=0.75, seed=None)
    assert found == Sampling(
        temperature=0.25, top_k=0, top_p=0.75, penalty_window=32, repeat_penalty=1.25
    )
    assert Sampling.from_metadata({}) == Sampling()
    with pytest.raises(BadWeights, match=r"general\.sampling: temperature is -5\.0"):
        Sampling.from_metadata({"general.sampling.temp": -5.0})
    with pytest.raises(BadRequest, match="sampling has no field 'heat'"):
        Sampling.from_metadata({}, heat=1.0)
    with pytest.raises(BadRequest, match="temperature is -1"):
        Sampling.from_metadata(metadata, temperature=-1)


def test_logprobs_are_a_log_softmax() -> None:
    logits = row(5000)
    exact = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    found = logprobs(logits, 17, 5)
    assert found.logprob == pytest.approx(exact[17], abs=1e-5)
    order = np.argsort(-logits, kind="stable")[:5]
    assert [i for i, _ in found.top] == order.tolist()
    assert [p for _, p in found.top] == pytest.approx(exact[order].tolist(), abs=1e-5)
    assert logprobs(logits, 17, 0).top == ()


@pytest.mark.parametrize("count", [1, 3, 40, 5000])
@pytest.mark.parametrize("size", [5, 4096, 50_001])
def test_the_largest_of_a_row_with_a_nan_is_the_first_nan(size: int, count: int) -> None:
    for place in {0, size // 2, size - 1}:
        logits = row(size)
        logits[[place, size - 1]] = np.nan
        assert filters.largest(logits, count).tolist() == [place]


@pytest.mark.parametrize(
    "fields",
    [
        {"repeat_penalty": 1.3, "frequency_penalty": 0.2},
        {"logit_bias": {3: -100, 5: 2.5}},
        {"logit_bias": {3: 100, 9: 100}, "presence_penalty": 1.0},
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_logits_are_left_as_they_were(fields: dict, fails: bool) -> None:
    logits = row(5000)
    if fails:
        logits[:] = -np.inf
        logits[3] = 1.0
        fields = {**fields, "logit_bias": {3: -100}}
    before = logits.copy()
    sampler = Sampler(Sampling(seed=3, **fields))
    with pytest.raises(PassFailed) if fails else contextlib.nullcontext():
        sampler.draw(logits, np.array([3, 3, 9], np.int32))
    assert np.array_equal(logits, before)
