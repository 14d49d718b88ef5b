"""Texts made ready and cut, as recorded from the makers' package by ref/pocket_text.py."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import pytest

from golem_core.errors import BadRequest, BadWeights, NotFound
from golem_pockettts.chunks import LONGEST, lines, split
from golem_pockettts.languages import LANGUAGES, TextRules, published_rules
from golem_pockettts.text import prepare
from golem_pockettts.tokenizer import Tokenizer

VECTORS = Path(__file__).parent / "vectors"
TEXTS = json.loads((VECTORS / "texts.json").read_text(encoding="utf-8"))
RULES = json.loads((VECTORS / "rules.json").read_text(encoding="utf-8"))
PIECES = 420


def reader(name: str) -> Tokenizer:
    return Tokenizer(VECTORS / name, PIECES)


READERS = {name: reader(name) for name in ("unigram.json", "unigram.model", "bpe.model")}


@pytest.mark.parametrize("name", RULES)
def test_rules_of_the_published_models(name: str) -> None:
    found, told = published_rules(name, None), RULES[name]
    assert dict(found.replace) == told["replace_characters"]
    assert found.no_semicolons == told["remove_semicolons"]
    assert found.pad_short == told["pad_with_spaces_for_short_inputs"]
    assert found.terminal == told["append_terminal_punctuation"]
    assert found.capitalise == told["capitalize_first_letter"]
    assert found.rest == told["model_recommended_frames_after_eos"]


def test_every_language_was_recorded() -> None:
    assert {name.split("_")[0] for name in RULES} == set(LANGUAGES)
    assert len({one["config"] for one in TEXTS}) >= 7
    assert len(TEXTS) > 200


def test_texts_are_made_ready_and_cut_as_by_the_makers() -> None:
    for one in TEXTS:
        text = one["text"] * one.get("times", 1)
        rules, tokenizer = published_rules(one["config"], None), READERS[one["reader"]]
        if one.get("empty"):
            with pytest.raises(BadRequest, match="nothing to speak"):
                lines(text, tokenizer, rules, one["most"])
            continue
        found = lines(text, tokenizer, rules, one["most"])
        pieces = split(text, tokenizer, rules, one["most"])
        whole = [
            pieces,
            [line.text for line in found],
            [line.rest for line in found],
            [list(line.ids) for line in found],
        ]
        if "sum" in one:
            assert len(pieces) == one["count"]
            assert hashlib.sha256(json.dumps(whole).encode()).hexdigest() == one["sum"]
        else:
            assert prepare(text, rules) == (one["ready"], one["rest"])
            assert whole == [one["pieces"], one["lines"], one["rests"], one["ids"]]


def test_a_model_may_say_how_long_it_rests() -> None:
    assert prepare("Hi", TextRules(rest=9)) == ("Hi.", 9)
    assert prepare("hi there", TextRules(terminal=False, capitalise=False)) == ("hi there", 5)


@pytest.mark.parametrize(
    "text", ["a" * 20_000, "0123456789" * 2_000, "word " * 4_000, "你好" * 9_000]
)
@pytest.mark.parametrize("name", READERS)
def test_a_text_with_no_punctuation_is_cut_between_words(name: str, text: str) -> None:
    begun = time.monotonic()
    found = lines(text, READERS[name], published_rules("english", None))
    assert time.monotonic() - begun < 10
    assert len(found) > 10
    assert max(len(line.ids) for line in found) < 60  # each gets a full stop of its own
    spoken = "".join(line.text.removesuffix(".") for line in found)
    assert spoken.replace(" ", "").lower() == text.replace(" ", "")
    if " " in text:
        assert all(set(line.text.rstrip(".").lower().split()) == {"word"} for line in found)


def test_what_the_makers_leave_long_is_one_line_up_to_a_length() -> None:
    text = "word " * 100
    [line] = lines(text, READERS["unigram.json"], published_rules("english", None))
    assert 200 < len(line.ids) <= LONGEST


def test_a_hundred_digits_and_an_emoji_are_spoken() -> None:
    rules = published_rules("english", None)
    [digits] = lines("1234567890" * 10, READERS["unigram.json"], rules)
    assert digits.text == "1234567890" * 10 + "."
    [smile] = lines("😀", READERS["unigram.json"], rules)
    assert smile.text == "😀."
    assert len(smile.ids) == 6  # four bytes of it


def test_what_is_no_text_is_refused() -> None:
    rules = published_rules("english", None)
    with pytest.raises(BadRequest, match="half a character at 5"):
        lines("Hello\ud83d", READERS["unigram.json"], rules)
    with pytest.raises(BadRequest, match="max_tokens is 0"):
        lines("Hello", READERS["unigram.json"], rules, 0)


def test_vocabularies_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="has 420 pieces, but the model's table is of 4000"):
        Tokenizer(VECTORS / "bpe.model", 4000)
    with pytest.raises(NotFound, match=r"none\.model cannot be read"):
        Tokenizer(tmp_path / "none.model", PIECES)
    for name, data in (
        ("a.json", b"{}"), ("b.json", b"\xff"), ("c.model", b""), ("d.model", b"nothing of it"),
        ("e.model", (VECTORS / "bpe.model").read_bytes()[:3000]), ("f.model", b"{\"x\": 1}"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadWeights, match=name):
            Tokenizer(tmp_path / name, PIECES)
    with (tmp_path / "g.model").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(BadWeights, match="more than 64 MiB"):
        Tokenizer(tmp_path / "g.model", PIECES)
