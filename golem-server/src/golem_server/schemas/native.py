"""Text and ids, and how the server is: routes of llama.cpp's kind."""

from __future__ import annotations

from golem_server.schemas.words import (
    BOOL,
    COUNT,
    OBJECT,
    TEXT,
    Schema,
    array,
    either,
    maybe,
    obj,
    one,
    ref,
    says,
)

MODEL = says(maybe(TEXT), "the id of a model; the server's own choice where absent")

SCHEMAS: dict[str, Schema] = {
    "TokenizeRequest": either(
        obj(
            "content",
            model=MODEL,
            content=TEXT,
            add_special=says(maybe(BOOL), "the tokens that the file adds; no where absent"),
            parse_special=maybe(BOOL),
            with_pieces=maybe(BOOL),
        ),
        obj("prompt", model=MODEL, prompt=TEXT, add_special_tokens=maybe(BOOL)),
        ref("TemplateRequest"),
    ),
    "Tokens": obj(
        "tokens count max_model_len",
        tokens=array(either(COUNT, obj("id piece", id=COUNT, piece=either(TEXT, array(COUNT))))),
        count=COUNT,
        max_model_len=COUNT,
    ),
    "DetokenizeRequest": obj("tokens", model=MODEL, tokens=array(COUNT)),
    "Detokenized": obj("content prompt", content=TEXT, prompt=TEXT),
    "TemplateRequest": obj(
        "messages",
        model=MODEL,
        messages=array(ref("ChatMessage"), 1),
        tools=maybe(array(ref("Tool"))),
        add_generation_prompt=maybe(BOOL),
        chat_template_kwargs=maybe(OBJECT),
    ),
    "Rendered": obj("prompt", prompt=TEXT),
    "Health": obj("status", status=one("ok")),
    "Props": obj(
        "model_alias total_slots build_info is_sleeping",
        model_alias=TEXT,
        model_path=TEXT,
        total_slots=COUNT,
        build_info=TEXT,
        is_sleeping=says(BOOL, "whether the model is not loaded"),
        chat_template=TEXT,
        capabilities=array(TEXT),
    ),
    "Slots": array(obj("id n_ctx is_processing", id=COUNT, n_ctx=maybe(COUNT), is_processing=BOOL)),
    "Versions": obj("version golem_core", version=TEXT, golem_core=TEXT),
}
