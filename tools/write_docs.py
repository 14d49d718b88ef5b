"""Writes the documents that the code itself dictates: docs/commands.md and docs/settings.md.

python tools/write_docs.py          writes them
python tools/write_docs.py --check  fails where they are not what the code says
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from golem_core.cli.app import COMMANDS, golem
from golem_core.settings import SETTINGS, Setting
from golem_server.settings import FLAGS, SERVE

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = "<!-- Written by tools/write_docs.py; change the code and run it again. -->\n"


def commands() -> str:
    """Every command with its arguments and options."""
    lines = ["# Commands", "", WRITTEN, _paragraphs(golem.help or ""), ""]
    lines += ["Before the command:", "", *_options(golem), ""]
    lines += ["## Exit codes", "", "| code | means |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    context = click.Context(golem)
    for name in (*COMMANDS, *BROUGHT):
        command = golem.get_command(context, name)
        if command is None:
            raise ValueError(f"golem has no {name}")
        arguments = [
            p.metavar or (p.name or "").upper()
            for p in command.params
            if isinstance(p, click.Argument)
        ]
        lines += ["", f"## golem {' '.join([name, *arguments])}", ""]
        lines += [_paragraphs(command.help or ""), "", *_options(command)]
    return "\n".join(lines).rstrip() + "\n"


BROUGHT = ("serve",)  # by other distributions of this repository
EXIT_CODES = {
    0: "done",
    1: "an error",
    2: "wrong usage, or a value out of its range",
    3: "a model or a file that is absent or bad",
    4: "not enough memory, or no such device",
    130: "stopped by Ctrl-C",
}


def settings() -> str:
    """The table of settings."""
    lines = [
        "# Settings",
        "",
        WRITTEN,
        "A value is taken from the command line, else from the environment, else from the settings",
        "file, else it is the default. `golem env` prints every value with its origin, and where",
        "the file is looked for; `GOLEM_CONFIG` names another. It is TOML, one line a setting:",
        "",
        "```toml",
        "threads = 4",
        'context = "16K"',
        "```",
        "",
        *_rows(SETTINGS),
        "",
        "## golem serve",
        "",
        "These are golem-server's own. In the file they stand under `[serve]`:",
        "",
        "```toml",
        "[serve]",
        "max_queue = 64",
        'api_key_file = "/etc/golem/keys"',
        "```",
        "",
        *_rows(SERVE),
    ]
    return "\n".join(lines) + "\n"


def _rows(table: Mapping[str, Setting]) -> list[str]:
    lines = [
        "| setting | command line | environment | default | |",
        "|---|---|---|---|---|",
    ]
    for name, setting in table.items():
        default = setting.unset if setting.default is None else f"`{setting.default}`"
        flags = f"`{setting.flag}`" + (f", `{setting.short}`" if setting.short else "")
        if name in FLAGS:
            flags += f", `--no-{setting.flag[2:]}`"
            default = "on" if setting.default else "off"
        flags = "" if setting.exported else flags
        lines.append(f"| `{name}` | {flags} | `{setting.variable}` | {default} | {setting.help} |")
    return lines


def _options(command: click.Command) -> list[str]:
    rows = []
    for option in command.params:
        if isinstance(option, click.Option):
            flags = ", ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts])
            rows.append(f"| {flags} | {option.help} |")
    return ["| option | |", "|---|---|", *rows] if rows else []


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


FILES = {"docs/commands.md": commands, "docs/settings.md": settings}


def main(arguments: list[str]) -> int:
    """Writes or checks the documents."""
    stale = []
    for name, text in FILES.items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text():
            stale.append(name)
            if arguments != ["--check"]:
                path.write_text(text(), encoding="utf-8")
                print(f"wrote {name}")
    if stale and arguments == ["--check"]:
        print(f"not what the code says: {', '.join(stale)}; run tools/write_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
