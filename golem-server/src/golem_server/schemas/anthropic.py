"""Anthropic's Messages."""

from __future__ import annotations

from golem_server.dialects.anthropic_request import EFFORTS
from golem_server.schemas.words import (
    BOOL,
    COUNT,
    INT,
    OBJECT,
    TEXT,
    Schema,
    array,
    either,
    maybe,
    number,
    obj,
    one,
    ref,
    says,
)

TEXT_BLOCK = obj("type text", type=one("text"), text=TEXT)
CHOICE = obj(
    "type",
    type=one("auto", "any", "tool", "none"),
    name=says(TEXT, "of the tool, where type is tool"),
    disable_parallel_tool_use=BOOL,
)
PROMPT: dict[str, Schema] = {
    "model": TEXT,
    "messages": array(ref("MessageParam"), 1),
    "system": either(TEXT, array(TEXT_BLOCK)),
    "tools": array(ref("MessageTool")),
    "tool_choice": CHOICE,
    "thinking": obj(
        "type",
        type=one("enabled", "disabled", "adaptive"),
        budget_tokens=says(
            {"type": "integer", "minimum": 1},
            "taken and not kept to: thoughts count towards max_tokens, which is",
        ),
        display=maybe(one("summarized", "omitted")),
    ),
    "output_config": obj(
        effort=maybe(says(one(*EFFORTS), "for the template")),
        format=maybe(obj("type schema", type=one("json_schema"), schema=OBJECT)),
    ),
}

SCHEMAS: dict[str, Schema] = {
    "MessagesError": obj(
        "type error request_id",
        type=one("error"),
        error=obj("type message", type=TEXT, message=TEXT),
        request_id=maybe(TEXT),
    ),
    "MessageTool": obj(
        "name input_schema",
        type=maybe(one("custom")),
        name=TEXT,
        description=TEXT,
        input_schema=says(OBJECT, "a JSON Schema of the input"),
        strict=BOOL,
    ),
    "MessageParam": obj(
        "role content",
        role=says(one("user", "assistant", "system"), "the last is not the assistant's"),
        content=either(
            TEXT,
            array(
                either(
                    TEXT_BLOCK,
                    obj("type thinking", type=one("thinking"), thinking=TEXT, signature=TEXT),
                    obj(
                        "type id name input", type=one("tool_use"), id=TEXT, name=TEXT, input=OBJECT
                    ),
                    obj(
                        "type tool_use_id",
                        type=one("tool_result"),
                        tool_use_id=says(TEXT, "that of a tool_use before it"),
                        content=either(TEXT, array(TEXT_BLOCK)),
                        is_error=BOOL,
                    ),
                )
            ),
        ),
    ),
    "MessageRequest": obj(
        "model messages max_tokens",
        **PROMPT,
        max_tokens={"type": "integer", "minimum": 1},
        stop_sequences={**array({"type": "string", "minLength": 1}), "maxItems": 4},
        temperature=number(0, 100),
        top_p=number(0, 1),
        top_k=COUNT,
        stream=BOOL,
        metadata=OBJECT,
    ),
    "CountTokensRequest": obj("model messages", **PROMPT),
    "TokenCount": obj("input_tokens", input_tokens=COUNT),
    "MessageUsage": obj(
        "input_tokens output_tokens",
        input_tokens=says(COUNT, "without those that were known already"),
        cache_creation_input_tokens=COUNT,
        cache_read_input_tokens=COUNT,
        output_tokens=COUNT,
    ),
    "Message": obj(
        "id type role model content stop_reason stop_sequence usage",
        id=TEXT,
        type=one("message"),
        role=one("assistant"),
        model=TEXT,
        content=array(
            either(
                TEXT_BLOCK,
                obj(
                    "type thinking signature",
                    type=one("thinking"),
                    thinking=TEXT,
                    signature=says(TEXT, "empty: thoughts are not signed"),
                ),
                obj("type id name input", type=one("tool_use"), id=TEXT, name=TEXT, input=OBJECT),
            )
        ),
        stop_reason=maybe(one("end_turn", "max_tokens", "stop_sequence", "tool_use")),
        stop_sequence=maybe(TEXT),
        usage=ref("MessageUsage"),
    ),
    "MessageEvent": obj(
        "type",
        type=one(
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
            "error",
        ),
        index=INT,
        message=ref("Message"),
        content_block=OBJECT,
        delta=OBJECT,
        usage=ref("MessageUsage"),
    ),
}
