"""Drafting with prediction blocks: the same ids on and off, and how often the guess is right."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from golem_core.api import open_generator
from golem_core.engine import Request, Stats, start_engine
from golem_core.engine.depth import Depths
from golem_core.engine.draft import Block
from golem_core.engine.reach import Reach
from golem_core.model import Generator
from golem_core.sampling import Sampling
from golem_core.weights import Weights, open_weights

SEEDS = (None, *range(10))  # None: greedy
PROMPTS = 20

# What the trained model's card asks, in its words.
CHATS = (
    "What is a lemon?",
    "Tell me a story about a cat.",
    "Count from 3 to 15.",
    "What is 12 + 7?",
    "Use the word river in a sentence.",
    "Give me a JSON object with the name Tom and the age 7.",
    "Repeat after me: blue dog apple",
    "Tell me about a piano.",
    "Write a Python function that adds two numbers.",
    "Hello!",
    "List the days of the week.",
)
FREE = (
    "And God said unto Moses,",
    "The king of the forest",
    "In the beginning",
    "A river is",
    "def add(a, b):",
    "The word cat means",
    "Once upon a time",
    "Hacker: n.",
    "import os\n",
)


def drawn(
    model: Generator,
    weights: Weights,
    prompts: Sequence[Sequence[int]],
    draft: str,
    seed: int | None,
    most: int,
) -> tuple[list[tuple[int, ...]], Stats]:
    """The ids that continue each prompt, drawn several at a time."""
    sampling = Sampling(temperature=0.0 if seed is None else 0.8, seed=seed)
    with start_engine(model, weights, context=512, max_sequences=5, draft=draft) as engine:
        asked = [engine.submit(Request(ids, sampling, most)) for ids in prompts]
        return [stream.result().ids for stream in asked], engine.stats()


def report(name: str, seed: int | None, stats: Stats) -> None:
    how = "greedy" if seed is None else f"seed {seed}"
    print(
        f"{name}, {how}: {stats.accepted_tokens} of {stats.drafted_tokens} drafts accepted, "
        f"{stats.acceptance or 0:.3f}"
    )


@pytest.mark.parametrize("name", ["qwen35-mtp", "qwen35moe"])
def test_a_tiny_model_says_the_same_with_its_prediction_block(name: str, tiny_file) -> None:
    path, _ = tiny_file(name, "F32")
    with open_weights(path) as weights:
        model = open_generator(weights)
        prompts = [
            [(17 * i * (salt + 3) + salt) % (model.vocab - 10) for i in range(3 * salt + 1)]
            for salt in range(PROMPTS)
        ]
        for seed in SEEDS:
            plain, _ = drawn(model, weights, prompts, "off", seed, 24)
            for way in ("mtp", "ngram"):
                drafted, stats = drawn(model, weights, prompts, way, seed, 24)
                assert drafted == plain, f"{way}, seed {seed}"
                report(f"{name} {way}", seed, stats)
                assert way == "ngram" or stats.drafted_tokens > PROMPTS


@pytest.fixture(scope="module")
def trained() -> Path:
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if not folder:
        pytest.skip("GOLEM_TEST_MODELS names no folder of trained models")
    return Path(folder) / "qwen35" / "qwen35-q8_0.gguf"


@pytest.mark.parametrize(
    ("most", "whole", "right"), [(1, True, 0.93), (3, True, 0.72), (3, False, 0.6)]
)
def test_a_trained_model_says_the_same_and_is_guessed_well(
    trained: Path, most: int, whole: bool, right: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Block, "MOST", most)
    monkeypatch.setattr(Depths, "FIRST", 1)
    if whole:
        monkeypatch.setattr(Reach, "EVERY", 2**31)  # tokens, before less is considered
    with open_weights(trained) as weights:
        model = open_generator(weights)
        tokenizer, template = model.tokenizer(weights), model.template(weights)
        assert template is not None
        chats = [
            tokenizer.encode_marked(template.render([{"role": "user", "content": chat}]), bos=True)
            for chat in CHATS
        ]
        free = [tokenizer.encode(text, bos=True) for text in FREE]
        assert len(chats) + len(free) == PROMPTS
        for seed in SEEDS:
            for name, prompts in (("chats", chats), ("free text", free)):
                plain, _ = drawn(model, weights, prompts, "off", seed, 80)
                drafted, stats = drawn(model, weights, prompts, "mtp", seed, 80)
                assert drafted == plain, f"{name}, seed {seed}"
                report(name, seed, stats)
                if seed is None and name == "chats":
                    # llama.cpp accepts 0.941 of the same chats with the same file, 0.738 of three.
                    assert stats.acceptance is not None
                    assert stats.acceptance >= right
