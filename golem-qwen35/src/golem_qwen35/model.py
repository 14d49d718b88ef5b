"""Qwen3.5, dense and mixed.

    x ─ norm ─ delta net or attention ─ + ─ norm ─ swiglu or mixture ─ + ─
    └───────────────────────────────────┘└─────────────────────────────┘

Most blocks gather the past with a gated delta net, which carries a state instead of keeping keys
and values; about each fourth with gated attention. A block is what its tensors are: those of a
delta net are named `ssm_*`. The boxes are in mixers.py and feed_forward.py, what guesses a token
ahead is in prediction.py. Absent here: pictures, biases, sliding windows, logit caps. Qwen Team,
2026; after Qwen3-Next. Keys, names and the order of value heads as llama.cpp's converter has them.
"""

from __future__ import annotations

from golem_core.graph import Graph, Tensor
from golem_core.model import Generator, Options
from golem_core.text import ChatFormat
from golem_core.weights import Weights
from golem_qwen35.block import Block
from golem_qwen35.config import Config
from golem_qwen35.format import format_of
from golem_qwen35.prediction import Prediction


class Qwen35(Generator):
    """A language model of the architecture `qwen35`."""

    architecture = "qwen35"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.vocab = config.vocab
        self.context = config.context

    @classmethod
    def open(cls, weights: Weights, options: Options) -> Qwen35:
        """As `Generator.open`."""
        return cls(Config.from_weights(weights, cls.architecture)).checked(weights)

    def format(self, weights: Weights) -> ChatFormat | None:
        """As the file's chat template writes thoughts and calls."""
        return format_of(weights.metadata.get("tokenizer.chat_template"))

    def forward(self, g: Graph) -> Tensor:
        """Records the pass; logits [vocab]. With `g.drafts` the drafting pass too."""
        c = self.config
        table = g.weight("token_embd.weight", (c.vocab, c.width))
        tied = not g.has("output.weight")
        head = table if tied else g.weight("output.weight", (c.vocab, c.width))
        norm = g.weight("output_norm.weight", (c.width,))
        embedded = x = g.embed(table)  # [width]
        for layer in range(c.layers):
            x = Block(g, c, f"blk.{layer}")(g, x)
        if not (c.predicts and g.drafts):
            return g.linear(g.rms_norm(g.pick(x), norm, c.eps), head, name="logits")
        # The prediction block reads every row's x behind the norm, not only that of a wanted one.
        x = g.rms_norm(x, norm, c.eps)
        prediction = Prediction(g, c, table, norm, head)
        prediction.fill(g, embedded, x)
        with g.drafting():
            g.draft = prediction(g)
        return g.linear(g.pick(x), head, name="logits")


class Qwen35Moe(Qwen35):
    """A language model of the architecture `qwen35moe`: its feed-forwards are mixtures."""

    architecture = "qwen35moe"
