"""An answer as content blocks of Anthropic's Messages, and the events of its stream.

    message_start ─ ping ─┬─ content_block_start ─ content_block_delta… ─ content_block_stop ─┐
                          └─────────────────────────── next block ◄───────────────────────────┘
                                                              message_delta ─ message_stop

An answer that is not streamed goes the same way; its events are not sent.
"""

from __future__ import annotations

import json
from typing import Any

from golem_core.text import Call, Content, Thought

Json = dict[str, Any]

# How a block of each kind begins, and what a piece of its text is called.
BLOCKS: dict[str, tuple[Json, str, str]] = {
    "text": ({"type": "text", "text": "", "citations": None}, "text_delta", "text"),
    "thinking": (
        {"type": "thinking", "thinking": "", "signature": ""},
        "thinking_delta",
        "thinking",
    ),
}
# What is said of the end of a message, before there is one; golem has no containers and its models
# give no details of why they stop.
NOT_ENDED: Json = {
    "container": None,
    "stop_details": None,
    "stop_reason": None,
    "stop_sequence": None,
}


class MessageEvents:
    """Builds one message; each method gives the events that it causes, in order.

    message   the object with what is known before the answer: id, model, usage of the prompt
    thoughts  give their text; False: a thought is an empty block
    """

    def __init__(self, message: Json, *, thoughts: bool = True) -> None:
        self.message = message
        self._thoughts = thoughts
        self._open: str | None = None  # the kind of the block that is being written
        self._text: list[str] = []  # of it

    def begin(self) -> list[Json]:
        """The events before the first word."""
        start = {**self.message, "content": []}
        return [{"type": "message_start", "message": start}, {"type": "ping"}]

    def take(self, part: Content | Thought | Call) -> list[Json]:
        """A further part of the answer."""
        if isinstance(part, Call):
            return self._call(part)
        if isinstance(part, Thought):
            return self._write("thinking", part.text if self._thoughts else "")
        return self._write("text", part.text)

    def end(self, reason: str, usage: Json, stop_sequence: str | None = None) -> list[Json]:
        """The answer is over, for `reason` ``stop`` or ``length``; `usage` is of all of it."""
        sent = self._close()
        if reason == "length":
            stop = "max_tokens"
        elif stop_sequence is not None:
            stop = "stop_sequence"
        elif any(block["type"] == "tool_use" for block in self._blocks):
            stop = "tool_use"
        else:
            stop = "end_turn"
        delta = {**NOT_ENDED, "stop_reason": stop, "stop_sequence": stop_sequence}
        self.message |= {**delta, "usage": usage}
        return [
            *sent,
            {"type": "message_delta", "delta": delta, "usage": usage},
            {"type": "message_stop"},
        ]

    @property
    def _blocks(self) -> list[Json]:
        blocks: list[Json] = self.message["content"]
        return blocks

    def _start(self, block: Json) -> Json:
        self._blocks.append(block)
        return {
            "type": "content_block_start",
            "index": len(self._blocks) - 1,
            "content_block": {**block},
        }

    def _delta(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}

    def _write(self, kind: str, text: str) -> list[Json]:
        begin, delta, field = BLOCKS[kind]
        sent: list[Json] = []
        if self._open != kind:
            sent = [*self._close(), self._start({**begin})]
            self._open, self._text = kind, []
        if text:
            self._text.append(text)
            sent.append(self._delta({"type": delta, field: text}))
        return sent

    def _close(self) -> list[Json]:
        """Ends the block that is being written, if one is."""
        kind, self._open = self._open, None
        if kind is None:
            return []
        self._blocks[-1][BLOCKS[kind][2]] = "".join(self._text)
        sent: list[Json] = []
        if kind == "thinking":
            sent.append(self._delta({"type": "signature_delta", "signature": ""}))
        return [*sent, {"type": "content_block_stop", "index": len(self._blocks) - 1}]

    def _call(self, call: Call) -> list[Json]:
        sent = self._close()
        block: Json = {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": {},
            "caller": {"type": "direct"},  # the model itself, and no code that it wrote
        }
        sent.append(self._start(block))
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        sent.append(self._delta({"type": "input_json_delta", "partial_json": arguments}))
        block["input"] = call.arguments
        sent.append({"type": "content_block_stop", "index": len(self._blocks) - 1})
        return sent
