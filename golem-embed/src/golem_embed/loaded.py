"""An encoder that is loaded: texts to ids, ids to passes, rows to vectors and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from golem_core.embedding import Embedded, Embedding, Ranked, Text, TokenVectors, Vectors
from golem_core.errors import BadRequest, BadWeights, ContextFull, Unsupported
from golem_core.graph import Graph, Program, compile
from golem_core.weights import Weights
from golem_embed import precision as kept
from golem_embed import tokenizer
from golem_embed.passes import COLUMNS, Job, Passes
from golem_embed.recipe import Recipe

if TYPE_CHECKING:
    from golem_embed.model import Encoder

# Most tokens of a text where neither a file nor the caller says less: room for a pass of them.
LENGTH = 8192
# Most texts of a pass.
TEXTS = 256


class Loaded(Embedding):
    """See `Embedding`."""

    def __init__(
        self,
        model: Encoder,
        weights: Weights,
        recipe: Recipe,
        device: str,
        threads: int,
        precision: str,
        length: int | None,
    ) -> None:
        config = model.config
        self.model, self.weights, self.recipe = model, weights, recipe
        self.name, self.architecture = model.name, weights.architecture
        self.scores = config.scores
        width = recipe.dense[-1].outputs if recipe.dense else config.width
        self.dimensions = 0 if config.scores else width
        self.pooling, self.normalises = recipe.pooling, recipe.normalises
        self.prompts, self.prompt = recipe.prompts, recipe.prompt
        if length is not None and not 3 <= length <= config.length:
            raise BadRequest(f"length is {length}, expected 3 to {config.length}", "length")
        self.length = length or min(recipe.length or LENGTH, config.length)
        self._device, self._threads = device, threads
        self._tokens = tokenizer.from_weights(weights)
        self._check_sizes()
        graph = Graph(model.weights)
        model.forward(graph, recipe)
        names = kept.matrices(graph)
        self._matrices, self.precision = kept.keep(model.weights, precision, names)
        graph = Graph(self._matrices)
        model.forward(graph, recipe)
        self._picks = "last" if recipe.pooling == "last" else "first"
        self._passes = Passes(self._compiled(graph, TEXTS), self._picks)
        self._whole: Passes | None = None
        self._making = Lock()

    def _compiled(self, graph: Graph, outputs: int) -> Program:
        width = max(self.length, COLUMNS)
        return compile(graph, self._device, width=width, outputs=outputs, threads=self._threads)

    def _check_sizes(self) -> None:
        """No token of the tokenizer may be outside of the model's table."""
        if isinstance(self._tokens, tokenizer.Fast):
            size, vocab = self._tokens.sizes(), self.model.config.vocab
            if size > vocab:
                raise BadWeights(
                    f"the tokenizer has {size} tokens, the model {vocab} ({self.weights.path})"
                )

    # Text and ids

    def tokenize(self, text: str) -> list[int]:
        """See `Embedding.tokenize`."""
        return self._tokens.encode([text.lower() if self.recipe.lowers else text])[0]

    def _ids(
        self, texts: Sequence[Text], prompt: str | None, truncate: bool
    ) -> tuple[list[list[int]], tuple[int, ...]]:
        """The ids of texts, cut where they are too long, and which these are."""
        before = self._before(prompt)
        if isinstance(texts, str):
            raise BadRequest("texts is one text, expected a list of them", "texts")
        written = [before + text for text in texts if isinstance(text, str)]
        if self.recipe.lowers:
            written = [text.lower() for text in written]
        made = iter(self._tokens.encode(written) if written else [])
        ids, cut = [], []
        for i, text in enumerate(texts):
            found = next(made) if isinstance(text, str) else self._given(text, i)
            if not found:
                raise BadRequest(f"text {i} has no tokens", "texts")
            if len(found) > self.length:
                if not truncate:
                    raise ContextFull(
                        f"text {i} has {len(found)} tokens, and {self.name} reads {self.length}",
                        len(found),
                        self.length,
                    )
                found = self._cut(found)
                cut.append(i)
            ids.append(found)
        return ids, tuple(cut)

    def _given(self, text: Sequence[int], place: int) -> list[int]:
        ids = [int(token) for token in text]
        if any(not 0 <= token < self.model.config.vocab for token in ids):
            raise BadRequest(
                f"text {place} has ids outside of 0 to {self.model.config.vocab - 1}", "texts"
            )
        return ids

    def _cut(self, ids: list[int]) -> list[int]:
        """The head of a text and what ends every text."""
        ends = self._ends()
        return ids[: self.length - len(ends)] + ends

    def _ends(self) -> list[int]:
        """The ids that end every text: what an empty one ends with."""
        if not hasattr(self, "_end"):
            empty, one = self._tokens.encode([""])[0], self._tokens.encode(["a"])[0]
            count = 0
            while count < len(empty) and empty[len(empty) - 1 - count] == one[len(one) - 1 - count]:
                count += 1
            begins = 0
            while begins < len(empty) and empty[begins] == one[begins]:
                begins += 1
            count = min(count, len(empty) - min(begins, len(empty) - count))
            self._end = empty[len(empty) - count :]
        return self._end

    def _before(self, prompt: str | None) -> str:
        """The text of a prompt by its name."""
        name = self.prompt if prompt is None else prompt
        if not name:
            return ""
        if name not in self.prompts:
            there = ", ".join(self.prompts) or "none"
            raise BadRequest(f"no prompt {name!r}; this model has {there}", "prompt")
        return self.prompts[name]

    # Vectors

    def embed(
        self,
        texts: Sequence[Text],
        *,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalise: bool | None = None,
        truncate: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> Embedded:
        """See `Embedding.embed`."""
        if self.scores:
            raise Unsupported(f"{self.name} scores pairs of texts and makes no vectors")
        if dimensions is not None and not 1 <= dimensions <= self.dimensions:
            raise BadRequest(
                f"dimensions is {dimensions}, expected 1 to {self.dimensions}", "dimensions"
            )
        ids, cut = self._ids(texts, prompt, truncate)
        jobs = [Job(each) for each in ids]
        self._passes.run(jobs, progress)
        wide = dimensions or self.dimensions
        vectors = np.empty((len(jobs), wide), np.float32)
        unit = self.normalises if normalise is None else normalise
        for row, job in zip(vectors, jobs, strict=True):
            row[:] = job.result[:wide]
            if unit:
                _normalise(row)
        return Embedded(vectors, tuple(len(each) for each in ids), cut)

    def token_vectors(
        self, texts: Sequence[Text], *, prompt: str | None = None, truncate: bool = True
    ) -> list[TokenVectors]:
        """See `Embedding.token_vectors`; the first call compiles a program of its own."""
        with self._making:
            if self._whole is None:
                graph = Graph(self._matrices)
                self.model.tokens(graph)
                width = max(self.length, COLUMNS)
                self._whole = Passes(self._compiled(graph, width), "all")
        ids, _ = self._ids(texts, prompt, truncate)
        jobs = [Job(each) for each in ids]
        self._whole.run(jobs)
        return [TokenVectors(tuple(i), job.result) for i, job in zip(ids, jobs, strict=True)]

    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """See `Embedding.rank`."""
        if not self.scores:
            raise Unsupported(f"{self.name} makes vectors and scores no pairs")
        if self.scores != 1:
            raise Unsupported(f"{self.name} gives a pair {self.scores} numbers, not one score")
        pairs = self._tokens.pairs([(query, document) for document in documents])
        jobs, cut = [], []
        for i, (ids, kinds) in enumerate(pairs):
            if len(ids) > self.length:
                if not truncate:
                    raise ContextFull(
                        f"pair {i} has {len(ids)} tokens, and {self.name} reads {self.length}",
                        len(ids),
                        self.length,
                    )
                ids, kinds = self._cut(ids), kinds[: self.length - 1] + kinds[-1:]
                cut.append(i)
            jobs.append(Job(ids, kinds))
        self._passes.run(jobs)
        scores = np.array([job.result[0] for job in jobs], np.float64)
        if self._ends_in_sigmoid():
            scores = 0.5 * (1.0 + np.tanh(0.5 * scores))
        return Ranked(scores.astype(np.float32), tuple(len(job.ids) for job in jobs), tuple(cut))

    def _ends_in_sigmoid(self) -> bool:
        """Whether a score is between 0 and 1, as sentence-transformers has it."""
        said = self.weights.metadata.get("sentence_transformers")
        name = said.get("activation_fn") if isinstance(said, dict) else None
        name = name or self.weights.metadata.get("sbert_ce_default_activation_function")
        if name is None or str(name).endswith("Sigmoid"):
            return True
        if str(name).endswith("Identity"):
            return False
        raise Unsupported(f"scores end in {name}; golem runs Sigmoid and Identity")

    def close(self) -> None:
        """See `Embedding.close`."""
        self._passes.close()
        if self._whole is not None:
            self._whole.close()
        self.weights.close()


def _normalise(row: Vectors) -> None:
    """Brings a vector to length 1; each by itself, so that its company changes no bit."""
    length = float(np.sqrt(np.dot(row.astype(np.float64), row.astype(np.float64))))
    row /= np.float32(max(length, 1e-12))
