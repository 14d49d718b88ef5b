"""OpenAI's Responses."""

from __future__ import annotations

from golem_server.dialects.response_request import EFFORTS, INCLUDES
from golem_server.schemas.words import (
    BOOL,
    COUNT,
    INT,
    NUMBER,
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

PARTS = either(
    TEXT,
    array(
        either(
            obj("type text", type=one("input_text", "output_text"), text=TEXT),
            obj("type refusal", type=one("refusal"), refusal=TEXT),
        )
    ),
)
REQUEST: dict[str, Schema] = {
    "model": says(maybe(TEXT), "the id of a model; the server's own choice where absent"),
    "input": either(TEXT, array(ref("InputItem"), 1)),
    "instructions": maybe(says(TEXT, "a system message before the input")),
    "tools": array(ref("FunctionTool")),
    "tool_choice": either(
        one("auto", "none", "required"),
        obj("type name", type=one("function"), name=TEXT),
        obj(
            "type mode tools",
            type=one("allowed_tools"),
            mode=one("auto", "required"),
            tools=array(obj("type name", type=one("function"), name=TEXT)),
        ),
    ),
    "parallel_tool_calls": maybe(BOOL),
    "text": obj(format=ref("TextFormat"), verbosity=one("medium")),
    "reasoning": maybe(
        obj(
            effort=maybe(says(one(*EFFORTS), "none does not think; others are for the template")),
            summary=maybe(says(one("auto", "concise", "detailed"), "thoughts are given whole")),
        )
    ),
    "previous_response_id": says({"type": "null"}, "responses are not kept: send the whole input"),
}

SCHEMAS: dict[str, Schema] = {
    "FunctionTool": obj(
        "type name",
        type=one("function"),
        name=TEXT,
        description=maybe(TEXT),
        parameters=maybe(says(OBJECT, "a JSON Schema of the arguments")),
        strict=maybe(BOOL),
    ),
    "TextFormat": either(
        obj("type", type=one("text", "json_object")),
        obj("type name schema", type=one("json_schema"), name=TEXT, schema=OBJECT),
    ),
    "InputItem": either(
        obj(
            "role content",
            type=one("message"),
            role=one("user", "assistant", "system", "developer"),
            content=PARTS,
        ),
        obj(
            "type",
            type=one("reasoning"),
            summary=array(obj("text", text=TEXT)),
            content=maybe(array(obj("text", text=TEXT))),
        ),
        obj(
            "type call_id name arguments",
            type=one("function_call"),
            call_id=TEXT,
            name=TEXT,
            arguments=says(TEXT, "JSON"),
        ),
        obj(
            "type call_id output",
            type=one("function_call_output"),
            call_id=says(TEXT, "that of a function_call before it"),
            output=PARTS,
        ),
    ),
    "ResponseRequest": obj(
        "input",
        **REQUEST,
        max_output_tokens=maybe({"type": "integer", "minimum": 1}),
        temperature=maybe(number(0, 100)),
        top_p=maybe(number(0, 1)),
        top_logprobs=maybe(number(0, 20, "integer")),
        include=maybe(array(one(*INCLUDES))),
        stream=maybe(BOOL),
        store=maybe(says(BOOL, "nothing is ever kept; the response says store false")),
        truncation=maybe(says(one("auto", "disabled"), "nothing is ever left out of an input")),
        metadata=maybe(OBJECT),
        user=maybe(TEXT),
    ),
    "InputTokensRequest": obj("input", **REQUEST),
    "InputTokens": obj(
        "object input_tokens", object=one("response.input_tokens"), input_tokens=COUNT
    ),
    "OutputItem": either(
        obj(
            "id type role status content",
            id=TEXT,
            type=one("message"),
            role=one("assistant"),
            status=one("in_progress", "completed", "incomplete"),
            content=array(
                obj(
                    "type text annotations logprobs",
                    type=one("output_text"),
                    text=TEXT,
                    annotations={"type": "array", "maxItems": 0},
                    logprobs=array(ref("TokenLogprob")),
                )
            ),
        ),
        obj(
            "id type summary content status",
            id=TEXT,
            type=one("reasoning"),
            summary={"type": "array", "maxItems": 0},
            content=array(obj("type text", type=one("reasoning_text"), text=TEXT)),
            status=one("in_progress", "completed", "incomplete"),
        ),
        obj(
            "id type call_id name arguments status",
            id=TEXT,
            type=one("function_call"),
            call_id=TEXT,
            name=TEXT,
            arguments=says(TEXT, "JSON"),
            status=one("in_progress", "completed", "incomplete"),
        ),
    ),
    "Response": obj(
        "id object created_at status model output error incomplete_details "
        "parallel_tool_calls tool_choice tools store previous_response_id",
        id=TEXT,
        object=one("response"),
        created_at=INT,
        completed_at=maybe(INT),
        status=one("in_progress", "completed", "incomplete", "failed"),
        model=TEXT,
        output=array(ref("OutputItem")),
        error=maybe(obj("code message", code=TEXT, message=TEXT)),
        incomplete_details=maybe(obj("reason", reason=one("max_output_tokens"))),
        usage=says(
            obj(
                "input_tokens input_tokens_details output_tokens output_tokens_details "
                "total_tokens",
                input_tokens=COUNT,
                input_tokens_details=obj("cached_tokens", cached_tokens=COUNT),
                output_tokens=COUNT,
                output_tokens_details=obj("reasoning_tokens", reasoning_tokens=COUNT),
                total_tokens=COUNT,
            ),
            "of an answer that has ended",
        ),
        parallel_tool_calls=BOOL,
        temperature=maybe(NUMBER),
        top_p=maybe(NUMBER),
        tools=array(OBJECT),
        store={"const": False},
        previous_response_id={"type": "null"},
    ),
    "ResponseEvent": obj(
        "type sequence_number",
        type=says(TEXT, "response.created, response.output_text.delta, response.completed, …"),
        sequence_number=COUNT,
        response=ref("Response"),
        output_index=COUNT,
        content_index=COUNT,
        item_id=TEXT,
        item=ref("OutputItem"),
        delta=TEXT,
    ),
}
