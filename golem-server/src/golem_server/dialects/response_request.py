"""A request of OpenAI's Responses, as the conversation and the tools that templates know.

The items of an input are finer than turns: a thought, a message and a call that the model wrote one
after the other are three items, and one turn of the assistant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from golem_server.ask import Constraint
from golem_server.errors import ApiError
from golem_server.parse import field, invalid, required

Json = dict[str, Any]
Choice = tuple[Literal["auto", "none", "required", "named"], str | None]

ROLES = ("user", "assistant", "system", "developer")
TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
MEDIA = {"input_image": "an image", "input_file": "a file", "input_audio": "sound"}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

# What needs a memory between requests, or somebody else's service; each is refused by its name.
ABSENT = {
    "previous_response_id": "this server keeps no responses; send the conversation as input",
    "conversation": "this server keeps no conversations; send the conversation as input",
    "prompt": "this server has no stored prompts; send instructions and input",
    "context_management": "this server does not compact a conversation",
    "moderation": "this server moderates nothing",
}
INCLUDES = ("message.output_text.logprobs", "reasoning.encrypted_content")


def check_absent(body: Mapping[str, Any]) -> None:
    """Raises a 400 for a field that asks for what is not done."""
    for name, reason in ABSENT.items():
        if body.get(name) is not None:
            raise refused(f"{name} is not supported: {reason}", name)
    if field(body, "background", bool):
        raise refused("background is not supported: a response ends with its request", "background")


def refused(message: str, param: str) -> ApiError:
    """The 400 for what golem does not do."""
    return invalid(message, param, "unsupported_value")


def check_form(constraint: Constraint | None, tools: list[Json], choice: str) -> None:
    """Raises a 400 for an answer that is to have a form and may call tools as well."""
    if constraint is not None and tools and choice != "none":
        raise refused(
            f"{constraint.param} with tools is not supported: set tool_choice to none for the "
            "answer that is to have the form",
            constraint.param,
        )


def messages_of(body: Mapping[str, Any]) -> list[Json]:
    """The conversation: instructions, then input, which is a text or items."""
    turns = Turns()
    instructions = field(body, "instructions", str)
    if instructions:
        turns.messages.append({"role": "system", "content": instructions})
    given = body.get("input")
    if isinstance(given, str):
        turns.messages.append({"role": "user", "content": given})
    elif isinstance(given, list):
        if not given:
            raise invalid("input is empty; give at least one item", "input")
        for i, item in enumerate(given):
            turns.add(item, f"input[{i}]")
    else:
        required(body, "input", list)
    return turns.messages


class Turns:
    """Items made into turns, one after the other; `messages` are the turns so far."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self._names: dict[str, str] = {}  # of the tools, by the ids of their calls
        self._open: Json | None = None  # the assistant's turn that the next item may belong to

    def add(self, item: object, place: str) -> None:
        """The next item. Raises a 400 naming it, for one of a kind that golem does not take."""
        if not isinstance(item, dict):
            raise invalid(f"{place} is no object; expected an item with a type", place)
        kind = field(item, "type", str, within=place) or ("message" if "role" in item else "")
        if kind == "message":
            self._message(item, place)
        elif kind == "reasoning":
            self._thought(item, place)
        elif kind == "function_call":
            self._call(item, place)
        elif kind == "function_call_output":
            self._output(item, place)
        elif kind == "item_reference" or (not kind and "id" in item):
            raise refused(
                f"{place} refers to a stored item, and this server keeps none; send the item",
                place,
            )
        else:
            raise refused(
                f"{place}.type is {kind!r}; expected message, reasoning, function_call or "
                "function_call_output",
                f"{place}.type",
            )

    def _message(self, item: Json, place: str) -> None:
        role = required(item, "role", str, within=place)
        if role not in ROLES:
            raise invalid(f"{place}.role is {role!r}; expected {', '.join(ROLES)}", f"{place}.role")
        text = text_of(item.get("content"), f"{place}.content")
        if role != "assistant":
            self._open = None
            self.messages.append({"role": role, "content": text})
            return
        turn = self._open
        if turn is None or (turn["content"] and not turn.get("tool_calls")):
            turn = self._begin()
        turn["content"] += text

    def _thought(self, item: Json, place: str) -> None:
        parts: list[object] = []
        for name in ("content", "summary"):
            parts = field(item, name, list, within=place) or []
            if parts:
                break
        texts = []
        for i, part in enumerate(parts):
            if not isinstance(part, dict) or not isinstance(part.get("text"), str):
                raise invalid(f"{place}.{name}[{i}] is no part with a text", f"{place}.{name}[{i}]")
            texts.append(part["text"])
        turn = self._open
        if turn is None or turn["content"] or turn.get("tool_calls"):
            turn = self._begin()
        turn["reasoning_content"] = turn.get("reasoning_content", "") + "\n".join(texts)

    def _call(self, item: Json, place: str) -> None:
        call_id = required(item, "call_id", str, within=place)
        name = required(item, "name", str, within=place)
        arguments = field(item, "arguments", str, within=place) or "{}"
        self._names[call_id] = name
        turn = self._open if self._open is not None else self._begin()
        turn.setdefault("tool_calls", []).append(
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
        )

    def _output(self, item: Json, place: str) -> None:
        call_id = required(item, "call_id", str, within=place)
        if call_id not in self._names:
            raise invalid(
                f"{place}.call_id is {call_id!r}, which no function_call before it has",
                f"{place}.call_id",
            )
        self._open = None
        self.messages.append(
            {
                "role": "tool",
                "tool_call_id": call_id,
                "name": self._names[call_id],
                "content": text_of(item.get("output"), f"{place}.output"),
            }
        )

    def _begin(self) -> Json:
        self._open = {"role": "assistant", "content": ""}
        self.messages.append(self._open)
        return self._open


def text_of(content: object, place: str) -> str:
    """A text, or the texts of parts. Raises a 400 naming the part that is none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{place} is neither a text nor a list of parts", place)
    texts = []
    for i, part in enumerate(content):
        where = f"{place}[{i}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(part, dict) or not isinstance(kind, str):
            raise invalid(f"{where} is no part; expected an object with a type", where)
        if kind in MEDIA:
            raise refused(f"{where} is {MEDIA[kind]}, which this model cannot take", where)
        if kind not in TEXTS:
            raise refused(
                f"{where}.type is {kind!r}; expected input_text or output_text", f"{where}.type"
            )
        texts.append(required(part, TEXTS[kind], str, within=where))
    return "\n".join(texts)


def tools_of(body: Mapping[str, Any]) -> list[Json]:
    """The tools as templates expect them; a 400 for one that is no function of the caller's."""
    tools: list[Json] = []
    for i, tool in enumerate(field(body, "tools", list) or []):
        place = f"tools[{i}]"
        if not isinstance(tool, dict):
            raise invalid(f"{place} is no object", place)
        kind = required(tool, "type", str, within=place)
        if kind != "function":
            raise refused(
                f"{place}.type is {kind!r}; this server runs no tools of its own, only function "
                "is supported",
                f"{place}.type",
            )
        function: Json = {"name": required(tool, "name", str, within=place)}
        description = field(tool, "description", str, within=place)
        if description is not None:
            function["description"] = description
        parameters = field(tool, "parameters", dict, within=place)
        function["parameters"] = parameters or {"type": "object", "properties": {}}
        if field(tool, "strict", bool, within=place):
            function["strict"] = True
        tools.append({"type": "function", "function": function})
    return distinct(tools)


def choice_of(body: Mapping[str, Any], tools: list[Json]) -> tuple[Choice, list[Json]]:
    """`tool_choice`, and the tools that may be called by it. Raises a 400 for one without tools."""
    choice = body.get("tool_choice")
    if isinstance(choice, dict):
        kind = required(choice, "type", str, within="tool_choice")
        if kind == "function":
            name = required(choice, "name", str, within="tool_choice")
            return ("named", named(name, tools, "tool_choice.name")), tools
        if kind != "allowed_tools":
            raise refused(
                f"tool_choice.type is {kind!r}; expected function or allowed_tools",
                "tool_choice.type",
            )
        names = set()
        for i, allowed in enumerate(required(choice, "tools", list, within="tool_choice")):
            place = f"tool_choice.tools[{i}]"
            if not isinstance(allowed, dict):
                raise invalid(f"{place} is no object", place)
            name = required(allowed, "name", str, within=place)
            names.add(named(name, tools, f"{place}.name"))
        tools = [tool for tool in tools if tool["function"]["name"] in names]
        choice = {"tool_choice": required(choice, "mode", str, within="tool_choice")}
    else:
        choice = body
    mode = field(choice, "tool_choice", str, choices=("auto", "none", "required"))
    if mode == "required":
        if not tools:
            raise invalid("tool_choice is 'required', and there are no tools", "tool_choice")
        return ("required", None), tools
    return ("none" if mode == "none" else "auto", None), tools


def distinct(tools: list[Json]) -> list[Json]:
    """The tools themselves. Raises a 400 for a name that cannot be, or that two of them have."""
    names: set[str] = set()
    for i, tool in enumerate(tools):
        name = tool["function"]["name"]
        if not name or len(name) > 128:
            raise invalid(
                f"the name of tools[{i}] has {len(name)} characters, expected 1 to 128",
                f"tools[{i}]",
            )
        if name in names:
            raise invalid(f"tools[{i}] is called {name!r}, as one before it is", f"tools[{i}]")
        names.add(name)
    return tools


def named(name: str, tools: list[Json], place: str) -> str:
    """A tool's name. Raises a 400 for one that is not among `tools`."""
    if all(tool["function"]["name"] != name for tool in tools):
        raise invalid(f"{place} is {name!r}, which is not in tools", place)
    return name


def constraint_of(body: Mapping[str, Any]) -> Constraint | None:
    """What `text.format` binds the answer to; None for free text."""
    text = field(body, "text", dict) or {}
    verbosity = field(text, "verbosity", str, choices=("low", "medium", "high"), within="text")
    if verbosity not in (None, "medium"):
        raise refused(
            f"text.verbosity {verbosity!r} is not supported; ask for it in the instructions",
            "text.verbosity",
        )
    form = field(text, "format", dict, within="text")
    if form is None:
        return None
    place = "text.format"
    kind = required(form, "type", str, within=place)
    if kind == "text":
        return None
    if kind == "json_object":
        return Constraint("json_object", "", place)
    if kind != "json_schema":
        raise refused(
            f"{place}.type is {kind!r}; expected text, json_object or json_schema", f"{place}.type"
        )
    required(form, "name", str, within=place)
    schema = required(form, "schema", dict, within=place)
    return Constraint("json_schema", schema, f"{place}.schema")


def effort_of(body: Mapping[str, Any]) -> str | None:
    """`reasoning.effort`, one of `EFFORTS`; None where it is left to the model."""
    reasoning = field(body, "reasoning", dict) or {}
    for name in ("summary", "generate_summary"):
        field(reasoning, name, str, within="reasoning", choices=("auto", "concise", "detailed"))
    return field(reasoning, "effort", str, choices=EFFORTS, within="reasoning")


def logprobs_of(body: Mapping[str, Any]) -> int | None:
    """How many alternatives of each token are wanted; None where not even its own probability."""
    included = field(body, "include", list) or []
    for i, name in enumerate(included):
        if name not in INCLUDES:
            raise refused(
                f"include[{i}] is {name!r}; expected {' or '.join(INCLUDES)}", f"include[{i}]"
            )
    top = field(body, "top_logprobs", int, low=0, high=20)
    if top or INCLUDES[0] in included:
        return top or 0
    return None
