"""What a block of Qwen3.5 gathers the past with: a gated delta net, or gated attention.

A delta net carries a matrix from position to position (Yang, Kautz, Hatamizadeh, 2024):

    h ─ qkv ─ convolution ─ silu ─┬─ unit q, k ─┐
      ├ alpha ─ decay ────────────┼─ v ─────────┼─ delta rule ─ norm ─ × silu(gate) ─ out
      ├ beta ─ sigmoid ───────────┴─────────────┘
      └ gate

Attention is grouped, with norms of each head's query and key as Qwen3 has them, a rope over the
first part of a head, and a gate beside each query:

    h ─ q,gate,k,v ─ norm of q,k ─ rope ─ attend ─ × sigmoid(gate) ─ out
"""

from __future__ import annotations

import math

from golem_core.graph import Graph, Tensor
from golem_qwen35.config import Config

UNIT_EPS = 1e-6  # of the unit q and k: the authors' own code has it fixed, beside the norms' eps


class DeltaNet:
    """A gated delta net; what it keeps of the past has one size however long that is."""

    def __init__(self, g: Graph, c: Config, block: str) -> None:
        keys, self.values = c.key_heads * c.key_dim, c.value_heads * c.value_dim
        self.ends = (keys, 2 * keys, 2 * keys + self.values)  # of q, k and v in one row
        self.c = c
        self.qkv = g.weight(f"{block}.attn_qkv.weight", (self.ends[2], c.width))
        self.gate = g.weight(f"{block}.attn_gate.weight", (self.values, c.width))
        self.taps = g.weight(f"{block}.ssm_conv1d.weight", (self.ends[2], c.taps))
        self.alpha = g.weight(f"{block}.ssm_alpha.weight", (c.value_heads, c.width))
        self.beta = g.weight(f"{block}.ssm_beta.weight", (c.value_heads, c.width))
        self.a = g.weight(f"{block}.ssm_a", (c.value_heads,))
        self.bias = g.weight(f"{block}.ssm_dt.bias", (c.value_heads,))
        self.norm = g.weight(f"{block}.ssm_norm.weight", (c.value_dim,))
        self.out = g.weight(f"{block}.ssm_out.weight", (c.width, self.values))
        self.window = g.state((c.taps - 1, self.ends[2]))
        self.memory = g.state((c.value_heads, c.key_dim, c.value_dim))

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """What the rows h [width], normed, gather from the rows before them: [width]."""
        c, (q_end, k_end, v_end) = self.c, self.ends
        mixed = g.conv(g.linear(h, self.qkv), self.taps, self.window)
        mixed = g.activate(mixed, "silu", name="conv")
        q = g.heads(g.slice(mixed, 0, q_end), c.key_dim)  # [key_heads, key_dim]
        k = g.heads(g.slice(mixed, q_end, k_end), c.key_dim)
        v = g.heads(g.slice(mixed, k_end, v_end), c.value_dim)  # [value_heads, value_dim]
        q = g.scale(g.l2_norm(q, UNIT_EPS), 1 / math.sqrt(c.key_dim), name="q_unit")
        k = g.l2_norm(k, UNIT_EPS, name="k_unit")
        decay = g.decay(g.linear(h, self.alpha), self.a, self.bias, name="decay")  # [value_heads]
        beta = g.activate(g.linear(h, self.beta), "sigmoid", name="beta")
        found = g.delta(q, k, v, decay, beta, self.memory, name="delta")
        gate = g.heads(g.linear(h, self.gate), c.value_dim)
        found = g.glu(gate, g.rms_norm(found, self.norm, c.eps), "silu", name="gated")
        return g.linear(g.reshape(found, (self.values,)), self.out)  # [width]


class Attention:
    """Gated attention."""

    def __init__(self, g: Graph, c: Config, block: str) -> None:
        q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.c, self.size = c, q
        # Of each head the query, then its gate.
        self.q = g.weight(f"{block}.attn_q.weight", (2 * q, c.width))
        self.k = g.weight(f"{block}.attn_k.weight", (kv, c.width))
        self.v = g.weight(f"{block}.attn_v.weight", (kv, c.width))
        self.q_norm = g.weight(f"{block}.attn_q_norm.weight", (c.head_dim,))
        self.k_norm = g.weight(f"{block}.attn_k_norm.weight", (c.head_dim,))
        self.out = g.weight(f"{block}.attn_output.weight", (c.width, q))
        self.cache = g.cache(c.kv_heads, c.head_dim)

    def __call__(self, g: Graph, h: Tensor) -> Tensor:
        """What the rows h [width], normed, gather from the rows before them: [width]."""
        c = self.c
        both = g.heads(g.linear(h, self.q), 2 * c.head_dim)  # [heads, 2 d]
        q = g.rms_norm(g.slice(both, 0, c.head_dim), self.q_norm, c.eps)  # [heads, d]
        gate = g.reshape(g.slice(both, c.head_dim, 2 * c.head_dim), (self.size,))
        q = g.rope(q, c.rope, name="q_rope")
        k, v = self.keys(g, h)
        seen = g.attend(q, k, v, self.cache, 1 / math.sqrt(c.head_dim), name="attend")
        return g.linear(g.glu(gate, seen, "sigmoid", name="gated"), self.out)  # [width]

    def keys(self, g: Graph, h: Tensor) -> tuple[Tensor, Tensor]:
        """The keys, turned, and the values of the rows h [width]: [kv_heads, d] each."""
        k = g.heads(g.linear(h, self.k), self.c.head_dim)
        v = g.heads(g.linear(h, self.v), self.c.head_dim)
        return g.rope(g.rms_norm(k, self.k_norm, self.c.eps), self.c.rope, name="k_rope"), v
