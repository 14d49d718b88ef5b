"""What a plugin's class is: the contract between core and an architecture.

A class derives from what it can do (`Generator` writes text, `Speaker` speaks it). It is made by
`open`, which reads the geometry from the file and refuses what it does not run; a generator's
`forward` records the pass over a `Graph`. Nothing in it computes, and nothing in it knows a
backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from golem_core.errors import Unsupported
from golem_core.graph.graph import Graph
from golem_core.graph.record import Tensor, Weight
from golem_core.weights import Weights

if TYPE_CHECKING:
    from golem_core.embedding import Embedding
    from golem_core.speech import Speaking
    from golem_core.text import ChatFormat, Template, Tokenizer

G = TypeVar("G", bound="Generator")


@dataclass(frozen=True)
class Options:
    """What a caller may ask of a model when it is opened.

    Nothing yet. Whatever comes has a default, so that a plugin of today keeps working.
    """


class Model(ABC):
    """Anything that a file of weights can be opened as."""

    @classmethod
    @abstractmethod
    def open(cls, weights: Weights, options: Options) -> Model:
        """Reads the geometry of `weights` and checks every tensor's shape.

        Raises `Unsupported`, naming key, value and what is accepted, for what the class does not
        run, and `BadWeights` for what cannot be true.
        """


class Generator(Model):
    """A language model: token ids to the logits of the next token.

    `vocab` is how many logits a row has; `context` is how many positions it was trained for;
    `suppressed` are tokens that are never drawn.
    """

    vocab: int
    context: int
    suppressed: tuple[int, ...] = ()

    @classmethod
    @abstractmethod
    def open(cls, weights: Weights, options: Options) -> Generator:
        """As `Model.open`; ends with ``return model.checked(weights)``."""

    @abstractmethod
    def forward(self, graph: Graph) -> Tensor:
        """Records the pass: logits [vocab] of the rows that are wanted (`Graph.pick`).

        Called once for each program, with a new graph over the same weights.
        """

    def tokenizer(self, weights: Weights) -> Tokenizer:
        """The tokenizer of `weights`; by default the one that the file describes."""
        from golem_core.text import Tokenizer

        return Tokenizer.from_weights(weights)

    def template(self, weights: Weights) -> Template | None:
        """The chat template of `weights`; by default the file's, None if it has none."""
        from golem_core.text import Template

        return Template.from_weights(weights)

    def format(self, weights: Weights) -> ChatFormat | None:
        """How the model writes thoughts and calls of tools, by the file's chat template.

        None, the default, where it writes neither: an answer is content throughout.
        """
        return None

    def checked(self: G, weights: Weights, ignored: Collection[str] = ()) -> G:
        """The model itself, once its pass was recorded and has read every tensor of the file.

        A tensor that nothing reads would be an answer computed without it, but for those that the
        architecture is known to leave aside (`ignored`). Raises `Unsupported` naming the first, and
        what `forward` raises: `BadWeights` for a missing tensor or a shape.
        """
        graph = Graph(weights)
        logits = self.forward(graph)
        if logits.rows != "m" or logits.shape != (self.vocab,):
            raise ValueError(
                f"forward gives {logits.name} {list(logits.shape)} in rows {logits.rows!r}, not "
                f"logits [{self.vocab}] of the rows that are wanted"
            )
        if graph.draft is not None and graph.draft.shape != (self.vocab,):
            raise ValueError(f"{graph.draft.name} is not logits [{self.vocab}]")
        read = {weight.name for op in graph.ops for weight in op.weights}
        for op in graph.ops:
            rope = op.attributes.get("rope")
            if rope is not None and isinstance(rope.factors, Weight):
                read.add(rope.factors.name)
        for name in weights.tensors:
            if name not in read and name not in ignored:
                kind = type(self)
                raise Unsupported(
                    f"{name} is a tensor that {kind.__module__}.{kind.__qualname__} does not read, "
                    f"so it does not run this file ({weights.path})"
                )
        return self


class Speaker(Model):
    """A model that makes sound of text.

    `sample_rate` is how many samples a second has; `frame_rate` how many frames, what one pass
    makes.
    """

    sample_rate: int
    frame_rate: float

    @classmethod
    @abstractmethod
    def open(cls, weights: Weights, options: Options) -> Speaker:
        """As `Model.open`."""

    @abstractmethod
    def speaking(
        self,
        weights: Weights,
        *,
        device: str = "cpu",
        threads: int = 1,
        sequences: int = 8,
        kept: str | None = None,
    ) -> Speaking:
        """Compiles the programs and gives who speaks with them, and closes `weights` at its end.

        `sequences` lines at most are drawn in one pass; `kept` is the format that matrices are
        kept in, None as they are in the file. Raises `Unsupported` and `NoMemory`.
        """


class Embedder(Model):
    """A model that makes vectors of texts, or scores of pairs of texts."""

    @classmethod
    @abstractmethod
    def open(cls, weights: Weights, options: Options) -> Embedder:
        """As `Model.open`."""

    @abstractmethod
    def embedding(
        self,
        weights: Weights,
        *,
        device: str = "cpu",
        threads: int = 1,
        precision: str = "f32",
        length: int | None = None,
        pooling: str | None = None,
    ) -> Embedding:
        """Compiles the programs and gives who embeds with them, and closes `weights` at its end.

        precision  how matrices are multiplied
        length     most tokens of a text, where less, or more, is wanted than the files say
        pooling    how tokens become a vector, where the files do not say

        Raises `Unsupported`, `NoMemory` and `BadRequest`.
        """
