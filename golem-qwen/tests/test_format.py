"""Which files have thoughts and calls, and how they are read."""

from __future__ import annotations

import pytest

from golem_core.text import Reply, parse
from golem_qwen.format import format_of

THOUGHT, JSON = "<think></think>", '<tool_call>{"name": "f"}</tool_call>'
TAGS = "<tool_call><function=f></function></tool_call>"
CALLS = {
    JSON: '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
    TAGS: "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
}


@pytest.mark.parametrize("calls", [JSON, TAGS])
@pytest.mark.parametrize("thought", [THOUGHT, ""])
def test_a_template_says_what_there_is(thought: str, calls: str) -> None:
    form = format_of(thought + calls)
    assert form is not None
    text = f"<think>\nhm\n</think>\n\nYes.\n\n{CALLS[calls]}\n{CALLS[calls]}"
    reply = parse(form, text)
    assert reply.thoughts == ("hm" if thought else "")
    assert reply.content == ("Yes." if thought else "<think>\nhm\n</think>\n\nYes.")
    assert [(call.name, call.arguments) for call in reply.calls] == [("f", {"a": 1})] * 2


def test_a_template_without_calls() -> None:
    form = format_of(THOUGHT)
    assert form is not None
    assert parse(form, "<think>hm</think>" + CALLS[JSON]) == Reply(CALLS[JSON], "hm")
    assert form.thinks([("<think>\n", True)])
    assert not form.thinks([("<think>\n\n</think>\n\n", True)])


def test_a_template_with_neither() -> None:
    assert format_of("{{ messages }}") is None
    assert format_of(None) is None
