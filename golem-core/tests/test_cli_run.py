"""`golem run`: what is asked of the model, what is printed where, how it ends."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Sequence

import pytest

from golem_core import api
from golem_core.cli.app import run
from golem_core.cli.run import rates
from golem_core.errors import NoMemory, NotFound, PassFailed
from golem_core.text import CallBegun, CallBroken, CallDone, Thought

from .scripted import ScriptedModel, loader


class Stdin(io.TextIOWrapper):
    """Standard input with some bytes in it, or a terminal."""

    def __init__(self, data: bytes = b"", *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", Stdin(terminal=True))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ScriptedModel]:
    def make(*answers: Sequence[str | BaseException], template: bool = True) -> ScriptedModel:
        model = ScriptedModel(*answers, template=template)
        monkeypatch.setattr(api, "load", loader(model))
        return model

    return make


def test_one_answer(scripted, capsys) -> None:
    model = scripted(["Hel", "lo", "!"])
    assert run(["run", "m.gguf", "-p", "hi"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("Hello!\n", "")
    assert model.asked == [("chat", [{"role": "user", "content": "hi"}], {"stop": []})]
    assert model.loaded == (
        "m.gguf",
        {
            "device": "cpu",
            "threads": None,
            "context": None,
            "max_sequences": 1,
            "draft": "auto",
        },
    )
    assert model.closed


def test_options_and_settings_reach_the_model(scripted, monkeypatch) -> None:
    model = scripted(["x"])
    monkeypatch.setenv("GOLEM_TOP_K", "5")
    arguments = (
        "run m -p hi --temperature 0 -n 9 --seed -3 -d reference -t 1 -c 2K --draft ngram "
        "--stop a --stop b"
    )
    assert run([*arguments.split(), "--system", "be brief"]) == 0
    (_, messages, options) = model.asked[0]
    assert messages[0] == {"role": "system", "content": "be brief"}
    assert options == {
        "temperature": 0,
        "max_tokens": 9,
        "seed": -3,
        "top_k": 5,
        "stop": ["a", "b"],
    }
    assert model.loaded[1] == {
        "device": "reference",
        "threads": 1,
        "context": 2048,
        "max_sequences": 1,
        "draft": "ngram",
    }


def test_raw_takes_no_template(scripted, capsys) -> None:
    model = scripted(["x\n"])
    assert run(["run", "m", "-p", "Once", "--raw"]) == 0
    assert model.asked == [("generate", "Once", {"stop": []})]
    assert capsys.readouterr() == ("x\n", "")


def test_a_model_without_a_template_is_told_of(scripted, capsys) -> None:
    model = scripted([" upon"], template=False)
    assert run(["run", "m", "-p", "Once"]) == 0
    assert model.asked[0][:2] == ("generate", "Once")
    out, err = capsys.readouterr()
    assert out == " upon\n"
    assert err.startswith("this model has no chat template")


def test_json(scripted, capsys) -> None:
    scripted(["a", "b"])
    assert run(["run", "m", "-p", "hi", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == "ab"
    assert found["ids"] == [97, 98]
    assert found["prompt_ids"] == [1, 2, 3]
    assert found["finish_reason"] == "stop"
    assert found["timings"]["prompt_tokens"] == 3


def test_stats(scripted, capsys) -> None:
    scripted(["ab"])
    assert run(["run", "m", "-p", "hi", "--stats"]) == 0
    assert capsys.readouterr().err == "read 3 tokens in 0.50 s (6/s), wrote 2 in 2.00 s (0.5/s)\n"


def test_stats_of_drafting() -> None:
    done = ScriptedModel(["ab"]).generate("hi").complete()
    done.timings.update({"drafted_tokens": 40, "accepted_tokens": 37})
    assert rates(done).endswith("wrote 2 in 2.00 s (0.5/s), 40 guessed before, 92% of them right")


@pytest.mark.parametrize(
    ("piped", "arguments", "prompt"),
    [
        (b"some text\n", ["-p", "Sum up."], "some text\n\nSum up."),
        (b"", ["-p", "hi"], "hi"),
        (b"from a pipe\n", [], "from a pipe\n"),
        (b"dash", ["-p", "-"], "dash"),
    ],
)
def test_what_is_piped_comes_first(scripted, monkeypatch, piped, arguments, prompt) -> None:
    model = scripted(["x"])
    monkeypatch.setattr(sys, "stdin", Stdin(piped))
    assert run(["run", "m", *arguments]) == 0
    assert model.asked[0][1] == [{"role": "user", "content": prompt}]


@pytest.mark.parametrize(
    ("piped", "arguments", "message"),
    [
        (b"", [], "no prompt: give -p TEXT, or pipe one"),
        (b"a\xff", ["-p", "x"], "standard input is not UTF-8 text (byte 1)"),
        (b"", ["-p", "x", "--raw", "--system", "s"], "--raw uses no template"),
        (b"", ["-p", "x", "--threads", "0"], "--threads is '0'; expected"),
        (b"", ["-p", "x", "--draft", "well"], "--draft is 'well'; expected one of auto, off, mtp"),
        (b"", ["-p", "x", "--top-p", "1.5"], "--top-p is '1.5'; expected a number from 0 to 1"),
        (b"", ["-p", "x", "--nothing"], "No such option"),
    ],
)
def test_wrong_usage(scripted, monkeypatch, capsys, piped, arguments, message) -> None:
    scripted(["x"])
    monkeypatch.setattr(sys, "stdin", Stdin(piped))
    assert run(["run", "m", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NotFound("no file m"), 3, "golem: no file m\n"),
        (NoMemory("2 GB are needed, 1 GB is there"), 4, "golem: 2 GB are needed, 1 GB is there\n"),
        (MemoryError(), 4, "golem: out of memory\n"),
        (KeyboardInterrupt(), 130, "\n"),  # ends the line that ^C stands in
        (OSError(5, "Input/output error"), 1, "golem: [Errno 5] Input/output error\n"),
    ],
)
def test_how_loading_fails(monkeypatch, capsys, error, code, said) -> None:
    def load(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(api, "load", load)
    assert run(["run", "m", "-p", "hi"]) == code
    assert capsys.readouterr() == ("", said)


def test_ctrl_c_stops_the_answer(scripted, capsys) -> None:
    model = scripted(["half", KeyboardInterrupt()])
    assert run(["run", "m", "-p", "hi"]) == 130
    assert capsys.readouterr().out == "half\n"
    assert model.closed


def test_a_pass_that_fails(scripted, capsys) -> None:
    scripted(["some", PassFailed("logits are NaN (pass 3)", "logits", "nan_logits")])
    assert run(["run", "m", "-p", "hi"]) == 1
    assert capsys.readouterr().err == "golem: logits are NaN (pass 3)\n"


def test_too_many_threads_are_told_of(scripted, capsys) -> None:
    scripted(["x"])
    assert run(["run", "m", "-p", "hi", "-t", "9999"]) == 0
    assert "threads is 9999, but this process may run on" in capsys.readouterr().err


def test_no_control_characters_on_a_terminal(scripted, monkeypatch) -> None:
    scripted(["a\x1b]0;title\x07b\n"])
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    assert run(["run", "m", "-p", "hi"]) == 0
    assert screen.getvalue() == "a\ufffd]0;title\ufffdb\n"


THINKS = [
    Thought("It is\n"),
    Thought("simple."),
    "Look.",
    CallBegun(0, "1", "weather"),
    CallDone(0, {"city": "Oslo\n", "days": [1, None]}),
    CallBegun(1, "2", "note"),
    CallBroken(1, '<tool_call>{"name": "no'),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_thoughts_and_calls(scripted, capsys) -> None:
    model = scripted(THINKS)
    assert run(["run", "m", "-p", "hi", "--thoughts", "show"]) == 0
    out, err = capsys.readouterr()
    assert out == 'Look.\nweather(city="Oslo\\n", days=[1, null])\n'
    assert err == (
        'It is\nsimple.\n\n(a call of a tool was cut off: \'<tool_call>{"name": "no\')\n'
    )
    assert "thinking" not in model.asked[0][2]


@pytest.mark.parametrize(
    ("how", "said"), [("fold", "(thought for 0.0 s)\n"), ("hide", ""), (None, "")]
)
def test_thoughts_are_folded_or_hidden(scripted, capsys, how, said) -> None:
    scripted([*THINKS[:2], "Yes.\n"])
    assert run(["run", "m", "-p", "hi", *(["--thoughts", how] if how else [])]) == 0
    assert capsys.readouterr() == ("Yes.\n", said)


@pytest.mark.parametrize(
    ("color", "said"),
    [
        ("auto", "\x1b[2mIt is\n\x1b[0m\x1b[2msimple.\x1b[0m\n\n"),
        ("never", "It is\nsimple.\n\n"),
    ],
)
def test_a_terminal_shows_thoughts_dimmed(scripted, monkeypatch, color, said) -> None:
    scripted([*THINKS[:2], "Yes.\n"])
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert run(["--color", color, "run", "m", "-p", "hi"]) == 0
    assert screen.getvalue() == said


def test_an_answer_that_fails_while_it_thinks(scripted, monkeypatch) -> None:
    scripted([Thought("hm"), PassFailed("logits are NaN (pass 3)", "logits", "nan_logits")])
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert run(["--color", "never", "run", "m", "-p", "hi", "--thoughts", "fold"]) == 1
    assert screen.getvalue().endswith("(thought for 0.0 s)\ngolem: logits are NaN (pass 3)\n")
    assert not [one for one in threading.enumerate() if one.name.startswith("golem-waiting")]


def test_thinking_is_asked_for(scripted, capsys) -> None:
    model = scripted(["x"], ["y"])
    assert run(["run", "m", "-p", "hi", "--think"]) == 0
    assert model.asked[0][2] == {"stop": [], "thinking": True}
    assert run(["run", "m", "-p", "hi", "--no-think"]) == 0
    assert model.asked[1][2] == {"stop": [], "thinking": False}
    assert run(["run", "m", "-p", "hi", "--think", "--raw"]) == 2
    assert "--raw uses no template" in capsys.readouterr().err


def test_json_has_thoughts_and_calls(scripted, capsys) -> None:
    scripted(THINKS)
    assert run(["run", "m", "-p", "hi", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["text"], found["thoughts"]) == ("Look.", "It is\nsimple.")
    call = {"id": "1", "name": "weather", "arguments": {"city": "Oslo\n", "days": [1, None]}}
    assert found["calls"] == [call]
    assert found["unfinished"] == THINKS[-1].text
