"""The commands that only look or fetch: their output, their JSON, their exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from golem_core.cli import app
from golem_core.cli.app import run
from golem_core.settings import SETTINGS


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings, no plugins and no cache but the test's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GOLEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOLEM_PLUGINS", "")
    monkeypatch.setenv("GOLEM_CONFIG", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for name in ("GOLEM_ISA", "GOLEM_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_context_length(64)
    writer.add_chat_template("{{ messages }}")
    writer.add_tensor("a.weight", np.zeros((4, 32), np.float32))
    writer.add_tensor("b.weight", np.zeros(8, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_show(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(model), "--json", "--all"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["architecture"] == "llama"
    assert found["name"] == "Tiny"
    assert found["parameters"] == 4 * 32 + 8
    assert found["bytes"] == 4 * 32 * 4 + 8 * 2
    assert found["geometry"] == {"context_length": 64}
    assert found["formats"] == {
        "F32": {"tensors": 1, "bytes": 512},
        "F16": {"tensors": 1, "bytes": 16},
    }
    assert found["template"] == "{{ messages }}"
    assert found["tensors"][0] == {
        "name": "a.weight",
        "format": "F32",
        "shape": [4, 32],
        "bytes": 512,
    }
    assert found["metadata"]["llama.context_length"] == 64
    # Nothing here runs it: it is described all the same, with the reason.
    assert found["runs"] is False
    assert found["reason"].startswith("no installed plugin runs 'llama'")

    assert run(["show", str(model)]) == 0
    out = capsys.readouterr().out
    assert re.search("^chat template +yes$", out, re.MULTILINE)
    assert "F32           1  512 B" in out


def test_pull_ls_rm(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ls"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("no model was pulled yet")
    assert run(["pull", str(model)]) == 0
    assert capsys.readouterr().out == f"tiny  {model.stat().st_size} B  {model}\n"
    assert run(["ls", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["present"], listed["reference"]) == ("tiny", True, str(model))
    assert run(["show", "tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(model)
    assert run(["ls"]) == 0
    assert capsys.readouterr().out.split()[:4] == ["NAME", "SIZE", "ARCHITECTURE", "FROM"]
    assert run(["rm", "tiny"]) == 0
    assert capsys.readouterr().out == "tiny is forgotten\n"
    assert model.exists()
    assert run(["rm", "tiny"]) == 3


@pytest.mark.parametrize("command", ["run", "show", "trace", "bench"])
def test_a_file_that_is_absent_or_bad(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!doctype html><html>")
    more = ["-p", "x"] if command in ("run", "trace") else []
    for path in (tmp_path / "absent.gguf", page):
        assert run([command, str(path), *more]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("golem: ")
        assert err.count("\n") == 1
        assert path.name in err


def test_an_architecture_that_nothing_runs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(model), "-p", "x"]) == 1
    assert "no installed plugin runs 'llama'" in capsys.readouterr().err


def test_plugins(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert run(["plugins"]) == 0
    assert capsys.readouterr().err.startswith("no plugin is installed")


def test_env(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GOLEM_TOP_K", "7")
    assert run(["env", "--json", "--threads", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["settings"]) == set(SETTINGS)
    assert found["settings"]["top_k"] == {"value": 7, "origin": "environment (GOLEM_TOP_K)"}
    assert found["settings"]["threads"]["origin"] == "command line (--threads)"
    assert found["threads"] == {"count": 1, "reason": "asked for"}
    assert run(["env"]) == 0
    assert "physical core" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert "_GOLEM_COMPLETE" in capsys.readouterr().out


def test_completion_knows_the_models(model: Path) -> None:
    assert run(["pull", str(model)]) == 0
    environ = {
        **os.environ,
        "_GOLEM_COMPLETE": "bash_complete",
        "COMP_WORDS": "golem show ti",
        "COMP_CWORD": "2",
    }
    command = [sys.executable, "-c", "from golem_core.cli import main; main()"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "plain,tiny\n"


def test_help_imports_no_command_and_no_numpy() -> None:
    program = (
        "import sys; from golem_core.cli.app import run; run(['--help']); "
        "print(*(m for m in sys.modules if m == 'numpy' or m.startswith('golem_core.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded == {"golem_core.cli", "golem_core.cli.app", "golem_core.errors"}


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, line in app.COMMANDS.items():
        assert run([name, "--help"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"Usage: golem {name} ")
        assert line in out


def test_version_and_unknown_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("golem 0.")
    assert run(["nothing"]) == 2
    assert "No such command 'nothing'" in capsys.readouterr().err


class Entry:
    """An installed command, as `importlib.metadata` gives it."""

    def __init__(self, name: str, value: object) -> None:
        self.name, self.value, self.module, self.dist = name, value, "golem_other", None

    def load(self) -> object:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def test_commands_of_other_distributions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import click

    @click.command()
    def serve() -> None:
        click.echo("serving")

    entries = [Entry("serve", serve), Entry("broken", ImportError("no module x"))]
    monkeypatch.setattr(app.metadata, "entry_points", lambda group: entries)
    assert run(["serve"]) == 0
    assert capsys.readouterr().out == "serving\n"
    assert run(["--help"]) == 0
    assert "serve       (from golem_other)" in capsys.readouterr().out
    assert run(["broken", "--port", "1"]) == 1
    assert "golem broken (from golem_other) cannot be loaded: ImportError: no module x" in (
        capsys.readouterr().err
    )
    assert run(["plugins"]) == 0  # a broken one harms nothing else
    entries.append(Entry("serve", serve))
    assert run(["serve"]) == 1
    assert "golem serve comes from golem_other and golem_other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "environ", "coloured"),
    [
        (["--color", "always"], {}, True),
        ([], {"GOLEM_COLOR": "always"}, True),
        ([], {}, False),
        (["--color", "never"], {"GOLEM_COLOR": "always"}, False),
    ],
)
def test_colour(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    environ: dict[str, str],
    coloured: bool,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert run([*arguments, "show", str(model)]) == 0
    assert ("\x1b[" in capsys.readouterr().out) == coloured


def test_who_reads_may_leave(model: Path) -> None:
    command = f"{sys.executable} -c 'from golem_core.cli import main; main()' show {model} --all"
    done = subprocess.run(
        ["sh", "-c", f"{command} | true"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
