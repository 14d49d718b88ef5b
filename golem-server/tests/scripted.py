"""A loaded model that says what a test tells it to, on an engine of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from golem_core import LanguageModel
from golem_core.api import open_generator
from golem_core.engine import Engine
from golem_core.graph.program import Batch, PageGroup, Program
from golem_core.weights import open_weights


class ScriptedProgram(Program):
    """Draws `script` after a prompt of `after` tokens, then what ends an answer.

    In place of a token, NAN makes the logits of its place not a number.

    delay  seconds that a pass takes
    """

    NAN = -1
    device = "scripted"
    width = 64
    outputs = 16

    def __init__(self, vocabulary: int, end: int, pages: int = 256) -> None:
        self.vocabulary = vocabulary
        self.groups = (PageGroup(None, 1, 64, pages),)
        self.script: Sequence[int] = ()
        self.after = 0
        self.delay = 0.0
        self.passes = 0
        self._end = end

    def run(self, batch: Batch) -> np.ndarray:
        self.passes += 1
        time.sleep(self.delay)
        logits = np.zeros((len(batch.outputs), self.vocabulary), dtype=np.float32)
        for row, column in enumerate(batch.outputs):
            at = int(batch.positions[column]) + 1 - self.after
            token = self.script[at] if 0 <= at < len(self.script) else self._end
            if token == self.NAN:
                logits[row] = np.nan
            else:
                logits[row, token] = 20.0
        return logits

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        return {"logits": self.run(batch)}

    def close(self) -> None:
        pass


class Script:
    """A scripted model; `says` and `draws` set what the next answer is."""

    def __init__(self, path: Path, context: int = 1024) -> None:
        weights = open_weights(path)
        model = open_generator(weights)
        self.tokenizer = model.tokenizer(weights)
        assert self.tokenizer.eos is not None
        self.program = ScriptedProgram(len(self.tokenizer), self.tokenizer.eos)
        engine = Engine(self.program, self.tokenizer, context=context, max_sequences=4)
        self.model = LanguageModel(
            weights, model, self.tokenizer, model.template(weights), engine, "scripted",
            model.format(weights),
        )  # fmt: skip

    def says(self, text: str, after: int) -> list[int]:
        """Answers `text` to a prompt of so many tokens; gives its ids."""
        return self.draws(self.tokenizer.encode(text, special=True), after)

    def draws(self, ids: Sequence[int], after: int) -> list[int]:
        """Answers these tokens."""
        self.program.script, self.program.after = list(ids), after
        return list(ids)
