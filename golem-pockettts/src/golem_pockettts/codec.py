"""Mimi, the codec: steps of 200 Hz to samples, and samples to steps.

    decoder: step ─ layers ─ conv ─ 3 * (elu ─ rise ─ block) ─ elu ─ conv ─ samples
    encoder: samples ─ conv ─ 3 * (block ─ elu ─ fall) ─ elu ─ conv ─ layers ─ step
    block:   x + conv1(elu(conv(elu(x))))

Everything is causal and goes on from a state, so what is made piece by piece is what is made whole.
A column of a pass is a step; faster rows stand in it (`Graph.split`, `Graph.join`).
"""

from __future__ import annotations

import numpy as np

from golem_core.graph import Graph, Tensor
from golem_pockettts.config import Config
from golem_pockettts.derived import Tensors, rising, taps
from golem_pockettts.layers import Stack


class Sound:
    """What decoder and encoder share: convolutions by the names of their tensors."""

    def __init__(self, tensors: Tensors, c: Config) -> None:
        self.tensors, self.c = tensors, c
        self.shapes: dict[str, tuple[int, int]] = {}

    def put(self, at: str, outputs: int, inputs: int, kernel: int) -> None:
        """Makes the matrix of a convolution."""
        source = self.tensors.source(f"{at}.weight", (outputs, inputs, kernel))
        shape = (outputs, kernel * inputs)
        block = inputs if outputs > 1 else 0  # the last makes samples
        self.tensors.remade(f"{at}.taps", source, shape, taps, block=block)
        self.tensors.source(f"{at}.bias", (outputs,))
        self.shapes[at] = shape

    def conv(self, g: Graph, at: str, x: Tensor) -> Tensor:
        """The causal convolution `at`; x [channels] of each row, or joined rows."""
        outputs, cols = self.shapes[at]
        weight, bias = g.weight(f"{at}.taps", (outputs, cols)), g.weight(f"{at}.bias", (outputs,))
        past = cols // x.size - 1
        if past == 0:
            return g.linear(x, weight, bias, name=at)
        return g.convolve(x, weight, bias, g.state((past, x.size)), name=at)

    def put_block(self, at: str, width: int, compress: int, kernel: int) -> None:
        """Makes the matrices of a residual block."""
        self.put(f"{at}.block.1.conv", width // compress, width, kernel)
        self.put(f"{at}.block.3.conv", width, width // compress, 1)

    def block(self, g: Graph, at: str, x: Tensor) -> Tensor:
        """A residual block."""
        h = self.conv(g, f"{at}.block.1.conv", g.activate(x, "elu"))
        return g.add(self.conv(g, f"{at}.block.3.conv", g.activate(h, "elu")), x)


class Decoder(Sound):
    """Steps [outer] to the samples of each."""

    def __init__(self, tensors: Tensors, c: Config) -> None:
        super().__init__(tensors, c)
        self.stack = Stack(tensors, c.decoder_layers, "mimi.decoder_transformer.transformer", True)
        codec, width = c.decoder, c.decoder.filters * 2 ** len(c.ratios)
        self.put("mimi.decoder.model.0.conv", width, codec.width, codec.kernel)
        for i, r in enumerate(c.ratios):
            self._put_rise(f"mimi.decoder.model.{3 * i + 2}.convtr", width, width // 2, r)
            width //= 2
            self.put_block(
                f"mimi.decoder.model.{3 * i + 3}", width, codec.compress, codec.residual_kernel
            )
        last = f"mimi.decoder.model.{3 * len(c.ratios) + 2}.conv"
        self.put(last, 1, width, codec.last_kernel)

    def _put_rise(self, at: str, inputs: int, outputs: int, r: int) -> None:
        """A transposed convolution of 2 * r taps that goes up by r."""
        source = self.tensors.source(f"{at}.weight", (inputs, outputs, 2 * r))
        shape = (r * outputs, 2 * inputs)
        self.tensors.remade(f"{at}.taps", source, shape, rising, block=inputs)
        bias = self.tensors.source(f"{at}.bias", (outputs,))
        rows = np.tile(bias.dequantize(), r)  # the bias of a row is the same for all r
        self.tensors.vector(f"{at}.bias.rows", bias, lambda: rows)
        self.shapes[at] = shape

    def record(self, g: Graph) -> Tensor:
        """Result rows: the samples of a step, for each column."""
        c = self.c
        x = self.stack.record(g, g.input("steps", (c.outer,)))
        x = self.conv(g, "mimi.decoder.model.0.conv", x)
        for i, r in enumerate(c.ratios):
            at = f"mimi.decoder.model.{3 * i + 2}.convtr"
            rows, cols = self.shapes[at]
            x = g.activate(x, "elu")
            weight = g.weight(f"{at}.taps", (rows, cols))
            bias = g.weight(f"{at}.bias.rows", (rows,))
            x = g.split(g.convolve(x, weight, bias, g.state((1, x.size)), name=at), r)
            x = self.block(g, f"mimi.decoder.model.{3 * i + 3}", x)
        last = f"mimi.decoder.model.{3 * len(c.ratios) + 2}.conv"
        x = self.conv(g, last, g.activate(x, "elu"))
        hop = c.samples // c.stride
        return g.pick(g.join(x, hop, name="samples"), name="result")


class Encoder(Sound):
    """The samples of a step to [width of the encoder's layers]."""

    def __init__(self, tensors: Tensors, c: Config) -> None:
        super().__init__(tensors, c)
        codec, width = c.encoder, c.encoder.filters
        self.put("mimi.encoder.model.0.conv", width, 1, codec.kernel)
        for i, r in enumerate(reversed(c.ratios)):
            self.put_block(
                f"mimi.encoder.model.{3 * i + 1}", width, codec.compress, codec.residual_kernel
            )
            self.put(f"mimi.encoder.model.{3 * i + 3}.conv", 2 * width, width, 2 * r)
            width *= 2
        last = f"mimi.encoder.model.{3 * len(c.ratios) + 2}.conv"
        self.put(last, codec.width, width, codec.last_kernel)
        self.stack = Stack(tensors, c.encoder_layers, "mimi.encoder_transformer.transformer", False)

    def record(self, g: Graph) -> Tensor:
        """Result rows [width], for each column."""
        c = self.c
        hop = c.samples // c.stride
        x = g.split(g.input("samples", (hop,)), hop)
        x = self.conv(g, "mimi.encoder.model.0.conv", x)
        for i, r in enumerate(reversed(c.ratios)):
            x = self.block(g, f"mimi.encoder.model.{3 * i + 1}", x)
            # The activation of joined rows is that of the rows.
            x = g.activate(g.join(x, r), "elu")
            x = self.conv(g, f"mimi.encoder.model.{3 * i + 3}.conv", x)
        last = f"mimi.encoder.model.{3 * len(c.ratios) + 2}.conv"
        x = self.conv(g, last, g.activate(x, "elu"))
        return g.pick(self.stack.record(g, x), name="result")
