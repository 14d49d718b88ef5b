"""A request of ollama's API, as the conversation, the tools and the sampling that golem knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from golem_server.ask import Constraint
from golem_server.dialects.response_request import distinct, refused
from golem_server.errors import ApiError
from golem_server.parse import field, invalid, required

Json = dict[str, Any]

ROLES = ("system", "user", "assistant", "tool")
EFFORTS = ("low", "medium", "high", "max")
FOREVER = -1.0

# Options by how golem calls them; kind, and the name in `Sampling`.
SAMPLING: dict[str, tuple[type, str]] = {
    "temperature": (float, "temperature"),
    "top_k": (int, "top_k"),
    "top_p": (float, "top_p"),
    "min_p": (float, "min_p"),
    "typical_p": (float, "typical_p"),
    "repeat_penalty": (float, "repeat_penalty"),
    "frequency_penalty": (float, "frequency_penalty"),
    "presence_penalty": (float, "presence_penalty"),
    "repeat_last_n": (int, "penalty_window"),
    "seed": (int, "seed"),
}
# Options that change no text, only how it is computed, which is the server's business.
PLACEMENT = (
    "draft_num_predict",
    "f16_kv",
    "low_vram",
    "main_gpu",
    "num_batch",
    "num_gpu",
    "num_keep",
    "num_thread",
    "numa",
    "use_mlock",
    "use_mmap",
)
OTHERS = ("num_ctx", "num_predict", "stop")
# Options of what golem does not have, with the value that does not ask for it.
WITHOUT: dict[str, object] = {
    "embedding_only": False,
    "logits_all": False,
    "mirostat": 0,
    "mirostat_eta": None,  # says nothing by itself
    "mirostat_tau": None,
    "penalize_newline": True,
    "tfs_z": 1,
    "vocab_only": False,
}
KNOWN = (*SAMPLING, *PLACEMENT, *OTHERS, *WITHOUT)

# What is refused by its name, unless it is empty.
ABSENT = {
    "suffix": "this server does not fill in the middle",
    "template": "this server answers by the template of the model's file",
    "context": "this server keeps no conversations; send messages to /api/chat",
    "truncate": "this server never leaves out a part of a prompt",
    "shift": "this server never leaves out a part of a conversation",
}

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def check_absent(body: Mapping[str, Any]) -> None:
    """Raises a 400 for a field that asks for what is not done."""
    for name, reason in ABSENT.items():
        if body.get(name):
            raise refused(f"{name} is not supported: {reason}", name)
    _no_images(body, "")


def messages_of(body: Mapping[str, Any]) -> list[Json]:
    """The conversation of ``/api/chat``; empty where a model is only to be loaded."""
    messages: list[Json] = []
    names: dict[str, str] = {}
    for i, given in enumerate(field(body, "messages", list) or []):
        place = f"messages[{i}]"
        if not isinstance(given, dict):
            raise invalid(f"{place} is no object; expected one with role and content", place)
        role = required(given, "role", str, within=place).lower()
        if role not in ROLES:
            raise invalid(f"{place}.role is {role!r}; expected {', '.join(ROLES)}", f"{place}.role")
        _no_images(given, place)
        message: Json = {
            "role": role,
            "content": field(given, "content", str, within=place) or "",
        }
        if role == "assistant":
            thought = field(given, "thinking", str, within=place)
            if thought:
                message["reasoning_content"] = thought
            calls = _calls(given, place, i, names)
            if calls:
                message["tool_calls"] = calls
        elif role == "tool":
            call_id = field(given, "tool_call_id", str, within=place)
            name = field(given, "tool_name", str, within=place) or names.get(call_id or "")
            if name:
                message["name"] = name
            if call_id:
                message["tool_call_id"] = call_id
        messages.append(message)
    return messages


def _calls(given: Json, place: str, turn: int, names: dict[str, str]) -> list[Json]:
    calls = []
    for i, call in enumerate(field(given, "tool_calls", list, within=place) or []):
        where = f"{place}.tool_calls[{i}]"
        if not isinstance(call, dict):
            raise invalid(f"{where} is no object", where)
        function = required(call, "function", dict, within=where)
        name = required(function, "name", str, within=f"{where}.function")
        arguments = field(function, "arguments", dict, within=f"{where}.function") or {}
        call_id = field(call, "id", str, within=where) or f"call_{turn}_{i}"
        names[call_id] = name
        calls.append(
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        )
    return calls


def _no_images(given: Mapping[str, Any], place: str) -> None:
    if given.get("images"):
        where = f"{place}.images" if place else "images"
        raise refused(f"{where} has images, and this model cannot see", where)


def tools_of(body: Mapping[str, Any]) -> list[Json]:
    """The tools, which have the form that templates expect."""
    tools: list[Json] = []
    for i, tool in enumerate(field(body, "tools", list) or []):
        place = f"tools[{i}]"
        if not isinstance(tool, dict):
            raise invalid(f"{place} is no object", place)
        field(tool, "type", str, choices=("function",), within=place)
        function = required(tool, "function", dict, within=place)
        required(function, "name", str, within=f"{place}.function")
        field(function, "description", str, within=f"{place}.function")
        field(function, "parameters", dict, within=f"{place}.function")
        tools.append({"type": "function", "function": function})
    return distinct(tools)


def constraint_of(body: Mapping[str, Any]) -> Constraint | None:
    """`format`: ``json``, or a JSON Schema."""
    form = body.get("format")
    if form is None or form == "":
        return None
    if form == "json":
        return Constraint("json_object", "", "format")
    if isinstance(form, dict):
        return Constraint("json_schema", form, "format")
    raise invalid("format is neither 'json' nor a JSON Schema", "format")


def thinking_of(body: Mapping[str, Any]) -> tuple[bool | None, Json]:
    """`think`: whether it thinks, None as the template does; and the template's variables."""
    think = body.get("think")
    if think is None or isinstance(think, bool):
        return think, {}
    if think in EFFORTS:
        return True, {"reasoning_effort": think}
    raise invalid(f"think is neither true, false nor one of {', '.join(EFFORTS)}", "think")


class Options:
    """`options`, checked.

    sampling    by the names of `Sampling`
    max_tokens  the most tokens of the answer; None: what the context has room for
    stop        stop strings
    context     how much room the client counts on; None: it does not
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        """Raises `ApiError` naming the option."""
        given = field(body, "options", dict) or {}
        for name, value in given.items():
            if name not in KNOWN:
                raise invalid(
                    f"options.{name} is no option; there are {', '.join(sorted(KNOWN))}",
                    f"options.{name}",
                )
            harmless = WITHOUT.get(name)
            if harmless is not None and value is not None and value != harmless:
                raise refused(
                    f"options.{name} is {value!r}, which is not supported; leave it out",
                    f"options.{name}",
                )
        self.sampling: Json = {}
        for name, (kind, golem) in SAMPLING.items():
            number: Any = field(given, name, kind, within="options")
            if number is not None:
                self.sampling[golem] = number
        predict = field(given, "num_predict", int, low=-2, within="options")
        if predict == 0:
            raise invalid("options.num_predict is 0, expected at least 1, or -1 for as many as fit",
                          "options.num_predict")  # fmt: skip
        self.max_tokens = None if predict is None or predict < 0 else predict
        stop = given.get("stop")
        if isinstance(stop, str):
            self.stop: list[Any] | str | None = stop
        else:
            self.stop = field(given, "stop", list, within="options") or None
        self.context = field(given, "num_ctx", int, low=1, within="options")

    def check_context(self, has: int) -> None:
        """Raises a 400 where the client counts on more room than there is."""
        if self.context is not None and self.context > has:
            raise refused(
                f"options.num_ctx is {self.context}, and this server gives a conversation {has} "
                "tokens; a longer --context gives more",
                "options.num_ctx",
            )


def keep_alive_of(body: Mapping[str, Any]) -> float | None:
    """Seconds for which the model stays loaded; `FOREVER`, 0 for not at all, None unsaid."""
    given = body.get("keep_alive")
    if given is None:
        return None
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        seconds = field(body, "keep_alive", float) or 0.0
        return FOREVER if seconds < 0 else seconds
    if isinstance(given, str):
        text = given.strip()
        whole = text.lstrip("+-")
        if re.fullmatch(r"\d+", whole):
            seconds = float(whole)
        elif whole and not _DURATION.sub("", whole):
            seconds = sum(float(m[1]) * _UNITS[m[2]] for m in _DURATION.finditer(whole))
        else:
            raise _no_duration()
        return FOREVER if text.startswith("-") and seconds else seconds
    raise _no_duration()


def _no_duration() -> ApiError:
    return invalid(
        "keep_alive is no duration; expected seconds, or a text such as 5m or 1h30m", "keep_alive"
    )
