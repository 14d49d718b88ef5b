"""A growing answer: whole characters only, and a stop string is never half shown."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.errors import BadRequest
from golem_core.text import Detokenizer, StopStrings, Tokenizer, check_stops

from .vocabularies import CONTROL, real, scored, tokenizer_of

GEMMA = "gemma-3-270m-q4_k_m.gguf"

WEIGHTS = scored({"a": -1.0, "b": -2.0, "ab": -3.0, "▁": -4.0}, {"<|end|>": CONTROL})


def deltas(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer)
    return [*(detokenizer.push(i) for i in ids), detokenizer.flush()]


def test_characters_come_out_whole() -> None:
    tokenizer = tokenizer_of(WEIGHTS)
    text = "a깰 👨‍👩‍👧‍👦 𓀀𓀁b"
    found = deltas(tokenizer, tokenizer.encode(text))
    assert "".join(found) == text
    assert not any("\ufffd" in delta for delta in found)


def test_gemma_deltas_are_those_of_its_own_tokenizer() -> None:
    tokenizer = tokenizer_of(real(GEMMA))
    ids = tokenizer.encode("깰 👨‍👩‍👧‍👦 𓀀𓀁")
    zwj = "\u200d"
    assert deltas(tokenizer, ids) == [
        "", "", "깰", " ", "👨", zwj, "👩", zwj, "👧", zwj, "👦", " ",
        "", "", "", "𓀀", "", "", "", "𓀁", "",
    ]  # fmt: skip
    assert b"".join(tokenizer.piece(i) for i in ids[:3]) == "깰".encode()


def test_a_character_that_is_cut_off_is_marked_at_the_end() -> None:
    tokenizer = tokenizer_of(WEIGHTS)
    ids = tokenizer.encode("a𓀀")[:-1]
    assert deltas(tokenizer, ids) == ["a", "", "", "", "\ufffd" * 3]
    assert "".join(deltas(tokenizer, ids)) == tokenizer.decode(ids)


def test_control_tokens_are_left_out_or_shown() -> None:
    tokenizer = tokenizer_of(WEIGHTS)
    ids = tokenizer.encode("a<|end|>b", special=True)
    assert "".join(deltas(tokenizer, ids)) == "ab"
    shown = Detokenizer(tokenizer, special=True)
    assert "".join(map(shown.push, ids)) == "a<|end|>b"


@settings(deadline=None)
@given(st.lists(st.integers(0, len(tokenizer_of(WEIGHTS)) - 1), max_size=30))
def test_any_ids_stream_to_what_they_decode_to(ids: list[int]) -> None:
    tokenizer = tokenizer_of(WEIGHTS)
    found = deltas(tokenizer, ids)
    assert "".join(found) == tokenizer.decode(ids, special=False)


def stopped(stops: object, pieces: list[str]) -> tuple[list[str], bool]:
    machine = StopStrings(stops)  # type: ignore[arg-type]
    found: list[str] = []
    for piece in pieces:
        text, done = machine.push(piece)
        found.append(text)
        if done:
            return found, True
    return [*found, machine.flush()], False


FOX = ["The", " quick", " brown", " fox", " jumps"]


def test_a_stop_string_across_tokens_ends_the_text_before_it() -> None:
    found, done = stopped("own fox", FOX)
    assert ("".join(found), done) == ("The quick br", True)


def test_what_only_looked_like_a_stop_string_is_given_out() -> None:
    found, done = stopped(["fox jumps!"], FOX)
    assert ("".join(found), done) == ("The quick brown fox jumps", False)
    assert "".join(found[:-1]) == "The quick brown "


def test_the_alphabet_stops_where_it_is_told() -> None:
    found, done = stopped("DEFGHIJ", list("ABCDEFGHIJKLM"))
    assert ("".join(found), done) == ("ABC", True)
    assert stopped("é", ["caf", "é!"]) == (["caf", ""], True)


def test_the_first_complete_stop_string_counts_and_of_those_the_longest() -> None:
    assert stopped(["b", "abc"], ["abc"]) == (["a"], True)
    assert stopped(["c", "abc"], ["xabc"]) == (["x"], True)
    assert stopped(["aab"], ["a", "a", "a", "b"])[0] == ["", "", "a", ""]


@pytest.mark.parametrize(
    ("stops", "pieces", "ended"),
    [(["b", "abc"], ["abc"], "b"), (["c", "abc"], ["xa", "bc"], "abc"), (["d"], ["abc"], None)],
)
def test_it_says_which_stop_string_ended_the_text(
    stops: list[str], pieces: list[str], ended: str | None
) -> None:
    machine = StopStrings(stops)
    for piece in pieces:
        machine.push(piece)
    machine.flush()
    assert machine.found == ended


def test_nothing_comes_after_the_end() -> None:
    machine = StopStrings("x")
    assert machine.push("axb") == ("a", True)
    assert machine.push("more") == ("", True)
    assert machine.flush() == ""
    free = StopStrings(None)
    assert free.push("axb") == ("axb", False)


@settings(deadline=None, max_examples=300)
@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=4),
    st.lists(st.integers(0, 30), max_size=6),
)
def test_cutting_the_text_changes_nothing(text: str, stops: list[str], cuts: list[int]) -> None:
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in itertools.pairwise(places)]
    found, done = stopped(stops, pieces)
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    assert done == bool(ends)
    if ends:
        first = min(ends)
        whole = max(len(stop) for stop in stops if text[:first].endswith(stop))
        text = text[: first - whole]
    assert "".join(found) == text


def test_a_long_stop_string_takes_linear_time() -> None:
    machine = StopStrings("a" * 100_000 + "b")
    for _ in range(20):
        machine.push("a" * 10_000)
    assert machine.push("b") == ("", True)


@pytest.mark.parametrize(
    ("stops", "words"),
    [("", "empty"), (["a", ""], "empty"), (list("abcde"), "at most 4"), (7, "list"), ([7], "list")],
)
def test_stop_strings_of_a_request_are_checked(stops: object, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        check_stops(stops)
    assert caught.value.field == "stop"


def test_stop_strings_may_be_one_or_some_or_none() -> None:
    assert check_stops("x") == ("x",)
    assert check_stops(["x", "yz"]) == ("x", "yz")
    assert check_stops(None) == check_stops([]) == ()
