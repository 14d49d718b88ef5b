"""What a user can set, once: the table, and where each value came from.

A value is looked for on the command line, then in the environment as ``GOLEM_`` and the flag in
capitals, then in a TOML file, then in the table's default; the first that has it wins, and
`Settings.origin` says which that was. ``golem env`` prints the whole table with the origins.
"""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from golem_core.errors import BadRequest

__all__ = [
    "SETTINGS",
    "Setting",
    "Settings",
    "cache_folder",
    "choice",
    "config_path",
    "real",
    "size",
    "text",
    "whole",
]


@dataclass(frozen=True)
class Setting:
    """One thing that can be set.

    `parse` turns text (or a TOML value) into the value, raising ValueError with what it
    expects. `default` None means that golem decides: `unset` says how. `exported` ones are no
    options: the part that they concern reads them from the environment.
    """

    name: str
    parse: Callable[[object], Any]
    default: Any
    help: str
    unset: str = ""
    short: str | None = None
    metavar: str = "TEXT"
    exported: bool = False

    @property
    def flag(self) -> str:
        """The command line's name: ``--max-tokens``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment's name: ``GOLEM_MAX_TOKENS``."""
        return "GOLEM_" + self.name.upper()


# Entry points: commands that other distributions bring, whose settings stand in tables of the file.
COMMANDS = "golem.commands"

# What reads a value: each gives it, or raises ValueError with what it expects.


def text(value: object) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise ValueError("text")
    return value


def whole(least: int | None = None) -> Callable[[object], int]:
    """Whole numbers from `least` on."""
    expected = "a whole number" + ("" if least is None else f" of at least {least}")

    def parse(value: object) -> int:
        try:
            if isinstance(value, (bool, float)):
                raise TypeError
            number = int(value)  # type: ignore[call-overload]
        except (TypeError, ValueError):
            raise ValueError(expected) from None
        if least is not None and number < least:
            raise ValueError(expected)
        return int(number)

    return parse


def real(least: float, most: float = math.inf) -> Callable[[object], float]:
    """Numbers from `least` to `most`; never infinite."""
    expected = (
        f"a number from {least:g} to {most:g}"
        if most < math.inf
        else (f"a number of at least {least:g}" if least > -math.inf else "a number")
    )

    def parse(value: object) -> float:
        try:
            if isinstance(value, bool):
                raise TypeError
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ValueError(expected) from None
        if not least <= number <= most or math.isinf(number):
            raise ValueError(expected)
        return number

    return parse


_MULTIPLES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size(value: object) -> int:
    """Whole numbers with an optional K, M or G: ``32K`` is 32,768."""
    text = str(value).strip().lower()
    multiple = _MULTIPLES.get(text[-1:], 1)
    digits = text if multiple == 1 else text[:-1]
    if isinstance(value, bool) or not digits.isdigit() or int(digits) < 1:
        raise ValueError("a whole number of at least 1, such as 4096 or 32K")
    return int(digits) * multiple


def choice(*values: str) -> Callable[[object], str]:
    """One of some words."""

    def parse(value: object) -> str:
        if str(value) not in values:
            raise ValueError("one of " + ", ".join(values))
        return str(value)

    return parse


def _threads(value: object) -> int:
    return whole(1)(value)


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "device", text, "cpu",
            "Where the model runs: cpu, reference (slow and plain, for checking) or vulkan.",
            short="-d", metavar="DEVICE",
        ),
        Setting(
            "threads", _threads, None, "Threads of a pass.",
            "the cores that the process may use", short="-t", metavar="N",
        ),
        Setting(
            "context", size, None, "Positions that a conversation may hold, such as 4096 or 32K.",
            "what the model was trained for, 8192 at most", short="-c", metavar="N",
        ),
        Setting(
            "draft", choice("auto", "off", "mtp", "ngram"), "auto",
            "Guess next tokens, which changes no text: mtp by the model's own prediction block, "
            "ngram by what the text repeats, auto by the first that there is while it pays.",
            metavar="WAY",
        ),
        Setting(
            "max_tokens", whole(1), None, "The most tokens of an answer.",
            "until the model ends it or the context is full", short="-n", metavar="N",
        ),
        Setting(
            "temperature", real(0), None, "How freely tokens are drawn; 0 takes the likeliest.",
            "the file's own, else 0.8", metavar="X",
        ),
        Setting(
            "top_k", whole(0), None, "Draw among the K likeliest tokens; 0 for all.",
            "the file's own, else 40", metavar="K",
        ),
        Setting(
            "top_p", real(0, 1), None, "Draw among the likeliest tokens that together reach P.",
            "the file's own, else 0.95", metavar="P",
        ),
        Setting(
            "min_p", real(0, 1), None, "Leave out tokens less likely than P times the likeliest.",
            "the file's own, else 0.05", metavar="P",
        ),
        Setting(
            "typical_p", real(0, 1), None, "Locally typical sampling; 1 turns it off.",
            "1", metavar="P",
        ),
        Setting(
            "repeat_penalty", real(0), None,
            "Divides the logits of tokens seen in the window; 1 turns it off.",
            "the file's own, else 1", metavar="X",
        ),
        Setting(
            "frequency_penalty", real(-math.inf), None,
            "Taken off a logit for each time its token occurred.", "0", metavar="X",
        ),
        Setting(
            "presence_penalty", real(-math.inf), None,
            "Taken off a logit once its token occurred.", "0", metavar="X",
        ),
        Setting(
            "penalty_window", whole(-1), None, "Tokens that the penalties look at; -1 for all.",
            "64", metavar="N",
        ),
        Setting(
            "seed", whole(), None, "Makes the drawing repeatable.",
            "a new one each time", metavar="N",
        ),
        Setting(
            "color", choice("auto", "always", "never"), "auto",
            "Colours: auto is on a terminal, unless NO_COLOR is set.", metavar="WHEN",
        ),
        Setting(
            "cache", text, None, "The folder for models that golem fetches.",
            "the user's cache folder", metavar="DIR", exported=True,
        ),
        Setting(
            "packed", whole(0), 32,
            "GiB of packed weights that the cache folder keeps for the next start; 0: none.",
            metavar="GIB", exported=True,
        ),
        Setting(
            "isa", text, None, "The highest instruction set of kernels; `golem env` lists them.",
            "the best that the processor has", metavar="NAME", exported=True,
        ),
        Setting(
            "plugins", text, None, "Distributions whose models may load, by comma; empty: none.",
            "all that are installed", metavar="NAMES", exported=True,
        ),
    )
}  # fmt: skip


def cache_folder() -> Path:
    """Golem's own cache: ``$GOLEM_CACHE``, else the user's cache folder for golem."""
    named = os.environ.get("GOLEM_CACHE")
    if named:
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("golem", appauthor=False)


class Settings:
    """The effective values, each with its origin.

    `cli` holds what the command line gave, by name, None where it gave nothing. Everything is
    checked here, so an error names the place that has to be mended. Raises `BadRequest`.

    A command that another distribution brings has settings of its own: its `table`, which in the
    file stands under ``[section]``, where section is the command's name.
    """

    def __init__(
        self,
        cli: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
        path: Path | None = None,
        *,
        table: Mapping[str, Setting] | None = None,
        section: str | None = None,
    ) -> None:
        self._table = SETTINGS if table is None else table
        self._section = section
        self._cli = {name: value for name, value in (cli or {}).items() if value is not None}
        self._environ = os.environ if environ is None else environ
        self.path = config_path(self._environ) if path is None else path
        self._values = {name: self._find(setting) for name, setting in self._table.items()}

    def __getitem__(self, name: str) -> Any:
        """The value of a setting; KeyError for a name that is not in the table."""
        return self._values[name][0]

    def origin(self, name: str) -> str:
        """Where the value was found, as ``golem env`` shows it."""
        return self._values[name][1]

    def given(self, *names: str) -> dict[str, Any]:
        """Those of `names` that somebody set, for a call whose own defaults should hold."""
        return {name: self[name] for name in names if self[name] is not None}

    def export(self) -> None:
        """Puts the exported settings into the process's environment."""
        for name, setting in self._table.items():
            if setting.exported and self[name] is not None:
                os.environ[setting.variable] = str(self[name])

    def _find(self, setting: Setting) -> tuple[Any, str]:
        if setting.name in self._cli:
            value = self._cli[setting.name]
            return _parsed(setting, value, setting.flag), f"command line ({setting.flag})"
        if setting.variable in self._environ:
            text = self._environ[setting.variable]
            # An empty variable is the shell's way of not setting it; only for the list of
            # plugins does empty have a meaning of its own.
            if text or setting.name == "plugins":
                value = _parsed(setting, text, f"the environment's {setting.variable}")
                return value, f"environment ({setting.variable})"
        if setting.name in self._file:
            section = "" if self._section is None else f"[{self._section}] "
            where = f"{section}{setting.name} in {self.path}"
            value = _parsed(setting, self._file[setting.name], where)
            return value, f"file ({self.path})"
        return setting.default, "default"

    @cached_property
    def _file(self) -> Mapping[str, object]:
        """What the TOML file says of the table's settings; empty where there is none."""
        if self.path is None or not self.path.is_file():
            if self._environ.get("GOLEM_CONFIG"):
                raise BadRequest(f"GOLEM_CONFIG names {self.path}, which is not a file")
            return {}
        found = _read_toml(self.path)
        if self._section is not None:
            found = found.get(self._section, {})
            if not isinstance(found, dict):
                raise BadRequest(f"{self.path} sets {self._section}, which is a table of settings")
        else:
            commands = {point.name for point in metadata.entry_points(group=COMMANDS)}
            found = {k: v for k, v in found.items() if k not in commands}
        for name in found:
            if name not in self._table:
                close = difflib.get_close_matches(name, self._table, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise BadRequest(f"{self.path} sets {name!r}, which is not a setting{hint}")
        return found


def config_path(environ: Mapping[str, str] | None = None) -> Path:
    """The settings file: ``$GOLEM_CONFIG``, else ``config.toml`` in the user's folder for golem."""
    named = (os.environ if environ is None else environ).get("GOLEM_CONFIG")
    if named:
        return Path(named).expanduser()
    import platformdirs

    return platformdirs.user_config_path("golem", appauthor=False) / "config.toml"


def _parsed(setting: Setting, value: object, where: str) -> Any:
    try:
        return setting.parse(value)
    except ValueError as error:
        raise BadRequest(f"{where} is {value!r}; expected {error}", field=setting.name) from None


def _read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return found
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} is not a TOML file: {error}") from None
