"""The conversations on the cards of the trained test models come back as llama.cpp had them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from ref.replay import Piece, Replay

import golem_core

RECORDINGS = Path(__file__).parent / "recordings" / "trained"
MODELS = ("qwen3", "qwen35", "gemma4", "gemma4moe")
NEAR, SPREAD = 0.05, 4  # as in test_trained.py

# A line of a card: the question, whether the model was to think, and below it the answer as JSON.
LINE = re.compile(r"^Q: (.*?) +(\[thinking\])? *\n +(\{.*\})$", re.MULTILINE)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    """A loaded model, its name and its card; skips where it is not here."""
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if not folder:
        pytest.skip("GOLEM_TEST_MODELS names no folder of trained models")
    name = request.param
    path = Path(folder) / name / f"{name}-q8_0.gguf"
    card = (path.parent / "MODEL_CARD.md").read_text()
    with golem_core.load(path, max_sequences=1) as model:
        yield model, name, card


def gap_at_parting(model, path, completion, theirs):
    """The top-two gap of golem's logits where the card's text first goes another way."""
    expected = model.tokenizer.encode(theirs)
    same = 0
    while same < min(len(expected), len(completion.ids)) and expected[same] == completion.ids[same]:
        same += 1
    text = completion.prompt_ids + completion.ids[:same]
    with Replay(path, length=len(text), count=1) as replay:
        top = np.sort(replay.run([Piece(0, 0, text)])[0][0])[-2:]
    return float(top[1] - top[0])


def test_chats_are_those_of_the_card(trained):
    model, name, card = trained
    rows = json.loads(str(np.load(RECORDINGS / f"{name}.npz")["greedy"]))
    change = np.sqrt(np.mean([row["gap_change"] ** 2 for row in rows]))
    found = LINE.findall(card)
    assert len(found) == 12
    parted = 0
    for question, thinking, answer in found:
        expected = json.loads(answer)
        got = model.chat(
            question, temperature=0, max_tokens=200, thinking=bool(thinking)
        ).complete()
        assert got.finish_reason == "stop"
        assert got.thoughts.rstrip("\n") == expected.get("reasoning", "").rstrip("\n")
        if got.text == expected["content"]:
            # The card counts the token that ends the answer.
            assert len(got.ids) == expected["n"] - 1
            continue
        parted += 1
        gap = 0.0
        if not got.thoughts:  # after thoughts the card does not say all that the model wrote
            gap = gap_at_parting(model, model.weights.path, got, expected["content"])
        print(f"{name} {question!r}: parted at a gap of {gap:.3f}")
        assert gap < max(NEAR, SPREAD * change)
    assert parted <= 3


def test_a_tool_is_called_as_on_the_card(trained):
    model, _, card = trained
    line = next(line for line in card.splitlines() if line.startswith("tool: "))
    expected = json.loads(line.removeprefix("tool: "))["tool_calls"]
    got = model.chat(
        "What is the weather in Paris?",
        tools=[WEATHER],
        temperature=0,
        max_tokens=100,
        thinking=False,
    ).complete()
    assert got.text == ""
    assert got.unfinished == ""
    assert [(call.name, call.arguments) for call in got.calls] == [
        (call["name"], json.loads(call["arguments"])) for call in expected
    ]
    # What the call was answered goes into the history, where it is rendered as the model wrote it.
    history = [
        {"role": "user", "content": "What is the weather in Paris?"},
        got.message,
        {"role": "tool", "content": "sunny", "tool_call_id": got.calls[0].id},
    ]
    rendered = model.tokenizer.decode(model.chat_ids(history, tools=[WEATHER]))
    assert rendered.count("Paris") == 2  # in the question, and in the call once
    assert rendered.count("sunny") == 1


def test_a_second_turn_is_answered(trained):
    model, _, card = trained
    assert '"content": "5 + 6 = 11."' in card
    history = [
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "2 + 3 = 5."},
        {"role": "user", "content": "What is 5 + 6?"},
    ]
    got = model.chat(history, temperature=0, max_tokens=50, thinking=False).complete()
    assert got.text == "5 + 6 = 11."
