"""A conversation without its terminal: the turns, and what a line beginning with / does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golem_core.cli.answer import THOUGHTS
from golem_core.cli.options import GENERATING
from golem_core.errors import BadRequest, NotFound
from golem_core.settings import SETTINGS

__all__ = ["COMMANDS", "Conversation", "Leave"]

COMMANDS = {
    "/help": "this list",
    "/reset": "forget what was said; the system text stays",
    "/system [TEXT]": "set the system text and start over; without TEXT, none",
    "/think [on|off]": "have the model think first, or not; without a word, as it likes",
    "/thoughts [show|fold|hide]": "how thoughts are shown; without a word, on a terminal",
    "/set [NAME VALUE]": "change how answers are drawn; without NAME, print it",
    "/save FILE": "write the conversation to a file",
    "/load FILE": "go on with a conversation from a file",
    "/stats": "what the last answer cost",
    "/bye": "leave",
}
_KIND = "golem conversation 1"


class Leave(Exception):
    """The person said /bye."""


@dataclass
class Conversation:
    """The turns so far and how answers are drawn. `print` receives what a command says.

    `thinking` is whether the model shall think, None as its template does; `thoughts` is how that
    is shown, see `AnswerPrinter`.
    """

    model: str
    print: Callable[[str], None]
    system: str | None = None
    messages: list[dict[str, str]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    stats: str | None = None
    thinking: bool | None = None
    thoughts: str | None = None

    def turns(self, text: str) -> list[dict[str, str]]:
        """The messages with the system text before them and a user's turn after them."""
        first = [{"role": "system", "content": self.system}] if self.system else []
        return [*first, *self.messages, {"role": "user", "content": text}]

    def keep(self, text: str, answer: str) -> None:
        """Remembers a turn and its answer, whole or stopped."""
        self.messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": answer},
        ]

    def command(self, line: str) -> None:
        """Does what a line beginning with / says. Raises `Leave`, `BadRequest`, `NotFound`."""
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        actions = {key.split()[0]: key for key in COMMANDS}
        if name not in actions:
            raise BadRequest(f"there is no {name}; /help lists what there is")
        if rest and " " not in actions[name]:
            raise BadRequest(f"{name} takes nothing after it")
        getattr(self, "_" + name[1:])(rest)

    def _help(self, _rest: str) -> None:
        width = max(map(len, COMMANDS))
        for key, meaning in COMMANDS.items():
            self.print(f"{key.ljust(width)}  {meaning}")
        self.print('A line that begins with """ goes on until the next """.')

    def _reset(self, _rest: str) -> None:
        self.messages.clear()
        self.print("the conversation starts over")

    def _system(self, rest: str) -> None:
        self.system = rest or None
        self.messages.clear()
        self.print("the conversation starts over" + ("" if rest else ", without a system text"))

    def _think(self, rest: str) -> None:
        if rest not in ("", "on", "off"):
            raise BadRequest(f"/think takes on or off, not {rest!r}")
        self.thinking = {"on": True, "off": False}.get(rest)
        self.print(f"thinking {rest or 'as the template does'}")

    def _thoughts(self, rest: str) -> None:
        if rest and rest not in THOUGHTS:
            raise BadRequest(f"/thoughts takes {', '.join(THOUGHTS)}, not {rest!r}")
        self.thoughts = rest or None
        self.print(f"thoughts {rest or 'as by default'}")

    def _set(self, rest: str) -> None:
        if not rest:
            for name in GENERATING:
                value = self.options.get(name)
                self.print(f"{name} {SETTINGS[name].unset if value is None else value}")
            return
        name, _, value = rest.partition(" ")
        name = name.lstrip("-").replace("-", "_")
        if name not in GENERATING:
            raise BadRequest(f"{name} cannot be set here; there are {', '.join(GENERATING)}")
        if not value.strip():
            raise BadRequest(f"/set {name} needs a value")
        try:
            self.options[name] = SETTINGS[name].parse(value.strip())
        except ValueError as error:
            raise BadRequest(f"{name} is {value.strip()!r}; expected {error}", name) from None
        self.print(f"{name} {self.options[name]}")

    def _save(self, rest: str) -> None:
        path = self._path(rest, "/save")
        if path.exists() and _read(path) is None:
            raise BadRequest(f"{path} exists and is not a conversation; choose another name")
        text = json.dumps(
            {
                "kind": _KIND,
                "model": self.model,
                "system": self.system,
                "messages": self.messages,
                "options": self.options,
            },
            ensure_ascii=False,
            indent=1,
        )
        try:
            path.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise BadRequest(f"{path} could not be written: {error.strerror}") from None
        self.print(f"saved to {path}")

    def _load(self, rest: str) -> None:
        path = self._path(rest, "/load")
        if not path.is_file():
            raise NotFound(f"no file {path}")
        found = _read(path)
        if found is None:
            raise BadRequest(f"{path} is not a conversation that golem saved")
        self.system = found["system"]
        self.messages = found["messages"]
        self.options = {k: v for k, v in found["options"].items() if k in GENERATING}
        self.print(f"loaded {len(self.messages)} turns from {path}")
        if found["model"] != self.model:
            self.print(f"it was held with {found['model']}")

    def _stats(self, _rest: str) -> None:
        self.print(self.stats or "nothing was answered yet")

    def _bye(self, _rest: str) -> None:
        raise Leave

    @staticmethod
    def _path(rest: str, name: str) -> Path:
        if not rest:
            raise BadRequest(f"{name} needs the name of a file")
        return Path(rest).expanduser()


def _read(path: Path) -> dict[str, Any] | None:
    """A saved conversation, or None where the file is something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        turns = [(turn["role"], turn["content"]) for turn in found["messages"]]
        sound = (
            found["kind"] == _KIND
            and isinstance(found["model"], str)
            and isinstance(found["options"], dict)
            and (found["system"] is None or isinstance(found["system"], str))
            and all(isinstance(part, str) for turn in turns for part in turn)
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if sound else None
