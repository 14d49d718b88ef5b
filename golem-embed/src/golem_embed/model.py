"""An encoder as a plugin's class: opened from a folder of Hugging Face or from a GGUF file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from golem_core.embedding import Embedding
from golem_core.errors import BadRequest, BadWeights, Unsupported
from golem_core.graph import Graph, Tensor, Weight
from golem_core.model import Embedder, Options
from golem_core.weights import Stored, Weights, open_weights
from golem_embed import forward, gguf, layout
from golem_embed.config import Config, from_hugging_face
from golem_embed.recipe import POOLINGS, Dense, Recipe, from_folder, limits

# What the encoder of a classification head is, by what a text is for; not read by an embedding.
UNUSED = ("pooler.", "cls.")


class Encoder(Embedder):
    """A text encoder.

    config   its geometry
    recipe   how a text's tokens become a vector
    weights  its tensors under one set of names, with those of dense layers
    """

    def __init__(self, config: Config, recipe: Recipe | None, weights: Weights, name: str) -> None:
        self.config = config
        self.recipe = recipe
        self.weights = weights
        self.name = name

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Encoder:
        """As `Model.open`. How to pool may still be said by the caller, in `embedding`."""
        architecture = weights.architecture
        recipe: Recipe | None
        folder = weights.path if weights.path.is_dir() else weights.path.parent
        if weights.container == "gguf":
            config, recipe = gguf.read(weights, architecture)
            name = str(weights.metadata.get("general.name") or weights.path.stem)
        else:
            config = from_hugging_face(weights, architecture)
            name = folder.resolve().name
            recipe = limits(folder) if config.scores else None
            if recipe is None and (folder / "modules.json").is_file():
                recipe = from_folder(folder)
        known = layout.named(weights, architecture, config.cuts)
        if recipe is not None:
            known = _with_dense(known, recipe.dense)
        made = cls(config, recipe, known, name)
        made.check()
        return made

    def check(self) -> None:
        """Records the pass; a tensor that nothing reads is refused by name."""
        graph = Graph(self.weights)
        self.forward(graph, self.recipe or Recipe("mean"))
        read = {weight.name for op in graph.ops for weight in op.weights}
        for name in self.weights.tensors:
            left = name.startswith(UNUSED) and not self.config.scores
            if name not in read and not left:
                raise Unsupported(
                    f"{name} is a tensor that golem_embed does not read, so it does not run this "
                    f"checkpoint ({self.weights.path})"
                )

    def forward(self, g: Graph, recipe: Recipe) -> Tensor:
        """Records the pass: a vector, or scores, of each wanted text; sets `g.result`."""
        c = self.config
        x = forward.hidden(g, c, shifted=c.family == "gemma" and self.weights.container != "gguf")
        if c.scores:
            x = forward.scores(g, c, x, c.scores)
        else:
            x = g.pool(x, name="pooled") if recipe.pooling == "mean" else g.pick(x, name="pooled")
            for i, dense in enumerate(recipe.dense):
                weight = g.weight(f"dense.{i}.weight", (dense.outputs, dense.inputs))
                bias = g.weight(f"dense.{i}.bias", (dense.outputs,)) if dense.bias else None
                x = g.linear(x, weight, bias)
                if dense.act == "tanh":
                    x = g.softcap(x, 1.0, name=f"dense.{i}.act")
                elif dense.act:
                    x = g.activate(x, dense.act, name=f"dense.{i}.act")
        g.result = x
        return x

    def tokens(self, g: Graph) -> Tensor:
        """Records the encoder alone: the hidden state of each wanted column."""
        shifted = self.config.family == "gemma" and self.weights.container != "gguf"
        g.result = g.pick(forward.hidden(g, self.config, shifted), name="tokens")
        return g.result

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
        """As `Embedder.embedding`."""
        from golem_embed.loaded import Loaded

        if pooling is not None and pooling not in POOLINGS.values():
            raise BadRequest(
                f"pooling is {pooling!r}, expected {', '.join(POOLINGS.values())}", "pooling"
            )
        recipe = self.recipe
        if recipe is None:
            folder = weights.path if weights.path.is_dir() else weights.path.parent
            recipe = from_folder(folder, pooling)
        elif pooling is not None and pooling != recipe.pooling:
            raise BadRequest(
                f"pooling is {pooling!r}, but {weights.path} is made for {recipe.pooling!r}",
                "pooling",
            )
        return Loaded(self, weights, recipe, device, threads, precision, length)


def _with_dense(weights: Weights, dense: tuple[Dense, ...]) -> Weights:
    """The weights with those of dense layers, whose files lie in folders of their own."""
    tensors: dict[str, Stored] = dict(weights.tensors)
    files = list(weights.files)
    for i, layer in enumerate(dense):
        opened = open_weights(_file(layer.folder))
        files += opened.files
        names = {"linear.weight": "weight", **({"linear.bias": "bias"} if layer.bias else {})}
        for name, stored in opened.tensors.items():
            if name not in names:
                raise Unsupported(f"{name} is not of a dense layer as it is set ({layer.folder})")
            tensors[f"dense.{i}.{names[name]}"] = replace(stored, name=f"dense.{i}.{names[name]}")
    if not dense:
        return weights
    return replace(weights, tensors=MappingProxyType(tensors), files=tuple(files))


def _file(folder: Path) -> Path:
    path = folder / "model.safetensors"
    if not path.is_file():
        raise BadWeights(f"{path}, a dense layer, is missing")
    return path


__all__ = ["Encoder", "Weight"]
