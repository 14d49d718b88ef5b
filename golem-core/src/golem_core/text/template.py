"""A file's chat template: a conversation as the text that the model was trained on.

The result keeps apart what the template wrote and what it was given (`marked.py`); a tokenizer
finds control tokens in the first only. Templates are programs from anywhere, so they run in a
sandbox (`sandbox.py`) within a budget (`budget.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from golem_core.errors import BadRequest, BadWeights, GolemError
from golem_core.text.budget import Budget
from golem_core.text.marked import Marked, joined
from golem_core.text.messages import checked, length, plain
from golem_core.text.vocabulary import HasMetadata

_KEY = "tokenizer.chat_template"
_LONGEST = 1 << 18


class Template:
    """One chat template. Threads may share it."""

    def __init__(self, source: str, *, bos: str = "", eos: str = "", name: str = "") -> None:
        """`bos` and `eos` are the texts of those tokens; `name` is for messages about errors.

        Raises BadWeights for a template that is no Jinja or over 256 KiB.
        """
        # Here, because it takes as long as reading the header of a file.
        from jinja2 import TemplateSyntaxError

        from golem_core.text.sandbox import Sandbox

        self.source = source
        self._name = name or "the file's chat template"
        self._sandbox = Sandbox()
        self._tokens = {"bos_token": Marked.trusted(bos), "eos_token": Marked.trusted(eos)}
        if len(source) > _LONGEST:
            raise BadWeights(
                f"{self._name} has {len(source)} characters; expected at most {_LONGEST}"
            )
        try:
            self._template = self._sandbox.from_string(source)
        except TemplateSyntaxError as error:
            raise BadWeights(
                f"{self._name} is no valid template: {error.message} (line {error.lineno})"
            ) from None
        except (RecursionError, MemoryError, SyntaxError, ValueError, OverflowError) as error:
            raise BadWeights(f"{self._name} cannot be compiled: {error}") from None

    @classmethod
    def from_weights(cls, weights: HasMetadata, name: str | None = None) -> Template | None:
        """The template that a file carries, or None if it carries none.

        `name` chooses a named variant (``tokenizer.chat_template.NAME``), such as ``tool_use``.
        Raises BadWeights for one that cannot be used, and for a name that the file does not have.
        """
        metadata = weights.metadata
        key = _KEY if name is None else f"{_KEY}.{name}"
        source = metadata.get(key)
        if source is None:
            if name is None:
                return None
            names = [k.removeprefix(f"{_KEY}.") for k in metadata if k.startswith(f"{_KEY}.")]
            raise BadWeights(
                f"the file has no chat template named {name!r}; it has {', '.join(names) or 'none'}"
            )
        if not isinstance(source, str):
            raise BadWeights(f"{key} is {type(source).__name__}; expected a text")
        bos = _token_text(metadata, "tokenizer.ggml.bos_token_id")
        eos = _token_text(metadata, "tokenizer.ggml.eos_token_id")
        return cls(source, bos=bos, eos=eos, name=key)

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> list[tuple[str, bool]]:
        """The conversation as (text, trusted) pieces; neighbours differ in trust.

        `developer` is `system`, and leading system messages are one. A template that knows no
        system message, or leaves it out, gets its text at the head of the first user message.
        `variables` are what a template may look at besides, such as `enable_thinking`.

        Raises BadRequest: a message that cannot be (``messages[0].role``), the template's own
        words where it refuses the conversation, or a template that did too much.
        """
        conversation = checked(messages)
        values: dict[str, Any] = {
            "tools": plain(tools, "tools") if tools else None,
            "documents": None,
            **plain(variables, "variables"),
            "add_generation_prompt": add_generation_prompt,
        }
        system = conversation[0]["content"] if conversation[0]["role"] == "system" else None
        try:
            text = self._filled(conversation, values)
        except BadRequest:
            if not system:
                raise
            text = None
        if system and (text is None or not _said(system, text)):
            try:
                text = self._filled(_folded(conversation), values)
            except BadRequest:
                # What the template says of the conversation as it was given is what helps.
                text = self._filled(conversation, values) if text is None else text
        assert text is not None
        for i, message in enumerate(conversation):
            if message["role"] == "system" and not _said(message["content"], text):
                raise BadRequest(
                    f"{self._name} leaves out the system message at messages[{i}]; put it first",
                    f"messages[{i}]",
                )
        return list(text.runs())

    def _filled(self, messages: list[dict[str, Any]], values: Mapping[str, Any]) -> Marked:
        """As `_run`; a template that cannot look into an absent content is given an empty one."""
        try:
            return self._run(messages, values)
        except BadRequest:
            filled = [{**m, "content": ""} if m["content"] is None else m for m in messages]
            if filled == messages:
                raise
            return self._run(filled, values)

    def _run(self, messages: list[dict[str, Any]], values: Mapping[str, Any]) -> Marked:
        from golem_core.text.sandbox import Rejected

        given = length(messages) + length(dict(values)) + len(self.source)
        self._sandbox.budget = Budget(given)
        context = self._template.new_context({**self._tokens, **values, "messages": messages})
        parts: list[str] = []
        try:
            for part in self._template.root_render_func(context):
                self._sandbox.budget.spend(len(part))
                parts.append(part)
        except Rejected as error:
            raise BadRequest(str(error), "messages") from None
        except GolemError:
            raise
        except RecursionError:
            raise BadRequest(f"{self._name} calls itself without end", "messages") from None
        except Exception as error:  # a template can raise whatever Python can
            raise BadRequest(
                f"{self._name} cannot render these messages: {error}", "messages"
            ) from None
        return joined(parts)


def _said(system: Any, text: str) -> bool:
    return not isinstance(system, str) or system.strip() in text


def _folded(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the system message at the head of the first user message."""
    system, *rest = messages
    for i, message in enumerate(rest):
        if message["role"] == "user" and isinstance(message["content"], str):
            content = f"{system['content']}\n\n{message['content']}"
            return [*rest[:i], {**message, "content": content}, *rest[i + 1 :]]
    return [{"role": "user", "content": system["content"]}, *rest]


def _token_text(metadata: Mapping[str, object], key: str) -> str:
    token = metadata.get(key)
    texts = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(token, (int, np.integer)) or not isinstance(texts, Sequence):
        return ""
    return str(texts[int(token)]) if 0 <= token < len(texts) else ""
