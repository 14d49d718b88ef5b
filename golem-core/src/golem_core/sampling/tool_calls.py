"""The constraint that an answer calls tools: a grammar of the family's notation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from golem_core.errors import BadRequest
from golem_core.sampling.constraint import Constraint, matcher
from golem_core.sampling.schema import part_that_fails
from golem_core.text.grammar import Grammar, JsonPart

if TYPE_CHECKING:
    from golem_core.text import ChatFormat, Tokenizer, Tools


def tool_call_constraint(
    format: ChatFormat,
    tools: Tools,
    choice: str | Mapping[str, Any],
    parallel: bool,
    tokenizer: Tokenizer,
) -> Constraint:
    """The constraint that an answer calls tools as `format` writes them.

    choice    ``required`` (one at least), ``auto`` (text, then calls or none; arguments obey the
              schemas of tools that are ``strict``), or OpenAI's object that names one tool
    parallel  whether there may be several calls

    Raises `BadRequest` for a choice or a schema that cannot be obeyed, naming the part, and
    `Unsupported` for a family that writes no calls.
    """
    if format.call is None or format.reads is None:
        raise BadRequest("this model's chat template has no calls of tools", "tool_choice")
    functions = [_function(tool, i) for i, tool in enumerate(tools)]
    name = _chosen(choice)
    if name is not None:
        functions = [function for function in functions if function["name"] == name]
    if not functions:
        raise BadRequest(
            f"tool_choice is {choice!r}, and there is no such tool"
            if name is not None
            else "tool_choice asks for a call, and there are no tools",
            "tool_choice",
        )
    tokens = {
        marker: token
        for marker in format.markers
        if (token := tokenizer.special_id(marker)) is not None
    }
    grammar = Grammar(tokens)
    opens, closes = (grammar.marker(marker) for marker in format.call)
    calls = []
    for function in functions:
        strict = name is not None or choice == "required" or function["strict"]
        part = JsonPart(function["schema"], function["schema"], function["path"])
        if not strict:
            part = JsonPart({"type": "object"}, {}, function["path"])
        calls.append(format.reads.grammar(grammar, function["name"], part))
    rest = grammar.rule(f"({' | '.join(calls)}) {closes}")
    more = f" (/\\n{{0,2}}/ {opens} {rest})*" if parallel else ""
    if choice == "auto":
        anything, marker = JsonPart({}, {}, "tools"), format.call[0]
        if marker in tokens:
            some = f"{grammar.unquoted(anything)} ({opens} {rest}{more})?"
        else:
            before = grammar.unquoted(anything, marker, marker)
            some = f"{grammar.unquoted(anything, marker)} | {before} {rest}{more}"
    else:
        some = f"{opens} {rest}{more}"
    grammar.rule(some, "start")
    paths = ", ".join(function["path"] for function in functions)
    return Constraint(matcher(grammar.text, tokenizer, "tools", None, paths), tokenizer)


def _chosen(choice: str | Mapping[str, Any]) -> str | None:
    """The name of the one tool that is to be called."""
    if isinstance(choice, Mapping):
        named = choice.get("function", choice)
        name = named.get("name") if isinstance(named, Mapping) else None
        if isinstance(name, str):
            return name
    elif choice in ("auto", "required"):
        return None
    raise BadRequest(
        f"tool_choice is {choice!r}, expected 'auto', 'required' or an object that names a tool",
        "tool_choice",
    )


def _function(tool: object, index: int) -> dict[str, Any]:
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadRequest(f"tools[{index}] has no function with a name", "tools")
    key = "input_schema" if "input_schema" in function else "parameters"
    schema = function.get(key) or {"type": "object", "properties": {}}
    path = f"tools[{index}].{'function.' if function is not tool else ''}{key}"
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise BadRequest(f"{path} is no JSON Schema of an object", "tools")
    failed = part_that_fails(schema)
    if failed is not None:
        raise BadRequest(f"{path}{failed[0]}: {failed[1]}", "tools")
    strict = function.get("strict") is True
    return {"name": function["name"], "schema": schema, "path": path, "strict": strict}
