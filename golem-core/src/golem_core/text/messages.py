"""A conversation as a request gives it, made into what chat templates expect.

Only plain strings, numbers, lists and dictionaries come out, so nothing in a request can be
trusted, whatever was passed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from golem_core.errors import BadRequest

ROLES = ("system", "developer", "user", "assistant", "tool")

_DEEPEST = 64


class Arguments(dict[str, Any]):
    """A tool call's arguments: a mapping to templates that look inside, JSON to those that print.

    Requests carry the arguments as JSON text; templates expect one or the other.
    """

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __radd__(self, text: object) -> Any:
        return text + str(self) if isinstance(text, str) else NotImplemented

    def __add__(self, text: object) -> Any:
        return str(self) + text if isinstance(text, str) else NotImplemented


def checked(messages: object) -> list[dict[str, Any]]:
    """The messages with `developer` read as `system`, leading system messages made one, texts in
    parts made one text, and the arguments of tool calls opened.

    Raises BadRequest naming the place, such as ``messages[0].role``.
    """
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise BadRequest("messages is no list; expected a list of objects with a role", "messages")
    if not messages:
        raise BadRequest("messages is empty; give at least one message", "messages")
    result: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if not isinstance(message, Mapping):
            raise BadRequest(f"{place} is no object; expected one with a role", place)
        one = plain(message, place)
        role = one.get("role")
        if role not in ROLES:
            raise BadRequest(
                f"{place}.role is {role!r}; expected {', '.join(ROLES)}", f"{place}.role"
            )
        if role == "developer":
            one["role"] = "system"
        one["content"] = _content(one.get("content"), bool(one.get("tool_calls")), place)
        if one.get("tool_calls"):
            one["tool_calls"] = _calls(one["tool_calls"], f"{place}.tool_calls")
        previous = result[0] if len(result) == 1 and result[0]["role"] == "system" else None
        if previous is not None and one["role"] == "system":
            previous["content"] = f"{previous['content']}\n\n{one['content']}"
        else:
            result.append(one)
    return result


def plain(value: Any, place: str, depth: int = 0) -> Any:
    """A deep copy in plain types; raises BadRequest for any other, naming its place."""
    if depth > _DEEPEST:
        raise BadRequest(f"{place} is nested over {_DEEPEST} deep", place)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return "".join(list(str.__iter__(value))) if type(value) is not str else value
    if isinstance(value, Mapping):
        return {
            plain(str(key), place, depth + 1): plain(item, f"{place}.{key}", depth + 1)
            for key, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [plain(item, f"{place}[{i}]", depth + 1) for i, item in enumerate(value)]
    raise BadRequest(f"{place} is {type(value).__name__}; expected what JSON can hold", place)


def length(value: Any) -> int:
    """Characters in a plain value, with one for every number and container."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return 1 + sum(len(key) + length(item) for key, item in value.items())
    if isinstance(value, list):
        return 1 + sum(map(length, value))
    return 1


def _content(content: Any, calls: bool, place: str) -> Any:
    if content is None:
        return None if calls else ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRequest(
            f"{place}.content is {type(content).__name__}; expected a text or a list of parts",
            f"{place}.content",
        )
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            where = f"{place}.content[{i}]"
            raise BadRequest(f"{where} is no part; expected an object with a type", where)
        if part["type"] not in ("text", "input_text", "output_text"):
            return content
        if not isinstance(part.get("text"), str):
            where = f"{place}.content[{i}].text"
            raise BadRequest(f"{where} is absent or no text", where)
        texts.append(part["text"])
    return "\n".join(texts)


def _calls(calls: Any, place: str) -> list[Any]:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise BadRequest(f"{place} is no list of objects", place)
    for call in calls:
        function = call.get("function", call)
        if not isinstance(function, dict):
            raise BadRequest(f"{place}.function is no object", place)
        arguments = _opened(function.get("arguments"))
        if isinstance(arguments, dict):
            function["arguments"] = Arguments(plain(arguments, f"{place}.arguments"))
    return calls


def _opened(arguments: Any) -> Any:
    """The object in arguments that are JSON text, or that twice; what is none stays as it is."""
    if arguments is None or arguments == "":
        return {}
    for _ in range(2):
        if not isinstance(arguments, str):
            break
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            break
    return arguments
