"""A little text is merged by a part of the model: with the ids that the whole model has."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, models
from tokenizers import Tokenizer as HuggingFace
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from golem_core.errors import BadWeights
from golem_core.text import Tokenizer, merged, pretokenizers
from golem_core.weights import StringArray

from .vocabularies import CONTROL, NORMAL, USER, InMemory, byte_level, characters, vocabulary


@st.composite
def merge_lists(draw: st.DrawFn) -> list[str]:
    """Merges of few letters, in any order, each of tokens that others make; some twice."""
    tokens, merges = list("abĠ"), []
    for _ in range(draw(st.integers(1, 12))):
        left, right = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        merges.append(f"{left} {right}")
        tokens = list(dict.fromkeys([*tokens, left + right]))
    return draw(st.permutations(merges))


def merging(weights: InMemory, merges: list[str]) -> InMemory:
    """The same tokens with other merges."""
    return InMemory({**weights.metadata, "tokenizer.ggml.merges": merges})


def both(weights: InMemory) -> tuple[Tokenizer, Tokenizer]:
    """A tokenizer that never makes the whole model, and one that begins with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged, "LITTLE", 1 << 40)
        little = Tokenizer.from_weights(weights)
        patch.setattr(merged, "LITTLE", 0)
        return little, Tokenizer.from_weights(weights)


def package(weights: InMemory, merges: list[str], **options: Any) -> HuggingFace:
    """The package by itself, with all tokens and merges."""
    texts: Any = weights.metadata["tokenizer.ggml.tokens"]
    tokens = {text: i for i, text in enumerate(texts)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    return HuggingFace(models.BPE(tokens, pairs, **options))


def made_by(merges: list[str]) -> dict[str, int]:
    return dict.fromkeys((merge.replace(" ", "") for merge in merges), NORMAL)


@settings(deadline=None, max_examples=200)
@given(merge_lists(), st.sampled_from(["gpt-2", "llama3"]), st.text("ab  \n", max_size=30))
def test_byte_level_ids_are_those_of_all_merges(merges: list[str], pre: str, text: str) -> None:
    weights = merging(byte_level([], made_by(merges), pre=pre), merges)
    wanted = package(weights, merges, ignore_merges=pre == "llama3")
    cuts = [Split(Regex(e), "isolated") for e in pretokenizers.find(pre).expressions]
    wanted.pre_tokenizer = Sequence([*cuts, ByteLevel(add_prefix_space=False, use_regex=False)])
    for tokenizer in both(weights):
        assert tokenizer.encode(text) == wanted.encode(text).ids


@settings(deadline=None, max_examples=200)
@given(merge_lists(), st.text("ab é\n", max_size=30))
def test_character_ids_are_those_of_all_merges(merges: list[str], text: str) -> None:
    merges = [merge.replace("Ġ", "▁") for merge in merges]
    letters = dict.fromkeys("ab▁", NORMAL)
    weights = merging(characters([], {**letters, **made_by(merges)}), merges)
    wanted = package(weights, merges, unk_token="<unk>", byte_fallback=True)
    for tokenizer in both(weights):
        assert tokenizer.encode(text) == wanted.encode(text.replace(" ", "▁")).ids


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "gpt-2", "gemma-4"])
def test_real_vocabularies_have_the_ids_of_the_whole_model(name: str) -> None:
    little, whole = both(vocabulary(name))
    draw = random.Random(name)
    for _ in range(40):
        tokens = [draw.randrange(len(whole)) for _ in range(draw.randrange(1, 12))]
        text = b"".join(map(whole.piece, tokens)).decode("utf-8", "replace")
        assert little.encode(text) == whole.encode(text), text


def test_a_control_token_is_made_by_merges_only() -> None:
    for merges, made in ((["a b"], False), (["a b", "ab a"], True)):
        for pre in ("gpt-2", "llama3"):
            weights = byte_level(["a b"], {"aba": CONTROL}, pre=pre)
            for tokenizer in both(merging(weights, merges)):
                assert (tokenizer.encode("aba") == [tokenizer.token_id("aba")]) == made


def test_the_whole_model_is_made_when_texts_are_no_longer_few() -> None:
    tokenizer = Tokenizer.from_weights(byte_level(["a b"]))
    made = tokenizer._model._merged  # type: ignore[union-attr]
    first = tokenizer.encode("ab a")
    while made._left >= 4:
        assert made._whole is None
        assert tokenizer.encode("ab a") == first
    assert tokenizer.encode("ab a") == first
    assert made._whole is not None


@pytest.mark.parametrize(
    ("merges", "said"),
    [
        (["a b", "a zz"], "merge 1 is 'a zz', and there is no token 'zz'"),
        (["a b", "zz a"], "merge 1 is 'zz a', and there is no token 'zz'"),
        (["a b", "ab b"], "merge 1 is 'ab b', and there is no token 'abb'"),
        (["a b", "c b"], "merge 1 is 'c b', and there is no token 'cb'"),
        (["a b", "x ab"], "merge 1 is 'x ab', and there is no token 'xab'"),
        (["ab"], "merge 0 is 'ab'; expected two tokens and a space"),
        (["ab "], "merge 0 is 'ab '; expected two tokens and a space"),
        ([" ab"], "merge 0 is ' ab'; expected two tokens and a space"),
        ([""], "merge 0 is ''; expected two tokens and a space"),
    ],
)
def test_merges_that_do_not_fit_are_refused_when_the_file_is_opened(
    merges: list[str], said: str
) -> None:
    for made in (byte_level, characters):
        weights = made(["a b"], dict.fromkeys("cx", USER) if made is characters else {})
        with pytest.raises(BadWeights) as refused:
            Tokenizer.from_weights(merging(weights, merges))
        assert said in str(refused.value)


def test_a_merge_of_a_token_that_no_text_is_made_into_is_refused() -> None:
    weights = byte_level(["a b"], {"<e>": CONTROL, "a<e>": USER})
    with pytest.raises(BadWeights, match="there is no token '<e>'"):
        Tokenizer.from_weights(merging(weights, ["a b", "a <e>"]))


def test_a_merge_may_begin_with_a_space() -> None:
    weights = byte_level(["a b"], {" a": USER, " ": USER})
    for tokenizer in both(merging(weights, ["  a", "a b"])):
        assert tokenizer.encode("ab") == [tokenizer.token_id("ab")]


def test_strings_are_found_by_number_and_by_text() -> None:
    words = ["", "a", "日本", "a" * 700, "b", "a" * 8, "a" * 9]
    held = StringArray.of(words, "words").held()
    assert [held[i] for i in range(len(held))] == words
    assert [held.find(word) for word in words] == list(range(len(words)))
    assert [held.find(word) for word in ("c", "aa", "a" * 7, "本", "\ud800")] == [None] * 5
    assert held.repeated == -1
    assert bytes(held.data) == "".join(words).encode()
    for outside in (-1, len(words)):
        with pytest.raises(IndexError):
            held[outside]
    again = StringArray.of(["a", "b", "", "a", "b"], "words").held()
    assert (again.repeated, again.find("a"), again.find("b")) == (3, 3, 4)
    assert StringArray.of([], "words").held().find("a") is None
    many = [str(i) for i in range(5000)]
    assert list(map(StringArray.of(many, "numbers").held().find, many)) == list(range(5000))


def test_strings_that_are_utf_8_only_together_are_refused() -> None:
    data = bytes(8) + b"\xc3" + bytes(8) + b"\xa9" + bytes(8)
    array = StringArray(np.frombuffer(data, np.uint8), np.array([8, 17, 26]), "words")
    with pytest.raises(BadWeights, match="string 0 of words is not UTF-8"):
        array.held()
    with pytest.raises(BadWeights, match="UTF-8 cannot hold"):
        StringArray.of(["a", "\ud800"], "words")


@pytest.mark.parametrize("written", [byte_level, characters])
def test_once_prepared_nothing_is_merged_by_a_part(
    written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = written(["a l", "l i"])
    little, prepared = Tokenizer.from_weights(weights), Tokenizer.from_weights(weights)
    expected = little.encode("ali")
    prepared.prepare()
    monkeypatch.setattr(merged.Merged, "_encode_little", None)
    assert prepared.encode("ali") == expected
    with pytest.raises(TypeError):
        little.encode("ali")
