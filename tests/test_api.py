"""`golem_core.load`: the model as a Python program has it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import golem_core
from golem_core import (
    BadRequest,
    CallBegun,
    CallDone,
    ContextFull,
    GolemError,
    NotFound,
    Thought,
    Unsupported,
)

GREEDY = {"temperature": 0.0, "max_tokens": 16}


@pytest.fixture(scope="module")
def model(tiny_file):
    path, _ = tiny_file("llama-tied")
    with golem_core.load(path, threads=1) as model:
        yield model


def test_generate_streams_what_complete_gives(model):
    pieces = list(model.generate("hello there", **GREEDY))
    done = model.complete("hello there", **GREEDY)
    assert "".join(pieces) == done.text
    assert done.finish_reason in ("stop", "length")
    assert done.prompt_ids == model.tokenize("hello there")
    assert done.timings["prompt_tokens"] == len(done.prompt_ids)
    assert len(done.ids) == done.timings["generated_tokens"] or done.finish_reason == "stop"


def test_ids_are_taken_as_they_are(model):
    ids = model.tokenize("hello there")
    assert model.complete(ids, **GREEDY).ids == model.complete("hello there", **GREEDY).ids


def test_chat_renders_the_template(model):
    messages = [{"role": "user", "content": "hello"}]
    done = model.complete(messages, **GREEDY)
    assert done.prompt_ids == model.chat_ids(messages) == model.chat_ids("hello")
    assert model.chat("hello", **GREEDY).complete().ids == done.ids


def test_tokenize_and_back(model):
    text = "hello there, how are you? größer 日本"
    ids = model.tokenize(text)
    assert model.detokenize(ids).endswith(text)


def test_an_answer_may_be_left(model):
    with model.generate("hello", temperature=2.0, seed=1) as answer:
        next(answer)
    done = answer.complete()
    assert done.finish_reason in ("cancelled", "stop")
    assert done.text


def test_threads_share_a_model(model):
    alone = [model.complete(f"hello {i}", **GREEDY).ids for i in range(6)]
    together: dict[int, list[int]] = {}

    def ask(i: int) -> None:
        together[i] = model.complete(f"hello {i}", **GREEDY).ids

    workers = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [together[i] for i in range(6)] == alone


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather for a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module", params=["gemma4", "qwen3", "qwen35"])
def trained(request):
    """A small model that has learnt to think and to call, in its family's own format."""
    folder = os.environ.get("GOLEM_TEST_MODELS")
    if not folder:
        pytest.skip("GOLEM_TEST_MODELS names no folder")
    path = Path(folder) / request.param / f"{request.param}-q8_0.gguf"
    if not path.exists():
        pytest.skip(f"{path.name} is not in {path.parent}")
    with golem_core.load(path, threads=1, context=1024) as model:
        yield model


def test_thoughts_and_calls_are_apart_from_the_text(trained):
    asked = [{"role": "user", "content": "What is the weather in Paris?"}]
    ways = {"temperature": 0.0, "max_tokens": 90, "tools": [WEATHER]}
    answer = trained.chat(asked, thinking=True, **ways)
    events = list(answer.events())
    done = answer.complete()
    assert (done.text, done.finish_reason) == ("", "stop")
    assert done.thoughts == "I should call get_weather."
    (call,) = done.calls
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    assert "".join(event.text for event in events if isinstance(event, Thought)) == done.thoughts
    assert events[-2:] == [CallBegun(0, call.id, call.name), CallDone(0, call.arguments)]

    quick = trained.chat(asked, thinking=False, **ways).complete()
    assert (quick.text, quick.thoughts) == ("", "")
    assert [(call.name, call.arguments) for call in quick.calls] == [(call.name, call.arguments)]

    # The call goes back as it came, and what the model says of its result is text.
    told = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "12 C, sunny"}
    talk = [*asked, done.message, told]
    pieces = list(trained.chat(talk, thinking=False, **ways))
    after = trained.chat(talk, thinking=False, **ways).complete()
    assert "".join(pieces) == after.text != ""
    assert (after.calls, after.unfinished) == ((), "")
    assert not any(marker in after.text for marker in trained.format.markers)


def test_an_answer_that_is_cut_off(trained):
    ways = {"temperature": 0.0, "tools": [WEATHER], "thinking": False}
    whole = trained.chat("What is the weather in Paris?", **ways).complete()
    assert len(whole.calls) == 1
    for most in range(1, len(whole.ids)):
        done = trained.chat("What is the weather in Paris?", max_tokens=most, **ways).complete()
        assert done.finish_reason == "length"
        assert done.ids == whole.ids[:most]
        assert not done.thoughts
        assert done.text == ""
        if done.calls:  # only the marker that ends it can be absent from a call
            assert done.calls[0].arguments == {"city": "Paris"}
        else:
            assert done.unfinished.startswith(trained.format.call[0])


def test_a_stop_string_ends_the_text_and_no_thought(trained):
    ways = {"temperature": 0.0, "max_tokens": 90}
    whole = trained.chat("What is 12 + 7?", thinking=False, **ways).complete()
    assert whole.text == "12 + 7 = 19."
    done = trained.chat("What is 12 + 7?", thinking=False, stop=" = ", **ways).complete()
    assert (done.text, done.finish_reason) == ("12 + 7", "stop")
    assert done.ids == whole.ids[: len(done.ids)]
    ways["tools"] = [WEATHER]
    done = trained.chat("What is the weather in Paris?", thinking=True, stop="call", **ways)
    assert done.complete().thoughts == "I should call get_weather."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"nothing": 1}, "no field 'nothing'"),
    ],
)
def test_what_is_refused(model, options, message):
    with pytest.raises(BadRequest) as caught:
        model.generate("hello", **options)
    assert message in str(caught.value)


def test_text_that_is_none(model):
    with pytest.raises(BadRequest):
        model.generate("half of a pair \ud83d")


def test_a_prompt_that_is_too_long(model):
    with pytest.raises(ContextFull) as caught:
        model.generate("hello " * (model.context + 1))
    assert caught.value.context == model.context
    assert caught.value.prompt_tokens >= model.context


def test_trace(model):
    found = model.trace("hello", names=["token_embd", "logits"])
    ids = model.tokenize("hello")
    assert list(found) == ["token_embd", "logits"]
    assert found["token_embd"].shape[0] == len(ids)
    assert found["logits"].shape == (1, model.model.vocab)
    with pytest.raises(BadRequest, match="no waypoint nothing"):
        model.trace("hello", names=["nothing"])


def test_what_cannot_be_loaded(tmp_path, tiny_file):
    with pytest.raises(NotFound):
        golem_core.load(tmp_path / "absent.gguf")
    path, _ = tiny_file("llama-tied")
    with pytest.raises(BadRequest, match="threads is 0"):
        golem_core.load(path, threads=0)
    with pytest.raises(GolemError):
        golem_core.load(path, device="abacus")


def test_a_closed_model_says_so(tiny_file):
    path, _ = tiny_file("qwen2-tied")
    model = golem_core.load(path, threads=1)
    model.close()
    model.close()
    with pytest.raises(GolemError, match="closed"):
        model.generate([1, 2, 3])


def test_a_model_without_a_template(tmp_path, tiny_file, monkeypatch):
    path, _ = tiny_file("llama-tied")
    with golem_core.load(path, threads=1) as model:
        monkeypatch.setattr(model, "template", None)
        with pytest.raises(Unsupported, match="has no chat template"):
            model.chat("hello")
        assert model.complete("hello", **GREEDY).ids


def test_what_is_exported():
    for name in golem_core.__all__:
        assert getattr(golem_core, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = golem_core.nothing
