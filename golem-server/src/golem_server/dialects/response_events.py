"""An answer as the output items of OpenAI's Responses, and the events of its stream.

    created ─ in_progress ─┬─ item added ─ part added ─ delta… ─ done ─ part done ─ item done ─┐
                           └──────────────────────── next item ◄───────────────────────────────┘
                                                             completed | incomplete | failed

An answer that is not streamed goes the same way; its events are not sent.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from golem_core.text import Call, Content, Thought

Json = dict[str, Any]


def new_id(prefix: str) -> str:
    """An id unlike any other: ``resp_…``, ``msg_…``, ``fc_…``, ``rs_…``."""
    return f"{prefix}_{uuid.uuid4().hex}"


class ResponseEvents:
    """Builds one response; each method gives the events that it causes, in order.

    response  the object with everything that is known before the answer: id, model, echoes of the
              request; status and output are written here
    """

    def __init__(self, response: Json) -> None:
        self.response = response
        self._number = 0
        self._item: Json | None = None  # the message or thought that is being written
        self._text: list[str] = []
        self._logprobs: list[Json] = []

    def begin(self) -> list[Json]:
        """The events before the first word."""
        self.response["status"] = "in_progress"
        return [self._whole("response.created"), self._whole("response.in_progress")]

    def take(
        self, part: Content | Thought | Call | None, logprobs: Sequence[Json] = ()
    ) -> list[Json]:
        """A further part of the answer; `logprobs` are those of its tokens, or of tokens before."""
        if isinstance(part, Call):
            return self._call(part)
        if isinstance(part, Thought):
            return self._write("reasoning", part.text, ())
        if part is None and self._item is not None and self._item["type"] == "message":
            self._logprobs += logprobs
        return [] if part is None else self._write("message", part.text, logprobs)

    def end(self, reason: str, usage: Json) -> list[Json]:
        """The answer is over, for `reason` ``stop`` or ``length``."""
        cut = reason == "length"
        sent: list[Json] = []
        if not any(item["type"] in ("message", "function_call") for item in self._items):
            sent += self._open("message")
        sent += self._close("incomplete" if cut else "completed")
        self.response["usage"] = usage
        self.response["completed_at"] = None if cut else int(time.time())
        self.response["status"] = "incomplete" if cut else "completed"
        if cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        sent.append(self._whole(f"response.{self.response['status']}"))
        return sent

    def fail(self, code: str, message: str, kind: str) -> list[Json]:
        """The answer cannot go on; `code` is one of the clients' words, `kind` is golem's."""
        sent = self._close("incomplete")
        self.response["status"] = "failed"
        self.response["error"] = {"code": code, "message": message, "type": kind}
        sent.append(self._whole("response.failed"))
        return sent

    @property
    def _items(self) -> list[Json]:
        items: list[Json] = self.response["output"]
        return items

    def _event(self, kind: str, **fields: Any) -> Json:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event

    def _whole(self, kind: str) -> Json:
        return self._event(kind, response={**self.response, "output": _copied(self._items)})

    def _place(self, *, content: bool = True) -> Json:
        """Where the item being written stands."""
        place: Json = {"item_id": self._items[-1]["id"], "output_index": len(self._items) - 1}
        return {**place, "content_index": 0} if content else place

    def _added(self, item: Json) -> Json:
        self._items.append(item)
        return self._event(
            "response.output_item.added",
            output_index=len(self._items) - 1,
            item=_copied([item])[0],
        )

    def _done(self) -> Json:
        return self._event(
            "response.output_item.done",
            output_index=len(self._items) - 1,
            item=_copied(self._items[-1:])[0],
        )

    def _write(self, kind: str, text: str, logprobs: Sequence[Json]) -> list[Json]:
        sent: list[Json] = []
        if self._item is None or self._item["type"] != kind:
            sent = [*self._close("completed"), *self._open(kind)]
        self._text.append(text)
        fields: Json = {"delta": text}
        if kind == "message":
            self._logprobs += logprobs
            fields["logprobs"] = list(logprobs)
        sent.append(self._event(f"{_name(kind)}.delta", **self._place(), **fields))
        return sent

    def _open(self, kind: str) -> list[Json]:
        item: Json = {"id": new_id("msg"), "type": kind, "status": "in_progress", "content": []}
        if kind == "message":
            item["role"] = "assistant"
        else:
            item |= {"id": new_id("rs"), "summary": []}
        self._item, self._text, self._logprobs = item, [], []
        return [
            self._added(item),
            self._event("response.content_part.added", **self._place(), part=_part(kind, "", [])),
        ]

    def _close(self, status: str) -> list[Json]:
        """Ends the message or the thought that is being written, if one is."""
        item, self._item = self._item, None
        if item is None:
            return []
        kind, text = item["type"], "".join(self._text)
        part = _part(kind, text, self._logprobs)
        item |= {"content": [part], "status": status}
        more = {"logprobs": self._logprobs} if kind == "message" else {}
        return [
            self._event(f"{_name(kind)}.done", **self._place(), text=text, **more),
            self._event("response.content_part.done", **self._place(), part=part),
            self._done(),
        ]

    def _call(self, call: Call) -> list[Json]:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        item: Json = {
            "id": new_id("fc"),
            "type": "function_call",
            "status": "in_progress",
            "call_id": call.id,
            "name": call.name,
            "arguments": "",
        }
        sent = [*self._close("completed"), self._added(item)]
        kind, place = "response.function_call_arguments", self._place(content=False)
        sent.append(self._event(f"{kind}.delta", **place, delta=arguments))
        item |= {"arguments": arguments, "status": "completed"}
        sent.append(self._event(f"{kind}.done", **place, name=call.name, arguments=arguments))
        sent.append(self._done())
        return sent


def _name(kind: str) -> str:
    return "response.output_text" if kind == "message" else "response.reasoning_text"


def _part(kind: str, text: str, logprobs: Sequence[Json]) -> Json:
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def _copied(items: Iterable[Json]) -> list[Json]:
    """Items as they are now: what is written to them later is not in an event sent before."""
    return [{**item} for item in items]
