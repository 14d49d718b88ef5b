"""OpenAI's tools and which of them must be called, checked."""

from __future__ import annotations

from typing import Any

from golem_server.parse import Body, field, invalid, required

__all__ = ["tool_arguments"]

_CHOICES = ("auto", "none", "required")


def tool_arguments(body: Body) -> dict[str, Any]:
    """The arguments of an `Ask` for ``tools``, ``tool_choice`` and ``parallel_tool_calls``."""
    tools = field(body, "tools", list) or []
    names: set[str] = set()
    for i, tool in enumerate(tools):
        name = _checked(tool, f"tools[{i}]")
        if name in names:
            raise invalid(f"tools[{i}].function.name is {name!r} a second time", f"tools[{i}]")
        names.add(name)
    choice, named = _choice(body.get("tool_choice"), names)
    return {
        "tools": tools,
        "tool_choice": choice,
        "tool": named,
        "parallel": field(body, "parallel_tool_calls", bool) is not False,
    }


def _checked(tool: object, place: str) -> str:
    """The name of a tool."""
    if not isinstance(tool, dict):
        raise invalid(f"{place} is no object", place)
    kind = required(tool, "type", str, within=place)
    if kind != "function":
        raise invalid(f"{place}.type is {kind!r}, expected 'function'", f"{place}.type")
    function = required(tool, "function", dict, within=place)
    inside = f"{place}.function"
    name = required(function, "name", str, within=inside)
    if not name or len(name) > 128:
        raise invalid(f"{inside}.name has {len(name)} characters, expected 1 to 128", inside)
    field(function, "description", str, within=inside)
    field(function, "parameters", dict, within=inside)
    return name


def _choice(given: Any, names: set[str]) -> tuple[str, str | None]:
    if given is None:
        return "auto", None
    if isinstance(given, str):
        if given not in _CHOICES:
            raise invalid(
                f"tool_choice is {given!r}, expected {', '.join(_CHOICES)} or a function",
                "tool_choice",
            )
        if given == "required" and not names:
            raise invalid("tool_choice is 'required', and there are no tools", "tool_choice")
        return given, None
    if not isinstance(given, dict) or given.get("type") != "function":
        raise invalid(
            f"tool_choice is no {', '.join(_CHOICES)} and no object of type 'function'",
            "tool_choice",
        )
    function = required(given, "function", dict, within="tool_choice")
    name = required(function, "name", str, within="tool_choice.function")
    if name not in names:
        raise invalid(
            f"tool_choice names the function {name!r}, which is not among tools", "tool_choice"
        )
    return "named", name
