"""How Qwen's models up to Qwen3 write thoughts and calls.

    <think>
    The user wants the weather.
    </think>

    <tool_call>
    {"name": "weather", "arguments": {"city": "Oslo"}}
    </tool_call>

Qwen2.5 has the calls and no thoughts; Qwen3 Coder writes its calls in tags. What a file does is in
its template.
"""

from __future__ import annotations

from golem_core.text import ChatFormat, JsonCall, TaggedCall

_THOUGHT = ("<think>", "</think>")
_CALL = ("<tool_call>", "</tool_call>")


def format_of(template: object) -> ChatFormat | None:
    """The format of a file with this chat template; None where it has neither."""
    if not isinstance(template, str):
        return None
    thinks, calls = _THOUGHT[1] in template, _CALL[0] in template
    if not thinks and not calls:
        return None
    tagged = "<function=" in template
    return ChatFormat(
        thought=_THOUGHT if thinks else None,
        call=_CALL if calls else None,
        reads=(TaggedCall if tagged else JsonCall) if calls else None,
    )
