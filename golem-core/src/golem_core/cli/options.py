"""What several commands share: the model argument, options from the settings table, printing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

from golem_core.settings import SETTINGS, Settings

__all__ = [
    "GENERATING",
    "SAMPLING",
    "as_json",
    "effective",
    "human",
    "model_argument",
    "note",
    "print_json",
    "setting_options",
    "table",
]

Command = TypeVar("Command", bound=Callable[..., Any])

SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "penalty_window",
    "seed",
)
GENERATING = ("max_tokens", *SAMPLING)

_NUMBER = re.compile(r"-?[\d.,]+(e[-+]\d+)?( [kMG]?B)?")


def setting_options(*names: str) -> Callable[[Command], Command]:
    """Options for entries of the settings table; the values are checked by `effective`."""

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            setting = SETTINGS[name]
            flags = [setting.flag, *([setting.short] if setting.short else [])]
            default = setting.unset if setting.default is None else str(setting.default)
            command = click.option(
                *flags, name, metavar=setting.metavar, help=f"{setting.help} [default: {default}]"
            )(command)
        return command

    return decorate


def effective(options: dict[str, Any]) -> Settings:
    """The settings with a command's options laid over them; takes those out of `options`."""
    context = click.get_current_context(silent=True)
    outer = context.find_root().obj if context is not None else None
    given = {name: options.pop(name) for name in list(options) if name in SETTINGS}
    settings = Settings({**(outer or {}), **given})
    settings.export()
    return settings


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Names of pulled models, and files."""
    from click.shell_completion import CompletionItem

    from golem_core.hub import known

    found = [
        CompletionItem(model.name, help=model.architecture)
        for model in known()
        if model.name.startswith(incomplete)
    ]
    return found or [CompletionItem(incomplete, type="file")]


model_argument = click.argument("model", shell_complete=_complete)
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


def print_json(value: object) -> None:
    """One JSON value on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=1, default=_plain))


def _plain(value: object) -> object:
    """numpy's scalars and arrays, and paths, as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def note(line: str) -> None:
    """A line for the user that is not the result: on standard error."""
    click.echo(click.style(line, dim=True) if sys.stderr.isatty() else line, err=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Aligned columns; a column whose every cell is a number stands to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    right = [
        bool(cells) and all(_NUMBER.fullmatch(row[i]) for row in cells)
        for i in range(len(headings))
    ]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    click.echo(click.style(line(headings), bold=True))
    for row in cells:
        click.echo(line(row))


def human(size: float) -> str:
    """Bytes as a person reads them: ``98.4 MB`` (powers of ten, as drives and downloads say)."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"
