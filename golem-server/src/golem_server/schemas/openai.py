"""Chat completions, completions, models, embeddings and sound, as OpenAI's clients know them."""

from __future__ import annotations

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

# What both text APIs take, and llama.cpp's extras.
COMMON: dict[str, Schema] = {
    "model": says(maybe(TEXT), "the id of a model; the server's own choice where absent"),
    "max_tokens": maybe(says(INT, "the most tokens of an answer; -1: what fits")),
    "n": maybe(number(1, 128, "integer")),
    "seed": maybe(INT),
    "stop": maybe(either(TEXT, {**array(TEXT), "maxItems": 4})),
    "stream": maybe(BOOL),
    "stream_options": maybe(obj(include_usage=BOOL, include_obfuscation=BOOL)),
    "temperature": maybe(number(0, 100)),
    "top_p": maybe(number(0, 1)),
    "top_k": maybe(INT),
    "min_p": maybe(number(0, 1)),
    "typical_p": maybe(number(0, 1)),
    "repeat_penalty": maybe(number(0.01, 100)),
    "frequency_penalty": maybe(number(-100, 100)),
    "presence_penalty": maybe(number(-100, 100)),
    "repeat_last_n": maybe(says(INT, "the last tokens that penalties look at; -1: all")),
    "logit_bias": maybe(says(OBJECT, "token ids to -100 (never) … 100 (only this)")),
    "ignore_eos": maybe(BOOL),
    "cache_prompt": maybe(BOOL),
    "grammar": maybe(says(TEXT, "in GBNF or Lark")),
    "json_schema": maybe(says(OBJECT, "a JSON Schema that the answer must match")),
    "response_format": maybe(ref("ResponseFormat")),
}

SCHEMAS: dict[str, Schema] = {
    "Error": obj(
        "error",
        error=obj(
            "message type param code",
            message=TEXT,
            type=TEXT,
            param=maybe(TEXT),
            code=maybe(either(TEXT, INT)),
        ),
    ),
    "ResponseFormat": obj(
        "type",
        type=one("text", "json_object", "json_schema"),
        json_schema=obj("schema", name=TEXT, schema=OBJECT),
    ),
    "Tool": obj(
        "type function",
        type=one("function"),
        function=obj(
            "name",
            name={"type": "string", "minLength": 1, "maxLength": 128},
            description=TEXT,
            parameters=says(OBJECT, "a JSON Schema of the arguments"),
        ),
    ),
    "ToolCall": obj(
        "id type function",
        id=TEXT,
        type=one("function"),
        function=obj("name arguments", name=TEXT, arguments=says(TEXT, "JSON")),
    ),
    "ChatMessage": obj(
        "role",
        role=one("system", "developer", "user", "assistant", "tool"),
        content=maybe(either(TEXT, array(obj("type", type=TEXT)))),
        name=TEXT,
        reasoning_content=maybe(TEXT),
        tool_calls=array(ref("ToolCall")),
        tool_call_id=TEXT,
    ),
    "ChatRequest": obj(
        "messages",
        messages=array(ref("ChatMessage"), 1),
        max_completion_tokens=maybe(INT),
        tools=array(ref("Tool")),
        tool_choice=either(
            one("auto", "none", "required"),
            obj("type function", type=one("function"), function=obj("name", name=TEXT)),
        ),
        parallel_tool_calls=maybe(BOOL),
        logprobs=maybe(BOOL),
        top_logprobs=maybe(number(0, 20, "integer")),
        reasoning_effort=maybe(TEXT),
        chat_template_kwargs=maybe(OBJECT),
        **COMMON,
    ),
    "Usage": obj(
        "prompt_tokens completion_tokens total_tokens",
        prompt_tokens=COUNT,
        completion_tokens=COUNT,
        total_tokens=COUNT,
        prompt_tokens_details=obj("cached_tokens", cached_tokens=COUNT),
        completion_tokens_details=obj("reasoning_tokens", reasoning_tokens=COUNT),
    ),
    "Timings": obj(
        "prompt_n prompt_ms predicted_n predicted_ms",
        cache_n=COUNT,
        prompt_n=COUNT,
        prompt_ms=NUMBER,
        predicted_n=COUNT,
        predicted_ms=NUMBER,
    ),
    "TokenLogprob": obj(
        "token logprob bytes top_logprobs",
        token=TEXT,
        logprob=NUMBER,
        bytes=array(number(0, 255, "integer")),
        top_logprobs=array(
            obj("token logprob bytes", token=TEXT, logprob=NUMBER, bytes=array(INT))
        ),
    ),
    "ChatCompletion": obj(
        "id object created model choices usage",
        id=TEXT,
        object=one("chat.completion"),
        created=INT,
        model=TEXT,
        system_fingerprint=TEXT,
        choices=array(
            obj(
                "index message finish_reason logprobs",
                index=COUNT,
                message=obj(
                    "role content",
                    role=one("assistant"),
                    content=maybe(TEXT),
                    reasoning_content=TEXT,
                    tool_calls=array(ref("ToolCall")),
                ),
                finish_reason=one("stop", "length", "tool_calls"),
                logprobs=maybe(obj("content", content=array(ref("TokenLogprob")))),
            ),
            1,
        ),
        usage=ref("Usage"),
        timings=ref("Timings"),
    ),
    "ChatChunk": obj(
        "id object created model choices",
        id=TEXT,
        object=one("chat.completion.chunk"),
        created=INT,
        model=TEXT,
        choices=array(obj("index delta", index=COUNT, delta=OBJECT, finish_reason=maybe(TEXT))),
        usage=maybe(ref("Usage")),
        timings=ref("Timings"),
    ),
    "CompletionRequest": obj(
        "prompt",
        prompt=either(TEXT, array(TEXT, 1), array(COUNT, 1), array(array(COUNT, 1), 1)),
        echo=maybe(BOOL),
        logprobs=maybe(number(0, 20, "integer")),
        **COMMON,
    ),
    "Completion": obj(
        "id object created model choices usage",
        id=TEXT,
        object=one("text_completion"),
        created=INT,
        model=TEXT,
        choices=array(
            obj(
                "index text finish_reason logprobs",
                index=COUNT,
                text=TEXT,
                finish_reason=one("stop", "length"),
                logprobs=maybe(OBJECT),
            ),
            1,
        ),
        usage=ref("Usage"),
        timings=ref("Timings"),
    ),
    "Model": obj(
        "id object created owned_by", id=TEXT, object=one("model"), created=INT, owned_by=TEXT
    ),
    "ModelList": obj("object data", object=one("list"), data=array(ref("Model"))),
    "EmbeddingRequest": obj(
        "input",
        model=maybe(TEXT),
        input=either(TEXT, array(TEXT), array(COUNT), array(array(COUNT))),
        encoding_format=maybe(one("float", "base64")),
        dimensions=maybe(INT),
        truncate=maybe(BOOL),
        prompt_name=maybe(TEXT),
    ),
    "EmbeddingList": obj(
        "object data model usage",
        object=one("list"),
        data=array(
            obj(
                "object index embedding",
                object=one("embedding"),
                index=COUNT,
                embedding=either(array(NUMBER), TEXT),
            )
        ),
        model=TEXT,
        usage=OBJECT,
    ),
    "RerankRequest": obj(
        "query documents",
        model=maybe(TEXT),
        query=TEXT,
        documents=array(either(TEXT, OBJECT), 1),
        top_n=maybe(INT),
        return_documents=maybe(BOOL),
    ),
    "RerankList": obj(
        "object model results usage",
        object=one("list"),
        model=TEXT,
        results=array(obj("index relevance_score", index=COUNT, relevance_score=NUMBER)),
        usage=OBJECT,
    ),
    "TranscriptionRequest": obj(
        "file", file={"type": "string", "format": "binary"}, model=TEXT, language=TEXT
    ),
}
