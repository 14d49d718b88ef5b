"""The prediction block of Qwen3.5, which guesses the token after the next one.

    token k ─ embedding ─ norm ─┐
                                ├─ joined ─ block of attention ─ norm ─ head ─ logits of k + 1
    x of position k - 1 ─ norm ─┘

x is the trunk's behind its last norm, and zeros before the first position. The block attends to its
own keys and values of all positions up to k. Those of the past depend on tokens and x alone, so
`fill` keeps them while the trunk reads, and a guess costs one column of one block. A further guess
has what the block itself made, behind its norm, in the place of x, and the keys and values that the
guesses before it left; the trunk writes its own over them when it reads.
"""

from __future__ import annotations

from golem_core.graph import Graph, Tensor, Weight
from golem_qwen35.block import Block
from golem_qwen35.config import Config
from golem_qwen35.mixers import Attention


class Prediction:
    """The block behind the layers, with what it takes from the trunk: table, norm and head."""

    def __init__(self, g: Graph, c: Config, table: Weight, norm: Weight, head: Weight) -> None:
        self.name, self.eps = f"blk.{c.layers}", c.eps
        at = f"{self.name}.nextn"
        one, table_shape = (c.width,), (c.vocab, c.width)

        def own(name: str, shape: tuple[int, ...], trunk: Weight) -> Weight:
            """The block's own weight where the file has one, else the trunk's."""
            return g.weight(f"{at}.{name}", shape) if g.has(f"{at}.{name}") else trunk

        self.trunk_table = table
        self.table = own("embed_tokens.weight", table_shape, table)
        self.head = own("shared_head_head.weight", table_shape, head)
        self.head_norm = own("shared_head_norm.weight", one, norm)
        self.token_norm = g.weight(f"{at}.enorm.weight", one)
        self.x_norm = g.weight(f"{at}.hnorm.weight", one)
        self.join = g.weight(f"{at}.eh_proj.weight", (c.width, 2 * c.width))
        self.block = Block(g, c, self.name)
        self.before = g.state(one)  # x of the newest position read

    def fill(self, g: Graph, embedded: Tensor, x: Tensor) -> None:
        """Keeps the block's keys and values of every row that the trunk reads.

        embedded [width] is the trunk's embedding of the row's token, x [width] what it made of it.
        """
        attention = self.block.mixer
        assert isinstance(attention, Attention)
        if self.table is not self.trunk_table:
            embedded = g.embed(self.table)
        with g.scope(self.name):
            h = self.joined(g, embedded, g.previous(x, self.before, name="before"))
            k, v = attention.keys(g, g.rms_norm(h, self.block.attn_norm, self.eps))
            g.store(k, v, attention.cache)

    def __call__(self, g: Graph) -> Tensor:
        """The drafting pass: logits [vocab] of the token after the column's own."""
        with g.scope(self.name):
            h = self.joined(g, g.embed(self.table), g.recall(self.before, name="before"))
        h = g.rms_norm(self.block(g, h), self.head_norm, self.eps)
        with g.scope(self.name):
            g.pass_on(h, self.before)
        return g.linear(h, self.head, name="logits")

    def joined(self, g: Graph, embedded: Tensor, before: Tensor) -> Tensor:
        """What the block reads: [width] from a token's embedding and the x before it."""
        token = g.rms_norm(embedded, self.token_norm, self.eps)
        x = g.rms_norm(before, self.x_norm, self.eps)
        return g.linear(g.concat(token, x), self.join)
