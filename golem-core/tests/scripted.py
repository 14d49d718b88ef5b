"""A language model that says what it is told to, for tests of what lies around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from golem_core.api import Answer, Completion
from golem_core.engine import Timings
from golem_core.text import Content, Event, Reply

Piece = str | Event | BaseException


class ScriptedAnswer(Answer):
    """Says its pieces: texts and other parts of an answer; one that is an exception is raised."""

    def __init__(self, prompt_ids: list[int], pieces: Sequence[Piece]) -> None:
        self.prompt_ids = prompt_ids
        self.cancelled = False
        self._reply = Reply()
        self._pieces: Iterator[Piece] = iter(pieces)

    def events(self) -> Iterator[Event]:
        for piece in self._pieces:
            if isinstance(piece, BaseException):
                raise piece
            event = Content(piece) if isinstance(piece, str) else piece
            self._reply.add([event])
            yield event

    def cancel(self) -> None:
        self.cancelled = True
        self._pieces = iter(())

    def complete(self) -> Completion:
        for _ in self.events():
            pass
        text = self._reply.content
        return Completion(
            text=text,
            ids=[ord(c) for c in text],
            prompt_ids=self.prompt_ids,
            finish_reason="cancelled" if self.cancelled else "stop",
            timings=Timings(
                queued_seconds=0.0,
                prompt_tokens=len(self.prompt_ids),
                cached_tokens=0,
                prompt_seconds=0.5,
                generated_tokens=len(text),
                generate_seconds=2.0,
                drafted_tokens=0,
                accepted_tokens=0,
            ),
            seed=7,
            thoughts=self._reply.thoughts,
            calls=tuple(self._reply.calls),
            unfinished=self._reply.unfinished,
        )


class ScriptedModel:
    """Stands in for `LanguageModel`; `asked` has every request: (kind, prompt, options)."""

    def __init__(self, *answers: Sequence[Piece], template: bool = True) -> None:
        self.template = SimpleNamespace() if template else None
        self.asked: list[tuple[str, Any, dict[str, Any]]] = []
        self.closed = False
        self._answers = iter(answers)

    def generate(self, prompt: Any, **options: Any) -> ScriptedAnswer:
        return self._answer("generate", prompt, options)

    def chat(self, messages: Any, **options: Any) -> ScriptedAnswer:
        return self._answer("chat", list(messages), options)

    def _answer(self, kind: str, prompt: Any, options: dict[str, Any]) -> ScriptedAnswer:
        self.asked.append((kind, prompt, options))
        return ScriptedAnswer([1, 2, 3], next(self._answers))

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True


def loader(model: ScriptedModel) -> Callable[..., ScriptedModel]:
    """What takes the place of `golem_core.api.load`; keeps how it was called."""

    def load(reference: str, **options: Any) -> ScriptedModel:
        model.loaded = (reference, {k: v for k, v in options.items() if k != "say"})  # type: ignore[attr-defined]
        return model

    return load
