"""The flow model: the past of a line to the next frame of sound.

    given + input_linear(latent) ─ layers ─ norm ─ (z_proj) ─ z ─┬─ out_eos ─ eos
                                                                 └─ head(z, noise) ─ latent
    head: noise ─ input_proj ─ blocks, each shifted, scaled and gated by what z says ─ latent

A column is a position: of a voice or of a text it is given from outside, of a frame it is the
latent of the frame before. The head runs for the columns whose next latent is wanted. Behind it
stand the first two steps of the codec, which are one product: the latent, on its own scale, and the
one before it are raised to the steps that the codec's decoder goes by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from golem_core.graph import Graph, Tensor
from golem_core.graph.record import PICKED
from golem_pockettts.config import DRIFTING, FLOW_MATCHING, LSD, POINTWISE, Config
from golem_pockettts.derived import Array, Tensors
from golem_pockettts.layers import EPS, Stack, norm_weights

HEAD_EPS = 1e-6
HEAD = "flow_lm.flow_net"


@dataclass(frozen=True)
class Outcome:
    """Where the parts of a result row [size] are."""

    latent: slice
    scaled: slice
    eos: int
    frames: slice
    size: int


class Flow:
    """The program of the flow model, with `steps` of its head."""

    def __init__(self, tensors: Tensors, c: Config, steps: int = 1) -> None:
        self.c, self.tensors = c, tensors
        self.steps = 1 if c.flow in (DRIFTING, POINTWISE) else steps
        self.stack = Stack(tensors, c.model, "flow_lm.transformer", heavy=True)
        first = c.latent
        raised = c.stride * c.outer
        self.outcome = Outcome(
            slice(0, first),
            slice(first, 2 * first),
            2 * first,
            slice(2 * first + 1, 2 * first + 1 + raised),
            2 * first + 1 + raised,
        )
        self._matrices()
        self._head()
        self._codec()

    def _matrices(self) -> None:
        c, put = self.c, self.tensors.matrix
        put("flow_lm.input_linear.weight", (c.model.width, c.latent))
        if c.projects:
            put("flow_lm.z_proj.weight", (c.z, c.model.width))
        put("flow_lm.out_eos.weight", (1, c.z))
        put(f"{HEAD}.cond_embed.weight", (c.flow_width, c.z))
        put(f"{HEAD}.input_proj.weight", (c.flow_width, c.latent))
        put(f"{HEAD}.final_layer.linear.weight", (c.latent, c.flow_width))
        for block in range(c.flow_depth):
            at = f"{HEAD}.res_blocks.{block}"
            put(f"{at}.mlp.0.weight", (c.flow_width, c.flow_width))
            put(f"{at}.mlp.2.weight", (c.flow_width, c.flow_width))

    def _head(self) -> None:
        """What the head is told of the times, and its scales, which are around 1."""
        c, tensors = self.c, self.tensors
        width = c.flow_width
        bias = f"{HEAD}.cond_embed.bias"
        source = tensors.source(bias, (width,))
        for step in range(self.steps):
            tensors.vector(f"{bias}.{step}", source, lambda step=step: self._told(step))  # type: ignore[misc]
        for at, parts in self._modulations():
            tensors.matrix(f"{at}.weight", (parts * width, width))

            def raised(at: str = at, parts: int = parts) -> Array:
                values: Array = tensors.values(f"{at}.bias", (parts * width,)).copy()
                values[width : 2 * width] += 1
                return values

            source = tensors.source(f"{at}.bias", (parts * width,))
            tensors.vector(f"{at}.bias.raised", source, raised)

    def _modulations(self) -> list[tuple[str, int]]:
        """Where the head is told what to do: shift, scale and gate, and at its end no gate."""
        blocks = range(self.c.flow_depth)
        found = [(f"{HEAD}.res_blocks.{block}.adaLN_modulation.1", 3) for block in blocks]
        return [*found, (f"{HEAD}.final_layer.adaLN_modulation.1", 2)]

    def _told(self, step: int) -> Array:
        """The bias of what z says, and what a step's times say, which nothing changes."""
        c, tensors = self.c, self.tensors
        bias = tensors.values(f"{HEAD}.cond_embed.bias", (c.flow_width,))
        begin, end = step / self.steps, (step + 1) / self.steps
        times = {LSD: (begin, end), FLOW_MATCHING: (begin,)}
        said = [self._time(i, t) for i, t in enumerate(times.get(c.flow, ()))]
        if not said:
            return bias
        mean = np.sum(said, axis=0, dtype=np.float32) / np.float32(len(said))
        return np.asarray(bias + mean, np.float32)

    def _time(self, number: int, t: float) -> Array:
        """A time as the head reads it: cosines and sines, two layers, a norm by the deviation."""
        c, at, values = self.c, f"{HEAD}.time_embed.{number}", self.tensors.values
        width, half = c.flow_width, c.flow_frequencies
        angle = np.float32(t) * values(f"{at}.freqs", (half,))
        x = np.concatenate([np.cos(angle), np.sin(angle)])
        x = values(f"{at}.mlp.0.weight", (width, 2 * half)) @ x
        x = x + values(f"{at}.mlp.0.bias", (width,))
        x = x / (1 + np.exp(-x))
        x = values(f"{at}.mlp.2.weight", (width, width)) @ x
        x = x + values(f"{at}.mlp.2.bias", (width,))
        alpha = values(f"{at}.mlp.3.alpha", (width,))
        return np.asarray(x * alpha / np.sqrt(x.var(ddof=1) + np.float32(EPS)), np.float32)

    def _codec(self) -> None:
        """The codec's own scale of latents, and its first steps: a projection, then a rise."""
        c, tensors = self.c, self.tensors
        d, r = c.latent, c.stride
        deviation = tensors.source("flow_lm.emb_std", (d,))
        tensors.remade("flow_lm.emb_std.matrix", deviation, (d, d), np.diag, exact=False)
        lift = tensors.source("mimi.upsample.convtr.convtr.weight", (c.outer, 1, 2 * r))
        project = tensors.values("mimi.quantizer.output_proj.weight", (c.outer, d, 1))[:, :, 0]

        def both(weight: Array) -> Array:
            before, now = weight[:, 0, r:], weight[:, 0, :r]  # [outer, r]
            halves = [half.T[:, :, None] * project for half in (before, now)]  # [r, outer, d]
            made: Array = np.concatenate(halves, axis=2).reshape(r * c.outer, 2 * d)
            return made

        tensors.remade("mimi.upsample.matrix", lift, (r * c.outer, 2 * d), both, exact=False)

    # The pass

    def record(self, g: Graph) -> Tensor:
        """Result rows [outcome.size] of the columns whose next latent is wanted."""
        c = self.c
        width, d = c.model.width, c.latent
        given = g.input("given", (width,))
        latent = g.input("latent", (d,))
        x = g.add(
            g.linear(latent, g.weight("flow_lm.input_linear.weight", (width, d))), given, "input"
        )
        x = g.pick(self.stack.record(g, x), name="last")
        z = g.layer_norm(x, *norm_weights(g, "flow_lm.out_norm", width), EPS)
        if c.projects:
            z = g.linear(z, g.weight("flow_lm.z_proj.weight", (c.z, width)))
        eos = g.linear(
            z, g.weight("flow_lm.out_eos.weight", (1, c.z)), g.weight("flow_lm.out_eos.bias", (1,))
        )
        x = g.input("noise", (d,), rows=PICKED)
        for step in range(self.steps):
            moved = self._flow(g, z, x, step)
            if c.flow == DRIFTING:
                x = moved
            else:
                x = g.add(x, moved if self.steps == 1 else moved * (1 / self.steps))
        scaled = g.linear(
            x,
            g.weight("flow_lm.emb_std.matrix", (d, d)),
            g.weight("flow_lm.emb_mean", (d,)),
            name="scaled",
        )
        two = g.concat(g.input("previous", (d,), rows=PICKED), scaled)
        frames = g.linear(
            two, g.weight("mimi.upsample.matrix", (c.stride * c.outer, 2 * d)), name="frames"
        )
        return g.concat(g.concat(g.concat(x, scaled), eos), frames, name="result")

    def _flow(self, g: Graph, z: Tensor, x: Tensor, step: int) -> Tensor:
        """The head once: noise, or what an earlier step made of it, [latent] to [latent]."""
        c, width = self.c, self.c.flow_width
        with g.scope(f"step{step}"):
            told = g.linear(
                z,
                g.weight(f"{HEAD}.cond_embed.weight", (width, c.z)),
                g.weight(f"{HEAD}.cond_embed.bias.{step}", (width,)),
                name="told",
            )
            told = g.activate(told, "silu", name="told_act")
            x = self._linear(g, f"{HEAD}.input_proj", x, width, c.latent)
            for block in range(c.flow_depth):
                x = self._block(g, f"{HEAD}.res_blocks.{block}", told, x)
            at = f"{HEAD}.final_layer"
            shift, scale = self._modulate(g, f"{at}.adaLN_modulation.1", told, 2)
            x = g.layer_norm(x, None, None, HEAD_EPS, name="final_norm")
            x = g.add(g.mul(x, scale), shift)
            return self._linear(g, f"{at}.linear", x, c.latent, width)

    def _block(self, g: Graph, at: str, told: Tensor, x: Tensor) -> Tensor:
        width = self.c.flow_width
        name = at.rsplit(".", 1)[1]
        with g.scope(f"block{name}"):
            shift, scale, gate = self._modulate(g, f"{at}.adaLN_modulation.1", told, 3)
            weights = norm_weights(g, f"{at}.in_ln", width)
            h = g.layer_norm(x, *weights, HEAD_EPS, name="in_ln")
            h = g.add(g.mul(h, scale), shift)
            h = g.activate(self._linear(g, f"{at}.mlp.0", h, width, width), "silu")
            h = self._linear(g, f"{at}.mlp.2", h, width, width)
            return g.add(x, g.mul(gate, h), name="out")

    def _modulate(self, g: Graph, at: str, told: Tensor, parts: int) -> list[Tensor]:
        """Shift, scale (1 is in its bias) and gate, each [flow_width]."""
        width = self.c.flow_width
        made = g.linear(
            told,
            g.weight(f"{at}.weight", (parts * width, width)),
            g.weight(f"{at}.bias.raised", (parts * width,)),
            name="modulation" if parts == 3 else "final_modulation",
        )
        return [g.slice(made, i * width, (i + 1) * width) for i in range(parts)]

    @staticmethod
    def _linear(g: Graph, at: str, x: Tensor, outputs: int, inputs: int) -> Tensor:
        weight, bias = (
            g.weight(f"{at}.weight", (outputs, inputs)),
            g.weight(f"{at}.bias", (outputs,)),
        )
        return g.linear(x, weight, bias, name=at.removeprefix(f"{HEAD}."))
