"""The command line over the whole house: tiny models on every device, real ones where they are."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from golem_core.cli.app import run

GOLEM = [sys.executable, "-c", "from golem_core.cli import main; main()"]
SMOLLM = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA = "gemma-3-270m-q4_k_m.gguf"
RECORDINGS = Path(__file__).parent / "recordings" / "waypoints"


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "GOLEM_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setattr(sys, "stdin", io.StringIO())


def golem(*arguments, stdin=None):
    return subprocess.run(
        [*GOLEM, *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False
    )


def answer(capsys, *arguments):
    assert run(["run", *map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["llama-tied", "gemma3-window", "qwen2-untied"])
def test_run(name, device, tiny_file, capsys):
    path, _ = tiny_file(name)
    common = [path, "-p", "hello there", "--raw", "-d", device, "-n", "12"]
    greedy = answer(capsys, *common, "--temperature", "0")
    assert greedy["finish_reason"] in ("stop", "length")
    assert len(greedy["ids"]) <= 12
    assert greedy["timings"]["prompt_tokens"] == len(greedy["prompt_ids"])
    assert answer(capsys, *common, "--temperature", "0")["ids"] == greedy["ids"]
    drawn = [answer(capsys, *common, "--temperature", "2", "--seed", s) for s in (1, 1, 2)]
    assert drawn[0]["ids"] == drawn[1]["ids"] != drawn[2]["ids"]


def test_the_same_text_whether_streamed_or_not(tiny_file, capsys):
    path, _ = tiny_file("llama-tied")
    common = ["-p", "hello", "-n", "20", "--seed", "3", "-t", "1"]
    whole = answer(capsys, path, *common)["text"]
    assert run(["run", str(path), *common]) == 0
    assert capsys.readouterr().out.removesuffix("\n") == whole.removesuffix("\n")


def test_a_prompt_that_does_not_fit(tiny_file, capsys):
    path, _ = tiny_file("llama-tied")
    assert run(["run", str(path), "-p", "a b " * 40, "-c", "32"]) == 1
    assert re.search(r"the prompt has \d+ tokens and the context 32", capsys.readouterr().err)


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_trace(device, tiny_file, capsys, tmp_path):
    path, _ = tiny_file("llama-tied")
    recording = RECORDINGS / "llama-tied.npz"
    common = ["trace", str(path), "-d", device, "--kv", "f32", "--json"]
    assert run([*common, "--against", str(recording)]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in found["waypoints"]]
    assert names[0] == "token_embd"
    assert names[-1] == "logits"
    assert max(row["difference"] for row in found["waypoints"]) < 1e-4

    saved = tmp_path / "saved.npz"
    only = ["-p", "hello", "--only", "blk.1.*", "--only", "logits"]
    assert run([*common, *only, "--save", str(saved)]) == 0
    rows = json.loads(capsys.readouterr().out)["waypoints"]
    assert {row["name"].split(".")[0] for row in rows} == {"blk", "logits"}
    assert run([*common, "--against", str(saved)]) == 0
    again = json.loads(capsys.readouterr().out)["waypoints"]
    assert [row["difference"] for row in again] == [0.0] * len(rows)


def test_trace_refuses(tiny_file, capsys, tmp_path):
    path, _ = tiny_file("llama-tied")
    assert run(["trace", str(path)]) == 2
    assert "give either -p TEXT or --against FILE" in capsys.readouterr().err
    assert run(["trace", str(path), "-p", "x", "--only", "nothing.*"]) == 2
    assert "no waypoint of the model is wanted" in capsys.readouterr().err
    (tmp_path / "x.npz").write_bytes(b"nothing")
    assert run(["trace", str(path), "--against", str(tmp_path / "x.npz")]) == 2
    assert "is not a recording" in capsys.readouterr().err


def test_show(tiny_file, capsys):
    path, _ = tiny_file("gemma3-window")
    assert run(["show", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] is True
    assert found["class"] == "golem_gemma.model.Gemma3"
    longest = found["memory"][-1]
    assert longest["context"] == found["context"]
    parts = ("weights", "pages", "states", "passes", "process")
    assert longest["total"] == sum(longest[part] for part in parts)


def test_plugins(capsys):
    assert run(["plugins", "--json"]) == 0
    found = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    for name in ("llama", "gemma3", "qwen2"):
        assert found[name]["error"] is None
        assert set(found[name]) == {"name", "distribution", "version", "target", "error"}


def test_bench_of_an_encoder(capsys):
    folder = Path(__file__).parents[1] / "golem-embed" / "tests" / "checkpoints" / "bert-cls"
    options = ["--read", "16", "--repeat", "1", "--json"]
    assert run(["bench", str(folder), "-t", "1", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["tokens"], found["precision"], found["threads"]) == (16, "f32", 1)
    assert found["tokens_per_second"] > 0
    assert run(["bench", str(folder), "-t", "1", "--read", "300", "--repeat", "1"]) == 0
    assert "(f32, 1 x 96)" in capsys.readouterr().out


def test_bench(tiny_file, capsys):
    path, _ = tiny_file("llama-tied")
    options = ["--read", "16", "--generate", "4", "--repeat", "1", "--json"]
    assert run(["bench", str(path), "-t", "1", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["read_per_second"] > 0
    assert found["generate_per_second"] > 0
    assert 0 < found["read_share"] < 1
    assert found["limit_bytes_per_second"] > 1e8


# On a terminal


class Screen:
    """A command on a pseudo terminal; `until` reads what it prints."""

    def __init__(self, *arguments: object) -> None:
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            # A test run in the background may ignore it; who sits at a terminal does not.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.update(TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1")
            os.execv(GOLEM[0], [*GOLEM, *map(str, arguments)])
        self.seen = ""  # what was printed, without escapes, and not looked for yet

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def until(self, pattern: str, seconds: float = 60) -> None:
        """Reads on until `pattern` stands in what was printed after the last one found."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.end], [], [], max(0, end - time.monotonic()))
            assert ready, f"waited for {pattern!r} and saw {self.seen!r}"
            try:
                piece = os.read(self.end, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                raise AssertionError(f"ended before {pattern!r}: {self.seen!r}") from None
            self.seen += re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", piece)
        self.seen = self.seen[found.end() :]

    def code(self) -> int:
        while True:
            try:
                if not os.read(self.end, 4096):
                    break
            except OSError:
                break
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.end)
        return code


def test_a_conversation_on_a_terminal(tiny_file, tmp_path):
    path, _ = tiny_file("llama-tied")
    screen = Screen("run", path, "-n", "8", "--seed", "1")
    screen.until(r"/help lists what can be said")
    screen.until(r">>>")
    screen.type("/set temperature 0\r")
    screen.until(r"temperature 0\.0")
    screen.type("hello\r")
    screen.until(r">>>")
    screen.type("/stats\r")
    screen.until(r"read \d+ tokens in .*; (stop|length)")
    screen.type(f"/save {tmp_path / 'talk.json'}\r")
    screen.until(r"saved to")
    screen.type("/bye\r")
    assert screen.code() == 0
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [turn["role"] for turn in saved["messages"]] == ["user", "assistant"]
    assert saved["options"]["temperature"] == 0


def test_ctrl_c_on_a_terminal(tiny_file):
    path, _ = tiny_file("llama-tied")
    screen = Screen("run", path, "--temperature", "5")
    screen.until(r">>>")
    screen.type("\x03")
    screen.until(r"once more leaves")
    screen.until(r">>>")
    screen.type("\x03")
    assert screen.code() == 130


# On real weights


@pytest.mark.weights
def test_a_real_answer(real_file):
    done = golem("run", real_file(SMOLLM), "-p", "Why is the sky blue?", "-n", "48",
                 "--temperature", "0", stdin="")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "scatter" in done.stdout


@pytest.mark.weights
def test_a_base_model_continues(real_file):
    done = golem("run", real_file(GEMMA), "-p", "Paris is the capital of", "-n", "4",
                 "--temperature", "0", stdin="")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "France" in done.stdout
    assert done.stderr.startswith("this model has no chat template")


@pytest.mark.weights
def test_a_long_answer_is_stopped_by_ctrl_c(real_file):
    # Continued as it stands, and always the likeliest: it goes on until the context is full.
    text = "one two one two one two one two one two one two"
    screen = Screen("run", real_file(SMOLLM), "-p", text, "--raw", "--temperature", "0")
    screen.until(r"(two ){6}")
    screen.type("\x03")
    start = time.monotonic()
    assert screen.code() == 130
    assert time.monotonic() - start < 5
