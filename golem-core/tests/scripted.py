"""A language model that says what it is told to, for tests of what lies around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from golem_core.api import Answer, Completion
from golem_core.engine import Timings


class ScriptedAnswer(Answer):
    """Says its pieces; a piece that is an exception is raised."""

    def __init__(self, prompt_ids: list[int], pieces: Sequence[str | BaseException]) -> None:
        self.prompt_ids = prompt_ids
        self.cancelled = False
        self._said: list[str] = []
        self._pieces: Iterator[str | BaseException] = iter(pieces)

    def __next__(self) -> str:
        piece = next(self._pieces)
        if isinstance(piece, BaseException):
            raise piece
        self._said.append(piece)
        return piece

    def cancel(self) -> None:
        self.cancelled = True
        self._pieces = iter(())

    def complete(self) -> Completion:
        for _ in self:
            pass
        text = "".join(self._said)
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
        )


class ScriptedModel:
    """Stands in for `LanguageModel`; `asked` has every request: (kind, prompt, options)."""

    def __init__(self, *answers: Sequence[str | BaseException], template: bool = True) -> None:
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
