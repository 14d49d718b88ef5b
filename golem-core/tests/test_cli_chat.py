"""A conversation: its commands, and how lines, answers and Ctrl-C follow each other."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from golem_core.cli import repl
from golem_core.cli.chat import Conversation, Leave
from golem_core.errors import BadRequest, ContextFull, GolemError, NotFound
from golem_core.text import Thought

from .scripted import ScriptedModel


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def talk(said: list[str]) -> Conversation:
    return Conversation(model="m", print=said.append)


# Commands


def test_turns_carry_the_system_text_and_the_history(talk: Conversation) -> None:
    talk.command("/system be brief")
    talk.keep("a", "b")
    assert [turn["content"] for turn in talk.turns("c")] == ["be brief", "a", "b", "c"]
    talk.command("/reset")
    assert [turn["content"] for turn in talk.turns("c")] == ["be brief", "c"]
    talk.keep("a", "b")
    talk.command("/system")
    assert [turn["content"] for turn in talk.turns("c")] == ["c"]


def test_set(talk: Conversation, said: list[str]) -> None:
    talk.command("/set temperature 0.5")
    talk.command("/set top-k 3")
    assert talk.options == {"temperature": 0.5, "top_k": 3}
    talk.command("/set")
    assert "temperature 0.5" in said
    assert "seed a new one each time" in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/nothing", "there is no /nothing; /help lists what there is"),
        ("/bye now", "/bye takes nothing after it"),
        ("/set device vulkan", "device cannot be set here; there are max_tokens, temperature"),
        ("/set temperature", "/set temperature needs a value"),
        ("/set top_p 2", "top_p is '2'; expected a number from 0 to 1"),
        ("/think hard", "/think takes on or off, not 'hard'"),
        ("/thoughts aloud", "/thoughts takes show, fold, hide, not 'aloud'"),
        ("/save", "/save needs the name of a file"),
    ],
)
def test_what_a_command_refuses(talk: Conversation, line: str, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        talk.command(line)
    assert str(caught.value).startswith(message)


def test_save_and_load(talk: Conversation, said: list[str], tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    talk.command("/system s")
    talk.keep("größer?", "ja")
    talk.command("/set seed 4")
    talk.command(f"/save {file}")
    talk.command(f"/save {file}")  # what golem wrote may be written over
    other = Conversation(model="other", print=said.append)
    other.command(f"/load {file}")
    assert (other.system, other.messages, other.options) == ("s", talk.messages, {"seed": 4})
    assert said[-2:] == [f"loaded 2 turns from {file}", "it was held with m"]


def test_files_that_are_no_conversation(talk: Conversation, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(BadRequest, match="exists and is not a conversation"):
        talk.command(f"/save {file}")
    with pytest.raises(BadRequest, match="is not a conversation that golem saved"):
        talk.command(f"/load {file}")
    file.write_text(json.dumps({"kind": "golem conversation 1", "messages": [{"role": 1}]}))
    with pytest.raises(BadRequest, match="is not a conversation that golem saved"):
        talk.command(f"/load {file}")
    with pytest.raises(NotFound, match="no file"):
        talk.command(f"/load {tmp_path / 'absent'}")
    assert file.exists()


def test_bye_and_help(talk: Conversation, said: list[str]) -> None:
    talk.command("/help")
    assert any(line.startswith("/system [TEXT]") for line in said)
    with pytest.raises(Leave):
        talk.command("/bye")


# The loop


class Lines:
    """A line editor that gives what a test typed; an exception in its place is raised."""

    def __init__(self, *lines: str | BaseException) -> None:
        self._lines = iter(lines)
        self.prompts: list[str] = []

    def prompt(self, prompt: str) -> str:
        self.prompts.append(prompt)
        line = next(self._lines)
        if isinstance(line, BaseException):
            raise line
        return line


def converse(
    monkeypatch: pytest.MonkeyPatch, model: ScriptedModel, *lines: str | BaseException, raw=False
) -> int:
    editor = Lines(*lines)
    monkeypatch.setattr(repl, "_session", lambda: editor)
    talk = Conversation(model="m", print=click.echo, options={"max_tokens": 9})
    return repl.converse(model, talk, [], raw)


def test_a_conversation_remembers(monkeypatch, capsys) -> None:
    model = ScriptedModel(["An", "na"], ["Yes."])
    assert converse(monkeypatch, model, "Who?", "", "/set seed 1", "Sure?", EOFError()) == 0
    assert [kind for kind, _, _ in model.asked] == ["chat", "chat"]
    assert model.asked[1][1] == [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "Anna"},
        {"role": "user", "content": "Sure?"},
    ]
    assert model.asked[0][2] == {"max_tokens": 9, "stop": []}
    assert model.asked[1][2] == {"max_tokens": 9, "seed": 1, "stop": []}
    assert capsys.readouterr().out == "Anna\nseed 1\nYes.\n"


def test_several_lines_between_fences(monkeypatch) -> None:
    model = ScriptedModel(["x"])
    lines = ['"""one', "  two", 'three"""', "/bye"]
    assert converse(monkeypatch, model, *lines) == 0
    assert model.asked[0][1][-1]["content"] == "one\n  two\nthree"


def test_ctrl_c_stops_the_answer_and_once_more_leaves(monkeypatch, capsys) -> None:
    model = ScriptedModel(["half", KeyboardInterrupt()])
    assert converse(monkeypatch, model, "long", KeyboardInterrupt("")) == 130
    out, err = capsys.readouterr()
    assert out == "half\n"
    assert "(stopped)" in err


def test_a_stopped_answer_stays_in_the_conversation(monkeypatch) -> None:
    model = ScriptedModel(["half", KeyboardInterrupt()], ["on"])
    assert converse(monkeypatch, model, "long", "go on", "/bye") == 0
    assert [turn["content"] for turn in model.asked[1][1]] == ["long", "half", "go on"]


def test_ctrl_c_at_the_prompt(monkeypatch, capsys) -> None:
    pressed = KeyboardInterrupt
    lines = [pressed("half a line"), pressed(""), pressed("")]
    assert converse(monkeypatch, ScriptedModel(), *lines) == 130
    assert capsys.readouterr().err.count("once more leaves") == 1
    lines = [pressed(""), "/help", pressed(""), pressed("")]  # help in between: not twice
    assert converse(monkeypatch, ScriptedModel(), *lines) == 130
    assert capsys.readouterr().err.count("once more leaves") == 2


def test_an_error_does_not_end_the_conversation(monkeypatch, capsys) -> None:
    class Full(ScriptedModel):
        def chat(self, messages, **options):
            if len(messages) == 1:
                raise ContextFull("the prompt has 9 tokens and the context 8", 9, 8)
            return super().chat(messages, **options)

    model = Full(["x"])
    lines = ["too long", "/set top_p 7", "/system s", "short", "/bye"]
    assert converse(monkeypatch, model, *lines) == 0
    err = capsys.readouterr().err
    assert "golem: the prompt has 9 tokens" in err
    assert "golem: top_p is '7'" in err
    # What could not be asked is no part of the conversation.
    assert [turn["content"] for turn in model.asked[0][1]] == ["s", "short"]


def test_a_failed_answer_is_forgotten(monkeypatch) -> None:
    model = ScriptedModel(["x", GolemError("lost")], ["y"])
    assert converse(monkeypatch, model, "a", "b", "/bye") == 0
    assert [turn["content"] for turn in model.asked[1][1]] == ["b"]


def test_without_a_template_each_text_stands_alone(monkeypatch, capsys) -> None:
    model = ScriptedModel(["x"], ["y"], template=False)
    assert converse(monkeypatch, model, "a", "b", "/bye") == 0
    assert [(kind, prompt) for kind, prompt, _ in model.asked] == [
        ("generate", "a"),
        ("generate", "b"),
    ]
    assert "each text is continued as it stands" in capsys.readouterr().err


def test_stats_of_the_last_answer(monkeypatch, capsys) -> None:
    lines = ["/stats", "a", "/stats", "/bye"]
    assert converse(monkeypatch, ScriptedModel(["x"]), *lines) == 0
    out = capsys.readouterr().out
    assert out.startswith("nothing was answered yet\nx\nread 3 tokens")
    assert out.endswith("; stop\n")


def test_thoughts(monkeypatch, capsys) -> None:
    model = ScriptedModel(*[[Thought("hm"), "Yes."]] * 3)
    lines = ["/thoughts show", "/think on", "a", "/think off", "/thoughts hide", "b", "/think", "c"]
    assert converse(monkeypatch, model, *lines, "/thoughts", "/bye") == 0
    assert [asked.get("thinking") for _, _, asked in model.asked] == [True, False, None]
    out, err = capsys.readouterr()
    assert out.count("Yes.\n") == 3
    assert err.count("hm\n\n") == 1
    # A thought is no part of what is remembered.
    assert model.asked[1][1][1] == {"role": "assistant", "content": "Yes."}
