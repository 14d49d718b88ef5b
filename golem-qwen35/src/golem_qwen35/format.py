"""How Qwen3.5 writes thoughts and calls.

    <think>
    The user wants the weather.
    </think>

    <tool_call>
    <function=weather>
    <parameter=city>
    Oslo
    </parameter>
    </function>
    </tool_call>

The template opens the thought itself, at the end of the prompt, unless thinking is off. A parameter
has no quotes: the tool's schema says whether ``12`` is a number. A file whose template writes calls
as JSON, as fine-tuned ones may, is read so.
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
