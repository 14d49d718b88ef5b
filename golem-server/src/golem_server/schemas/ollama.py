"""The API of ollama."""

from __future__ import annotations

from golem_server.dialects.ollama_request import EFFORTS, PLACEMENT, SAMPLING, WITHOUT
from golem_server.schemas.words import (
    ANY,
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

CALL = obj("function", id=TEXT, function=obj("name", name=TEXT, arguments=OBJECT))
REQUEST: dict[str, Schema] = {
    "model": says(TEXT, "the id of a model, with or without :latest"),
    "stream": maybe(says(BOOL, "true where absent")),
    "format": maybe(either(one("json", ""), says(OBJECT, "a JSON Schema"))),
    "options": maybe(ref("Options")),
    "think": maybe(either(BOOL, one(*EFFORTS))),
    "keep_alive": maybe(
        says(either(NUMBER, TEXT), "seconds, or 5m, 1h30m; 0: unload after it; below 0: stay")
    ),
    "logprobs": maybe(BOOL),
    "top_logprobs": maybe(number(0, 20, "integer")),
}
NUMBERS: dict[str, Schema] = {
    "done": BOOL,
    "done_reason": one("stop", "length", "load", "unload"),
    "total_duration": says(COUNT, "nanoseconds, as all durations"),
    "load_duration": COUNT,
    "prompt_eval_count": COUNT,
    "prompt_eval_duration": COUNT,
    "eval_count": COUNT,
    "eval_duration": COUNT,
    "logprobs": array(ref("TokenLogprob")),
}
DETAILS = obj(
    parent_model=TEXT,
    format=TEXT,
    family=TEXT,
    families=array(TEXT),
    parameter_size=TEXT,
    quantization_level=TEXT,
)
ENTRY: dict[str, Schema] = {
    "name": TEXT,
    "model": TEXT,
    "size": COUNT,
    "digest": says(TEXT, "a stable id of the file, not the sum of its content"),
    "details": DETAILS,
}

SCHEMAS: dict[str, Schema] = {
    "OllamaError": obj("error", error=TEXT),
    "Options": {
        **obj(
            num_predict=says({"type": "integer", "minimum": -2}, "below 0: what fits"),
            num_ctx=says({"type": "integer", "minimum": 1}, "at most the server's --context"),
            stop=either(TEXT, {**array(TEXT), "maxItems": 4}),
            **{name: INT if kind is int else NUMBER for name, (kind, _) in SAMPLING.items()},
            **{name: says(ANY, "changes no text; ignored") for name in PLACEMENT},
            **{name: says(ANY, "only as it is when left out") for name in WITHOUT},
        ),
        "additionalProperties": False,
    },
    "OllamaMessage": obj(
        "role",
        role=one("system", "user", "assistant", "tool"),
        content=TEXT,
        thinking=TEXT,
        tool_calls=array(CALL),
        tool_name=TEXT,
        tool_call_id=TEXT,
    ),
    "OllamaChatRequest": obj(
        "model",
        **REQUEST,
        messages=says(array(ref("OllamaMessage")), "empty: the model is only loaded"),
        tools=array(ref("Tool")),
    ),
    "OllamaChat": obj(
        "model created_at message done",
        model=TEXT,
        created_at=TEXT,
        message=ref("OllamaMessage"),
        **NUMBERS,
    ),
    "GenerateRequest": obj(
        "model",
        **REQUEST,
        prompt=says(TEXT, "empty: the model is only loaded"),
        system=TEXT,
        raw=says(BOOL, "without the chat template"),
    ),
    "Generated": obj(
        "model created_at response done",
        model=TEXT,
        created_at=TEXT,
        response=TEXT,
        thinking=TEXT,
        **NUMBERS,
    ),
    "OllamaEmbedRequest": obj(
        "model input",
        model=TEXT,
        input=either(TEXT, array(TEXT)),
        dimensions=maybe(INT),
        truncate=maybe(BOOL),
    ),
    "OllamaEmbedList": obj(
        "model embeddings", model=TEXT, embeddings=array(array(NUMBER)), prompt_eval_count=COUNT
    ),
    "Tags": obj(
        "models",
        models=array(obj("name model modified_at size digest details", **ENTRY, modified_at=TEXT)),
    ),
    "Running": obj(
        "models",
        models=array(
            obj(
                "name model size digest details expires_at size_vram context_length",
                **ENTRY,
                expires_at=TEXT,
                size_vram=COUNT,
                context_length=COUNT,
            )
        ),
    ),
    "ShowRequest": obj("model", model=TEXT, verbose=BOOL),
    "Shown": obj(
        "modelfile parameters template details model_info capabilities",
        modelfile=TEXT,
        parameters=TEXT,
        template=TEXT,
        license=TEXT,
        details=DETAILS,
        model_info=OBJECT,
        capabilities=array(one("completion", "tools", "thinking")),
        modified_at=TEXT,
    ),
    "Version": obj("version golem", version=TEXT, golem=TEXT),
}
