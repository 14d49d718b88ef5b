"""Documents say what is so: commands exist, links lead somewhere, tables are the code's."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from golem_core.cli.app import COMMANDS, golem
from golem_core.settings import SETTINGS
from golem_server.settings import SERVE

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "golem-*/*.md", "ref/*.md", "bench/*.md")
    for path in ROOT.glob(pattern)
)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def shell_lines(text: str) -> Iterator[str]:
    """The command lines in a document's sh blocks, continuation lines joined."""
    for block in re.findall(r"^```(?:sh|bash|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.removeprefix("$ ")


def golem_commands(text: str) -> Iterator[list[str]]:
    """The words after `golem` wherever a document runs it."""
    for line in shell_lines(text):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        for i, word in enumerate(words):
            if word in ("golem", ".venv/bin/golem") and (i == 0 or words[i - 1] in ("&&", "|")):
                rest = words[i + 1 :]
                ends = [rest.index(stop) for stop in ("|", ">", "&&") if stop in rest]
                yield rest[: min(ends, default=len(rest))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_in_documents_exist(path: Path) -> None:
    for words in golem_commands(path.read_text(encoding="utf-8")):
        if not words or words[0].startswith("-"):
            continue
        command = golem.get_command(click.Context(golem), words[0])
        assert command is not None, f"golem {' '.join(words)}"
        # Raises for an option or an argument that the command does not have.
        command.make_context(words[0], list(words[1:]))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), f"{name(path)} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_programs_in_documents_exist(path: Path) -> None:
    for line in shell_lines(path.read_text(encoding="utf-8")):
        for program in re.findall(r"(?<![\w/.])((?:bin|tools|bench|tests)/[\w.-]+)", line):
            assert (ROOT / program).exists(), f"{name(path)}: {program}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_variables_in_documents_exist(path: Path) -> None:
    known = {setting.variable for setting in (*SETTINGS.values(), *SERVE.values())}
    for variable in set(re.findall(r"\bGOLEM_[A-Z_]+\b", path.read_text(encoding="utf-8"))):
        if variable not in known:
            found = subprocess.run(
                ["git", "grep", "-l", "-w", variable, "--", "*.py", "*.pyx", "bin", ".ci"],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert found.stdout, f"{name(path)} names {variable}, which nothing reads"


def test_written_documents_are_the_code_s() -> None:
    done = subprocess.run(
        [sys.executable, "tools/write_docs.py", "--check"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_list_of_commands_is_their_own_help() -> None:
    for command_name, line in COMMANDS.items():
        command = golem.get_command(click.Context(golem), command_name)
        assert command is not None
        assert command.name in (command_name, "command")
        assert command.get_short_help_str(200) == line, command_name


def test_every_distribution_has_a_readme_and_the_version() -> None:
    versions = set()
    for path in sorted(ROOT.glob("golem-*/pyproject.toml")):
        assert (path.parent / "README.md").read_text(encoding="utf-8").startswith("# ")
        versions.update(re.findall(r'^version = "(.*)"', path.read_text(), re.MULTILINE))
    assert len(versions) == 1, versions


def test_nothing_is_installed_by_a_bare_name() -> None:
    """On the index these names are, or may become, somebody else's packages."""
    sources = [path for folder in ROOT.glob("golem-*/src") for path in folder.rglob("*.py")]
    for path in [*DOCUMENTS, *sources]:
        for line in path.read_text(encoding="utf-8").splitlines():
            if "pip install" in line:
                assert not re.search(r"[\s'\"]golem-\w", line.partition("pip install")[2]), (
                    f"{name(path)}: {line.strip()}"
                )


def test_the_readme_begins_with_two_commands() -> None:
    screen = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    lines = [line for line in shell_lines("\n".join(screen)) if line.strip()]
    assert len(lines) == 2
    assert lines[0].startswith("bin/setup && .venv/bin/golem run ")
    assert lines[1] == "bin/test"
    assert "exec bin/test\n" in (ROOT / ".ci/run").read_text()
