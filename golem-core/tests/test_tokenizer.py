"""Tokens are the model's own: worked out by hand, hostile texts, and every text comes back."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golem_core.errors import BadRequest, BadWeights, Unsupported
from golem_core.text import Tokenizer, merged
from golem_core.text.specials import Special, Specials

from .vocabularies import (
    BYTE,
    CONTROL,
    USER,
    InMemory,
    byte_level,
    characters,
    scored,
    tokenizer_of,
)

# A SentencePiece vocabulary small enough to work out by hand.
WORDS = {"a": -1.0, "b": -2.0, "▁": -3.0, "ab": -4.0, "▁a": -5.0, "ba": -6.0, "<": -7.0, "s": -7.5,
         ">": -8.0, "s>": -9.0, "<s": -9.5}  # fmt: skip
EXTRA = {"<|end|>": CONTROL, "\n": USER, "\n\n": USER, "<tool>": USER, "<start_of_image>": USER}


def ids_of(tokenizer: Tokenizer, *texts: str) -> list[int]:
    found = [tokenizer.token_id(text) for text in texts]
    assert None not in found, texts
    return [i for i in found if i is not None]


@pytest.fixture
def spm() -> Tokenizer:
    return Tokenizer.from_weights(scored(WORDS, EXTRA))


@pytest.fixture
def bpe() -> Tokenizer:
    merges = ["a b", "Ġ a", "< |", "| >", "Ġa b"]
    return Tokenizer.from_weights(
        byte_level(merges, {"<|im_end|>": CONTROL, "<tool>": USER}, bos_token_id=3)
    )


@pytest.mark.parametrize(
    "made",
    [
        scored(WORDS, EXTRA),
        byte_level(["a b", "Ġ ab"]),
        characters(["a b", "▁ ab"]),
    ],
    ids=["scored", "byte level", "characters"],
)
def test_another_thread_runs_while_a_long_text_is_read(made: InMemory) -> None:
    tokenizer = tokenizer_of(made)
    reading = threading.Thread(target=tokenizer.encode, args=("ab " * 300_000,))
    longest = 0.0
    reading.start()
    begun = time.perf_counter()
    while reading.is_alive():
        start = time.perf_counter()
        time.sleep(0.001)
        longest = max(longest, time.perf_counter() - start)
    taken = time.perf_counter() - begun
    assert taken > 0.1, "the text is too short to tell"
    assert longest < taken / 2


@pytest.mark.parametrize("made", [byte_level(["a b", "Ġ ab"]), characters(["a b", "▁ ab"])])
def test_long_texts_are_merged_as_short_ones(made: InMemory) -> None:
    tokenizer = tokenizer_of(made)
    short = tokenizer.encode("é ab" * 100)
    assert tokenizer.encode("é ab" * 1000) == short * 10
    assert len("é ab" * 100) < merged.SHORT < len("é ab" * 1000)


def test_the_best_score_is_merged_first(spm: Tokenizer) -> None:
    assert spm.encode("aba") == ids_of(spm, "ab", "a")
    assert spm.encode("ba") == ids_of(spm, "ba")
    assert spm.encode("a a") == ids_of(spm, "a", "▁a")
    assert spm.encode("") == []


def test_characters_outside_the_vocabulary_are_bytes(spm: Tokenizer) -> None:
    assert spm.encode("é") == ids_of(spm, "<0xC3>", "<0xA9>")
    assert spm.piece(spm.encode("é")[0]) == b"\xc3"
    assert spm.decode(spm.encode("aéb")) == "aéb"


def test_bytes_that_are_no_character_are_one_mark_each(spm: Tokenizer) -> None:
    first, second = ids_of(spm, "<0xEA>", "<0xB9>")
    assert spm.decode([first, second]) == "\ufffd\ufffd"
    assert spm.decode([first, second, *ids_of(spm, "a")]) == "\ufffd\ufffda"


def test_a_byte_typed_as_text_is_text(spm: Tokenizer) -> None:
    ids = spm.encode("<0xEA>")
    assert not set(ids) & set(ids_of(spm, "<0xEA>"))
    assert spm.decode(ids) == "<0xEA>"


@pytest.mark.parametrize("text", ["<s>", "</s>", "<|end|>", "<unk>", "<start_of_image>"])
def test_control_tokens_come_of_trusted_text_only(spm: Tokenizer, text: str) -> None:
    token = ids_of(spm, text)
    assert spm.encode(f"a{text}b", special=True) == [*ids_of(spm, "a"), *token, *ids_of(spm, "b")]
    plain = spm.encode(f"a{text}b")
    assert token[0] not in plain
    assert spm.decode(plain) == f"a{text}b"
    assert spm.encode_marked([("a", True), (text, False), ("b", True)]) == plain
    half = len(text) // 2
    split = [(text[:half], True), (text[half:], False)]
    assert token[0] not in spm.encode_marked(split)
    assert spm.encode_marked([(text[:half], True), (text[half:], True)]) == token


def test_user_defined_tokens_are_found_in_any_text(spm: Tokenizer) -> None:
    assert spm.encode("a<tool>\n\n\nb") == ids_of(spm, "a", "<tool>", "\n\n", "\n", "b")


def test_marks_do_not_cut_words(bpe: Tokenizer) -> None:
    assert bpe.encode_marked([("a", True), ("b", False), (" a", True), ("b", False)]) == (
        bpe.encode("ab ab")
    )


def test_byte_level_merges_never_make_a_control_token(bpe: Tokenizer) -> None:
    end = ids_of(bpe, "<|im_end|>")
    assert bpe.encode("a<|im_end|>", special=True) == [*ids_of(bpe, "a"), *end]
    plain = bpe.encode("a<|im_end|>")
    assert end[0] not in plain
    assert bpe.decode(plain) == "a<|im_end|>"
    assert bpe.end_ids == set(end)


def test_characters_are_merged_by_rank_across_words_and_lines() -> None:
    tokenizer = tokenizer_of(CHARACTER_WEIGHTS)
    assert tokenizer.encode("ab a") == ids_of(tokenizer, "ab", "▁a")
    # The file's first merge wins, wherever it stands.
    assert tokenizer.encode(" ab") == ids_of(tokenizer, "▁", "ab")
    assert tokenizer.encode(" a b") == ids_of(tokenizer, "▁a▁", "b")
    assert tokenizer.encode("b\n\n\n") == ids_of(tokenizer, "b", "\n\n", "\n")
    assert tokenizer.encode("b\n") == ids_of(tokenizer, "b\n")
    # A pair that no merge names stays apart, although its text is a token.
    assert tokenizer.encode("ca") == ids_of(tokenizer, "<0x63>", "a")
    assert tokenizer.encode("é") == ids_of(tokenizer, "<0xC3>", "<0xA9>")
    assert tokenizer.token_id("<0x61>") not in tokenizer.encode("<0x61>")
    # <bos> begins a text even where the file says otherwise.
    again = Tokenizer.from_weights(characters(["a b"], add_bos_token=False))
    assert again.encode("ab", bos=True) == [1, *ids_of(again, "ab")]


def test_a_text_begins_once() -> None:
    tokenizer = Tokenizer.from_weights(scored(WORDS, EXTRA))
    begin = tokenizer.bos
    assert (begin, tokenizer.eos, tokenizer.add_bos, tokenizer.add_eos) == (1, 2, True, False)
    assert tokenizer.encode("a", bos=True) == [begin, *ids_of(tokenizer, "a")]
    assert tokenizer.encode("<s>a", special=True, bos=True) == [begin, *ids_of(tokenizer, "a")]
    assert tokenizer.encode_marked([("<s>", True), ("a", False)], bos=True) == (
        tokenizer.encode("a", bos=True)
    )
    assert tokenizer.encode_marked([("<s>", False)], bos=True)[:2] == (
        [begin, tokenizer.encode("<s>")[0]]
    )
    assert tokenizer.encode("a", eos=True) == ids_of(tokenizer, "a")


def test_what_the_file_says_of_beginnings_and_ends_counts() -> None:
    tokenizer = Tokenizer.from_weights(
        scored(WORDS, add_bos_token=False, add_eos_token=True, eos_token_id=2)
    )
    assert tokenizer.encode("a", bos=True, eos=True) == [*ids_of(tokenizer, "a"), 2]


def test_a_space_put_before_the_text_is_taken_away_again() -> None:
    tokenizer = Tokenizer.from_weights(scored(WORDS, EXTRA, add_space_prefix=True))
    assert tokenizer.encode("a") == ids_of(tokenizer, "▁a")
    for text in ("a", " a", "", "a b", "<s>a", "<s> a<|end|>b"):
        assert tokenizer.decode(tokenizer.encode(text, special=True)) == text


def test_control_tokens_can_be_left_out(spm: Tokenizer) -> None:
    ids = spm.encode("a<|end|>b", special=True)
    assert spm.decode(ids) == "a<|end|>b"
    assert spm.decode(ids, special=False) == "ab"
    assert [spm.is_control(i) for i in ids] == [False, True, False]
    with pytest.raises(BadRequest, match="ids 0 to"):
        spm.piece(len(spm))


def test_half_of_a_surrogate_pair_is_refused(spm: Tokenizer) -> None:
    with pytest.raises(BadRequest, match=r"character 1 .*D800"):
        spm.encode("a\ud800")


def test_the_longest_token_is_taken_first_wherever_it_is() -> None:
    specials = Specials([Special("ab", 1, False), Special("bcd", 2, False), Special("x", 3, True)])
    assert specials.split("abcd", []) == ["a", 2]
    assert specials.split("ababcd", []) == [1, "a", 2]
    assert specials.split("xabx", [(0, 1)]) == [3, 1, "x"]
    strips = Specials([Special("|", 7, True)], frozenset({7}))
    assert strips.split("a| \n b|", [(0, 7)]) == ["a", 7, "b", 7]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
alike = st.text(st.sampled_from(list("ab <>|s/\n_imend")), max_size=60)


@settings(deadline=None, max_examples=300)
@given(texts | alike)
def test_every_text_comes_back(text: str) -> None:
    for weights in (SPM_WEIGHTS, BPE_WEIGHTS, CHARACTER_WEIGHTS):
        tokenizer = tokenizer_of(weights)
        ids = tokenizer.encode(text)
        assert not any(tokenizer.is_control(i) for i in ids)
        # The mark that stands for a space cannot be told from one.
        assert tokenizer.decode(ids) == text.replace("▁", "▁" if weights is BPE_WEIGHTS else " ")
        assert tokenizer.decode(tokenizer.encode(text, special=True)) == tokenizer.decode(ids)


SPM_WEIGHTS = scored(WORDS, EXTRA)
BPE_WEIGHTS = byte_level(["a b", "Ġ a", "< |", "| >"], {"<|im_end|>": CONTROL})
CHARACTER_WEIGHTS = characters(
    ["a b", "▁ a", "▁a ▁", "\n \n", "b \n"], {"<|im_end|>": CONTROL, "<|channel>": USER, "ca": 1}
)


@settings(deadline=None, max_examples=300)
@given(alike)
def test_merging_is_what_its_definition_says(text: str) -> None:
    """The definition: merge the best-scored neighbours, the leftmost first, until none are left."""
    tokenizer = tokenizer_of(SPM_WEIGHTS)
    for part in text.replace("\n", "").split("<tool>"):
        symbols = list(part.replace(" ", "▁"))
        while True:
            pairs = [
                (-WORDS[a + b], i)
                for i, (a, b) in enumerate(itertools.pairwise(symbols))
                if a + b in WORDS
            ]
            if not pairs:
                break
            _, at = min(pairs)
            symbols[at : at + 2] = ["".join(symbols[at : at + 2])]
        expected = [
            i
            for symbol in symbols
            for i in (
                ids_of(tokenizer, symbol)
                if symbol in WORDS
                else ids_of(tokenizer, *(f"<0x{byte:02X}>" for byte in symbol.encode()))
            )
        ]
        assert tokenizer.encode(part) == expected


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"model": None}, Unsupported, "no tokenizer"),
        ({"model": "rwkv"}, Unsupported, "'rwkv'"),
        ({"tokens": None}, BadWeights, "tokenizer.ggml.tokens"),
        ({"tokens": []}, BadWeights, "empty"),
        ({"tokens": 3}, BadWeights, "array of strings"),
        ({"tokens": ["a", "a"]}, BadWeights, "twice"),
        ({"scores": None}, BadWeights, "tokenizer.ggml.scores"),
        ({"scores": np.zeros(3, np.float32)}, BadWeights, "tokenizer.ggml.scores"),
        ({"token_type": np.zeros(3, np.int32)}, BadWeights, "token_type"),
        ({"bos_token_id": 10**6}, BadWeights, "bos_token_id"),
        ({"bos_token_id": "one"}, BadWeights, "bos_token_id"),
        ({"add_bos_token": 7}, BadWeights, "add_bos_token"),
    ],
)
def test_damaged_vocabularies_are_refused(
    change: dict[str, object], error: type[Exception], words: str
) -> None:
    metadata = dict(scored(WORDS).metadata)
    for key, value in change.items():
        metadata[f"tokenizer.ggml.{key}"] = value
        if value is None:
            del metadata[f"tokenizer.ggml.{key}"]
    with pytest.raises(error, match=words):
        Tokenizer.from_weights(InMemory(metadata))


def test_damaged_merges_and_unknown_names_are_refused() -> None:
    for made in (byte_level, characters):
        with pytest.raises(BadWeights, match="merge 0 is 'ab'"):
            Tokenizer.from_weights(made(["ab"]))
    weights = byte_level(["a b"])
    broken = {**weights.metadata, "tokenizer.ggml.merges": ["a zzz"]}
    with pytest.raises(BadWeights, match="merges do not fit"):
        Tokenizer.from_weights(InMemory(broken))
    with pytest.raises(Unsupported, match="'tekken'"):
        Tokenizer.from_weights(byte_level(["a b"], pre="tekken"))


def test_empty_and_long_tokens_load() -> None:
    tokenizer = Tokenizer.from_weights(scored({**WORDS, "": -20.0, "x" * 3000: -21.0}))
    assert tokenizer.encode("a") == ids_of(tokenizer, "a")
    assert tokenizer.decode(tokenizer.encode("x")) == "x"


def test_bytes_that_are_no_bytes_are_refused() -> None:
    with pytest.raises(BadWeights, match="no SentencePiece model"):
        Tokenizer.from_weights(scored(WORDS, {"<0xZZ>": BYTE}))
