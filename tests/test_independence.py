"""The logits of a sequence do not depend, to the bit, on its company or on how it is read.

Alone, beside seven others, in pieces of 1, 7, 32 and 512 tokens, from shared pages, on other
pages, with other threads: tiny models of three families in the formats whose kernels differ, those
of the other families in a few, and real weights where they are. One test asks the engine, through
a prefix hit, for its probabilities.
"""

from __future__ import annotations

import numpy as np
import pytest
from ref import tiny
from ref.prompts import PROMPTS
from ref.replay import Piece, Replay, open_model

from golem_core.engine import Request, start_engine
from golem_core.sampling import Sampling

LENGTH = 80  # more than two pages, more than a window, no multiple of anything
PIECES = (1, 7, 32, 512)
FORMS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
SMALL = [(name, form) for name in tiny.WIDE for form in FORMS] + [
    ("llama-odd", "F32"),
    ("gemma3-scaled", "F32"),
    ("qwen2-untied", "F32"),
    *((name, form) for name in tiny.ALONE for form in tiny.FEW),
]


def company(ids, count):
    """`count` other texts of different lengths, made of the same tokens."""
    return [list(np.roll(ids, 3 + 5 * i)[: len(ids) - 9 * i]) for i in range(count)]


@pytest.fixture(scope="module", params=SMALL, ids=["-".join(case) for case in SMALL])
def case(request, tiny_file):
    """The file, its ids, and the logits of every position as one pass of one thread gives them."""
    name, form = request.param
    path, _ = tiny_file(name, form)
    ids = tiny.prompt(tiny.TINY[name], LENGTH)
    with Replay(path, length=LENGTH, threads=1) as replay:
        expected = replay.read(ids)
    assert np.isfinite(expected).all()
    return path, ids, expected


@pytest.mark.parametrize("piece", PIECES)
def test_pieces(case, piece):
    path, ids, expected = case
    with Replay(path, length=LENGTH, threads=2) as replay:
        np.testing.assert_array_equal(replay.read(ids, piece=piece), expected)


def test_a_narrower_program(case):
    path, ids, expected = case
    with Replay(path, length=LENGTH, width=16, threads=2) as replay:
        np.testing.assert_array_equal(replay.read(ids, piece=16), expected)


def test_beside_seven_others(case):
    path, ids, expected = case
    others = company(ids, 7)
    with Replay(path, length=LENGTH, sequences=8, threads=2) as replay:
        # All in one pass as far as 512 columns go, then this one's end beside their next tokens.
        first = [Piece(0, 0, ids[:40])]
        first += [Piece(1 + i, 0, other[:-1]) for i, other in enumerate(others)]
        parts = [replay.run(first)[0]]
        for start in (40, 41, 79):
            end = {40: 41, 41: 79, 79: 80}[start]
            beside = [Piece(1 + i, len(o) - 1, o[-1:]) for i, o in enumerate(others)]
            pieces = [*beside[:3], Piece(0, start, ids[start:end]), *beside[3:]]
            parts.append(replay.run(pieces)[3])
    np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_from_pages_that_another_sequence_read(case):
    path, ids, expected = case
    with Replay(path, length=LENGTH, sequences=2, threads=2) as replay:
        replay.read(ids[:64], sequence=0)
        replay.tables[1, :2], replay.slots[1] = replay.tables[0, :2], replay.slots[0]
        again = replay.run([Piece(1, 64, ids[64:])])[0]
    np.testing.assert_array_equal(again, expected[64:])


def test_on_other_pages(case):
    path, ids, expected = case
    with Replay(path, length=LENGTH, sequences=4, threads=2) as replay:
        replay.tables[0] = replay.tables.reshape(-1)[[10, 3, 7]]
        np.testing.assert_array_equal(replay.read(ids), expected)


@pytest.mark.parametrize("name", [*tiny.WIDE, *tiny.ALONE])
def test_the_engine_after_a_prefix_hit(name, tiny_file):
    path, _ = tiny_file(name, "Q8_0")
    ids = tiny.prompt(tiny.TINY[name], LENGTH)
    asked = Request(ids, Sampling(temperature=0.0), max_tokens=8, logprobs=20, ignore_eos=True)
    weights, model = open_model(path)
    with weights, start_engine(model, weights, context=256, max_sequences=8) as engine:
        alone = [(token.id, token.logprobs) for token in engine.submit(asked)]
        hit = [(token.id, token.logprobs) for token in engine.submit(asked)]
        cached = engine.stats().cached_tokens
        others = [
            engine.submit(Request(other, Sampling(temperature=0.0), max_tokens=16))
            for other in company(ids, 7)
        ]
        beside = [(token.id, token.logprobs) for token in engine.submit(asked)]
        for other in others:
            other.cancel()
    assert cached >= 64
    assert repr(hit) == repr(alone)
    assert repr(beside) == repr(alone)


@pytest.mark.weights
@pytest.mark.parametrize("file", PROMPTS)
def test_real_weights(file, real_file):
    path = real_file(file)
    weights, model = open_model(path)
    with weights:
        ids = model.tokenizer(weights).encode(PROMPTS[file][2].text)[:48]
    with Replay(path, length=64, threads=1, count=1) as replay:
        expected = replay.read(ids)
    others = company(ids, 7)
    with Replay(path, length=64, sequences=8, threads=2, count=1) as replay:
        for piece in PIECES:
            np.testing.assert_array_equal(replay.read(ids, piece=piece)[-1:], expected)
        pieces = [Piece(1 + i, 0, o[:5]) for i, o in enumerate(others)]
        replay.read(ids[:-1])
        last = replay.run([*pieces, Piece(0, len(ids) - 1, ids[-1:])])[-1]
        np.testing.assert_array_equal(last, expected)
