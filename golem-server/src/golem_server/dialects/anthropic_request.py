"""A request of Anthropic's Messages, as the conversation and the tools that templates know.

A turn is a text or a list of blocks. A user's turn may begin with what tools gave back; those
results become turns of their own, in their order, before the rest of what the user says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from golem_server.ask import Constraint
from golem_server.dialects.response_request import distinct, named, refused
from golem_server.parse import field, invalid, required

Json = dict[str, Any]
Choice = tuple[Literal["auto", "none", "required", "named"], str | None]

MEDIA = {"image": "an image", "document": "a document", "audio": "sound"}
EFFORTS = ("low", "medium", "high", "xhigh", "max")

# What needs somebody else's service; each is refused by its name.
ABSENT = {
    "container": "this server runs no code",
    "mcp_servers": "this server calls no tools itself",
}


def check_absent(body: Mapping[str, Any]) -> None:
    """Raises a 400 for a field that asks for what is not done."""
    for name, reason in ABSENT.items():
        if body.get(name):
            raise refused(f"{name} is not supported: {reason}", name)
    managed = field(body, "context_management", dict) or {}
    place = "context_management.edits"
    for i, edit in enumerate(field(managed, "edits", list, within="context_management") or []):
        if not isinstance(edit, dict) or edit.get("keep") != "all":
            raise refused(
                f"{place}[{i}] is not supported: this server takes nothing out of a conversation",
                f"{place}[{i}]",
            )


def messages_of(body: Mapping[str, Any]) -> list[Json]:
    """The conversation: system, then messages. Raises a 400 naming the block that is wrong."""
    messages: list[Json] = []
    system = body.get("system")
    if system is not None:
        text = texts_of(system, "system")
        if text:
            messages.append({"role": "system", "content": text})
    given = required(body, "messages", list)
    if not given:
        raise invalid("messages is empty; give at least one message", "messages")
    names: dict[str, str] = {}
    for i, message in enumerate(given):
        place = f"messages[{i}]"
        if not isinstance(message, dict):
            raise invalid(f"{place} is no object; expected one with role and content", place)
        role = required(message, "role", str, within=place)
        content = message.get("content")
        where = f"{place}.content"
        if role == "user":
            messages += _user(content, where, names)
        elif role == "assistant":
            messages.append(_assistant(content, where, names))
        elif role == "system":
            messages.append({"role": "system", "content": texts_of(content, where)})
        else:
            raise invalid(f"{place}.role is {role!r}; expected user or assistant", f"{place}.role")
    if messages[-1]["role"] == "assistant":
        raise refused(
            f"{place} is the assistant's, and this server does not go on with a turn that has "
            "begun; end with the user's",
            place,
        )
    return messages


def _user(content: object, place: str, names: Mapping[str, str]) -> list[Json]:
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    turns: list[Json] = []
    texts: list[str] = []
    for block, kind, where in _blocks(content, place):
        if kind == "text":
            texts.append(required(block, "text", str, within=where))
        elif kind == "tool_result":
            turns.append(_result(block, where, names))
        else:
            raise _no_block(kind, where, "text or tool_result")
    if texts or not turns:
        turns.append({"role": "user", "content": "\n".join(texts)})
    return turns


def _result(block: Json, place: str, names: Mapping[str, str]) -> Json:
    call_id = required(block, "tool_use_id", str, within=place)
    if call_id not in names:
        raise invalid(
            f"{place}.tool_use_id is {call_id!r}, which no tool_use before it has",
            f"{place}.tool_use_id",
        )
    content = block.get("content")
    text = "" if content is None else texts_of(content, f"{place}.content")
    if field(block, "is_error", bool, within=place):
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": call_id, "name": names[call_id], "content": text}


def _assistant(content: object, place: str, names: dict[str, str]) -> Json:
    if isinstance(content, str):
        return {"role": "assistant", "content": content}
    turn: Json = {"role": "assistant", "content": ""}
    for block, kind, where in _blocks(content, place):
        if kind == "text":
            turn["content"] += required(block, "text", str, within=where)
        elif kind == "thinking":
            thought = required(block, "thinking", str, within=where)
            turn["reasoning_content"] = turn.get("reasoning_content", "") + thought
        elif kind == "tool_use":
            call_id = required(block, "id", str, within=where)
            name = names[call_id] = required(block, "name", str, within=where)
            arguments = field(block, "input", dict, within=where) or {}
            turn.setdefault("tool_calls", []).append(
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
            )
        else:
            raise _no_block(kind, where, "text, thinking or tool_use")
    return turn


def texts_of(content: object, place: str) -> str:
    """A text, or the texts of blocks that are nothing else."""
    if isinstance(content, str):
        return content
    texts = []
    for block, kind, where in _blocks(content, place):
        if kind != "text":
            raise _no_block(kind, where, "text")
        texts.append(required(block, "text", str, within=where))
    return "\n".join(texts)


def _blocks(content: object, place: str) -> list[tuple[Json, str, str]]:
    """The blocks of a list, each with its type and its place."""
    if not isinstance(content, list):
        raise invalid(f"{place} is neither a text nor a list of blocks", place)
    blocks = []
    for i, block in enumerate(content):
        where = f"{place}[{i}]"
        if not isinstance(block, dict):
            raise invalid(f"{where} is no block; expected an object with a type", where)
        blocks.append((block, required(block, "type", str, within=where), where))
    return blocks


def _no_block(kind: str, place: str, expected: str) -> Exception:
    if kind in MEDIA:
        return refused(f"{place} is {MEDIA[kind]}, which this model cannot take", place)
    return refused(f"{place}.type is {kind!r}; expected {expected}", f"{place}.type")


def tools_of(body: Mapping[str, Any]) -> list[Json]:
    """The tools as templates expect them; a 400 for one that is not the caller's to run."""
    tools: list[Json] = []
    for i, tool in enumerate(field(body, "tools", list) or []):
        place = f"tools[{i}]"
        if not isinstance(tool, dict):
            raise invalid(f"{place} is no object", place)
        kind = field(tool, "type", str, within=place)
        if kind not in (None, "custom"):
            raise refused(
                f"{place}.type is {kind!r}; this server runs no tools of its own, only custom is "
                "supported",
                f"{place}.type",
            )
        function: Json = {"name": required(tool, "name", str, within=place)}
        description = field(tool, "description", str, within=place)
        if description is not None:
            function["description"] = description
        function["parameters"] = required(tool, "input_schema", dict, within=place)
        if field(tool, "strict", bool, within=place):
            function["strict"] = True
        tools.append({"type": "function", "function": function})
    return distinct(tools)


def choice_of(body: Mapping[str, Any], tools: list[Json]) -> tuple[Choice, bool]:
    """`tool_choice`, and whether an answer may have several calls."""
    choice = field(body, "tool_choice", dict)
    if choice is None:
        return ("auto", None), True
    kind = required(choice, "type", str, within="tool_choice")
    one = field(choice, "disable_parallel_tool_use", bool, within="tool_choice") or False
    if kind in ("auto", "none"):
        return ("none" if kind == "none" else "auto", None), not one
    if kind == "any":
        if not tools:
            raise invalid("tool_choice is 'any', and there are no tools", "tool_choice")
        return ("required", None), not one
    if kind != "tool":
        raise invalid(
            f"tool_choice.type is {kind!r}; expected auto, any, tool or none", "tool_choice.type"
        )
    name = required(choice, "name", str, within="tool_choice")
    return ("named", named(name, tools, "tool_choice.name")), not one


def thinking_of(body: Mapping[str, Any]) -> tuple[bool | None, bool]:
    """Whether it thinks, None as the template does; and whether its thoughts are given."""
    thinking = field(body, "thinking", dict)
    if thinking is None:
        return None, True
    kind = required(thinking, "type", str, within="thinking")
    if kind not in ("enabled", "disabled", "adaptive"):
        raise refused(
            f"thinking.type is {kind!r}; expected enabled, disabled or adaptive", "thinking.type"
        )
    if kind == "enabled":
        field(thinking, "budget_tokens", int, low=1, within="thinking")
    display = field(thinking, "display", str, choices=("summarized", "omitted"), within="thinking")
    return (None if kind == "adaptive" else kind == "enabled"), display != "omitted"


def output_of(body: Mapping[str, Any]) -> tuple[Constraint | None, str | None]:
    """`output_config`: what binds the answer, and the effort, one of `EFFORTS`."""
    config = field(body, "output_config", dict) or {}
    effort = field(config, "effort", str, choices=EFFORTS, within="output_config")
    form = field(config, "format", dict, within="output_config")
    if form is None:
        return None, effort
    place = "output_config.format"
    kind = required(form, "type", str, within=place)
    if kind != "json_schema":
        raise refused(f"{place}.type is {kind!r}; expected json_schema", f"{place}.type")
    schema = required(form, "schema", dict, within=place)
    return Constraint("json_schema", schema, f"{place}.schema"), effort
