"""Vectors of texts, from Python and from plugins: what a loaded model that embeds offers.

    with golem_core.load_embedder("all-MiniLM-L6-v2") as model:
        vectors = model.encode(["a cat", "a dog"])      # float32 [2, model.dimensions]
        model.similarity(vectors, vectors)              # [2, 2]

A plugin's `golem_core.model.Embedder` is opened from weights and makes an `Embedding`, which owns
the programs. It may be asked from several threads: what is asked at the same time shares passes,
and no vector depends on what else is in its pass.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from golem_core.closing import Closing

Vectors = npt.NDArray[np.float32]
Text = str | Sequence[int]


@dataclass(frozen=True)
class Embedded:
    """Vectors of texts: float32 [texts, dimensions].

    tokens  how many each text had, those that begin and end it included
    cut     which texts were longer than the model reads and were cut, by place
    """

    vectors: Vectors
    tokens: tuple[int, ...]
    cut: tuple[int, ...]


@dataclass(frozen=True)
class TokenVectors:
    """A text's tokens, and what the encoder makes of each: float32 [tokens, width]."""

    ids: tuple[int, ...]
    vectors: Vectors


@dataclass(frozen=True)
class Ranked:
    """Scores of documents for a query, float32 [documents], and tokens of each pair."""

    scores: Vectors
    tokens: tuple[int, ...]
    cut: tuple[int, ...]


class Embedding(Closing):
    """A model that is loaded and makes vectors of texts, or scores of pairs of texts.

    name        what it calls itself
    architecture  what its weights are
    dimensions  of a vector; 0 where it only scores
    length      most tokens of a text
    pooling     how tokens become a vector: mean, cls or last; "" where it only scores
    normalises  whether vectors have length 1
    scores      numbers that a pair of texts gets; 0 where it only embeds
    prompts     texts that may stand before a text, by what they are for
    prompt      the name of the one that is taken where nobody says, or None
    precision   how matrices are multiplied, as it really runs
    """

    name: str
    architecture: str
    dimensions: int
    length: int
    pooling: str
    normalises: bool
    scores: int
    prompts: Mapping[str, str]
    prompt: str | None
    precision: str

    @abstractmethod
    def tokenize(self, text: str) -> list[int]:
        """The ids of a text, with those that begin and end it, not cut."""

    @abstractmethod
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
        """Vectors of texts, or of ids that are taken as they are, in their order.

        prompt      a name of `prompts`; None: the model's own choice, "": none
        dimensions  the first so many of a vector, brought back to its length where it has one
        normalise   whether vectors get length 1; None: as the model does
        truncate    whether a text that is too long is cut at its end; otherwise it is refused
        progress    told how many texts are done

        Raises `BadRequest` for what is out of its range, `ContextFull` for a text that is too long
        and not to be cut, and `Unsupported` where the model only scores.
        """

    @abstractmethod
    def token_vectors(
        self, texts: Sequence[Text], *, prompt: str | None = None, truncate: bool = True
    ) -> list[TokenVectors]:
        """What the encoder makes of every token, not pooled, not brought to a length."""

    @abstractmethod
    def rank(self, query: str, documents: Sequence[str], *, truncate: bool = True) -> Ranked:
        """A cross-encoder's score of each document for a query, as its file says: between 0 and 1
        where there is one score, which a sigmoid ends.

        Raises `Unsupported` where the model only embeds.
        """

    @abstractmethod
    def close(self) -> None:
        """Gives all memory back."""

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        convert_to_numpy: bool = True,
    ) -> Vectors:
        """As `encode` of sentence-transformers: [dimensions] for a text, [texts, dimensions] for
        several.

        `prompt` is a text that stands before each, `prompt_name` the name of one of the model's.
        batch_size is of no meaning here, nor is show_progress_bar: texts are packed, not padded.
        """
        del batch_size, show_progress_bar
        if not convert_to_numpy:
            raise ValueError("vectors are numpy arrays; take torch.from_numpy of them")
        single = isinstance(sentences, str)
        texts = [sentences] if isinstance(sentences, str) else list(sentences)
        if prompt is not None:
            texts, prompt_name = [prompt + text for text in texts], ""
        vectors = self.embed(
            texts, prompt=prompt_name, dimensions=truncate_dim, normalise=normalize_embeddings
        ).vectors
        return vectors[0] if single else vectors

    @staticmethod
    def similarity(a: Vectors, b: Vectors) -> Vectors:
        """The cosine of each vector of a with each of b: [a, b]; of vectors alone too."""
        a, b = np.atleast_2d(np.asarray(a, np.float32)), np.atleast_2d(np.asarray(b, np.float32))
        lengths = [np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (a, b)]
        cosines: Vectors = (a / lengths[0]) @ (b / lengths[1]).T
        return cosines
