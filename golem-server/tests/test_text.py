"""Text to ids and back, and conversations as the model reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from golem_core.testing.tiny import TEMPLATE
from golem_core.text import Template


async def post(server: Any, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as client,
        client.post(server.url + path, json=body) as answer,
    ):
        return answer.status, await answer.json()


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_there_and_back(serve: Any, tiny_model: Path, prefix: str) -> None:
    text = "the äöü 🜂 end"
    async with serve(tiny_model) as server:
        status, found = await post(server, f"{prefix}/tokenize", {"content": text})
        assert status == 200
        assert found["count"] == len(found["tokens"])
        assert found["max_model_len"] == 512
        assert found["tokens"] == server.models.loaded()[0].model.tokenizer.encode(text)
        back = await post(server, f"{prefix}/detokenize", {"tokens": found["tokens"]})
        assert back == (200, {"content": text, "prompt": text})


async def test_special_tokens(
    serve: Any, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tiny_model) as server:
        model = server.models.loaded()[0].model
        monkeypatch.setattr(model.tokenizer, "add_bos", True)
        begin, end = model.tokenizer.special_id("<|begin|>"), model.tokenizer.special_id("<|end|>")
        plain = model.tokenizer.encode("ab")

        async def ids(**body: Any) -> list[int]:
            status, found = await post(server, "/tokenize", body)
            assert status == 200
            tokens: list[int] = found["tokens"]
            return tokens

        assert model.tokenizer.encode("ab", bos=True) == [begin, *plain]
        assert await ids(content="ab") == plain
        assert await ids(content="ab", add_special=True) == [begin, *plain]
        assert await ids(prompt="ab") == [begin, *plain]
        assert await ids(prompt="ab", add_special_tokens=False) == plain
        assert await ids(content="<|end|>") == [end]
        assert await ids(content="<|end|>", parse_special=False) == model.tokenizer.encode(
            "<|end|>"
        )
        talk = [{"role": "user", "content": "ab <|end|>"}]
        assert await ids(messages=talk) == model.chat_ids(talk)
        assert (await ids(messages=talk)).count(end) == 1  # what is written is no token


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("adds", [True, False])
async def test_a_conversation_begins_once(
    serve: Any, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, written: bool, adds: bool
) -> None:
    """Whoever writes the token that begins a text: the template, the tokenizer, the client."""
    talk = [{"role": "user", "content": "ab"}]
    async with serve(tiny_model) as server:
        model = server.models.loaded()[0].model
        monkeypatch.setattr(model.tokenizer, "add_bos", adds)
        template = TEMPLATE if written else TEMPLATE.removeprefix("<|begin|>")
        monkeypatch.setattr(model, "template", Template(template))
        begin = model.tokenizer.special_id("<|begin|>")
        _, rendered = await post(server, "/apply-template", {"messages": talk})
        assert rendered["prompt"].startswith("<|begin|>") == written
        for body in (
            {"content": rendered["prompt"], "add_special": True},
            {"prompt": rendered["prompt"]},
            {"messages": talk},
        ):
            _, found = await post(server, "/tokenize", body)
            begins = [at for at, token in enumerate(found["tokens"]) if token == begin]
            assert begins == ([0] if written or adds else [])
        body = {"messages": talk, "max_tokens": 1}
        _, answer = await post(server, "/v1/chat/completions", body)
        assert answer["usage"]["prompt_tokens"] == found["count"]
        plain = model.tokenizer.encode("ab")
        for prompt in ("ab", "<|begin|>ab"):
            _, answer = await post(server, "/v1/completions", {"prompt": prompt, "max_tokens": 1})
            begins = adds or prompt != "ab"
            assert answer["usage"]["prompt_tokens"] == len(plain) + begins


async def test_pieces(serve: Any, tiny_model: Path) -> None:
    async with serve(tiny_model) as server:
        _, found = await post(server, "/tokenize", {"content": "theä", "with_pieces": True})
        pieces = [token["piece"] for token in found["tokens"]]
        assert pieces == ["the", [0xC3], [0xA4]]
        assert all(isinstance(token["id"], int) for token in found["tokens"])
        _, found = await post(server, "/tokenize", {"content": "", "with_pieces": True})
        assert found == {"tokens": [], "count": 0, "max_model_len": 512}


async def test_templates(serve: Any, tiny_model: Path) -> None:
    talk = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    async with serve(tiny_model) as server:
        assert await post(server, "/apply-template", {"messages": talk}) == (
            200, {"prompt": "<|begin|><|system|>S<|end|><|user|>U<|end|><|assistant|>"},
        )  # fmt: skip
        body = {"messages": talk, "add_generation_prompt": False}
        _, found = await post(server, "/apply-template", body)
        assert found["prompt"].endswith("U<|end|>")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": 1}, "content"),
        ("/tokenize", {"content": "a", "add_special": "yes"}, "add_special"),
        ("/tokenize", {"content": "\ud800"}, None),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "ab"}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [10**30]}, "tokens[0]"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/apply-template", {}, "messages"),
        ("/apply-template", {"messages": []}, "messages"),
        ("/apply-template", {"messages": [{"role": "foo", "content": ""}]}, "messages[0].role"),
        ("/apply-template", {"messages": [{"role": "user", "content": "a"}],
                             "chat_template_kwargs": []}, "chat_template_kwargs"),
        ("/apply-template", {"messages": [{"role": "user", "content": "a"}],
                             "chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_named(
    serve: Any, tiny_model: Path, path: str, body: dict[str, Any], param: str | None
) -> None:
    async with serve(tiny_model) as server:
        status, found = await post(server, path, body)
        assert status == 400, found
        assert found["error"]["type"] == "invalid_request_error"
        if param is not None:
            assert found["error"]["param"] == param
