"""The operations that a model writes: plain calls, recorded and not computed.

A model's `forward` is plain Python over a `Graph`. What a call leaves behind is in `record.py`;
its shape rule and numpy reference in the table of `ops.py`. `compile.compile` turns the record into
a `Program` of one backend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from golem_core.graph.encoder import Buckets
from golem_core.graph.record import (
    COLUMNS,
    PICKED,
    Cache,
    Record,
    State,
    Tensor,
    Weight,
    at_rate,
    rate,
)
from golem_core.graph.rope import Rope


class Graph(Record):
    """A forward pass over the tensors of `weights`, written one operation after the other."""

    def input(self, key: str, shape: Sequence[int], rows: str = COLUMNS) -> Tensor:
        """What the caller of a pass gives: `Batch.inputs[key]`, a row a column, or a wanted row."""
        return self.append("input", key, (), (), rows=rows, key=key, shape=tuple(shape))

    def embed(
        self, table: Weight, name: str | None = None, by: str = "ids", first: int = 0
    ) -> Tensor:
        """Rows of `table` [rows, d], one a column: [n, d].

        Row ``first + id`` where `by` is ``"ids"``, ``first + position`` where it is
        ``"positions"``, by ``"kinds"`` alike, and row `first` for every column where it is ``""``.
        """
        if by not in ("ids", "positions", "kinds", ""):
            raise ValueError(f"no rows by {by!r}")
        waypoint = name or table.waypoint
        return self.append("embed", waypoint, (), (table,), full=True, by=by, first=first)

    def linear(
        self, x: Tensor, weight: Weight, bias: Weight | None = None, name: str | None = None
    ) -> Tensor:
        """x [.., inputs] times the transpose of `weight` [outputs, inputs], plus `bias`."""
        weights = (weight,) if bias is None else (weight, bias)
        return self.append("linear", name or weight.waypoint, (x,), weights, full=name is None)

    def rms_norm(
        self, x: Tensor, weight: Weight | None, eps: float, name: str | None = None
    ) -> Tensor:
        """x / sqrt(mean(x**2) + eps) * weight over the last axis (Zhang, Sennrich, 2019)."""
        weights = () if weight is None else (weight,)
        full = name is None and weight is not None
        if full and weight is not None:
            name = weight.waypoint
        return self.append("rms_norm", name, (x,), weights, full=full, eps=eps)

    def layer_norm(
        self,
        x: Tensor,
        weight: Weight | None,
        bias: Weight | None,
        eps: float,
        name: str | None = None,
    ) -> Tensor:
        """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis (Ba, 2016)."""
        if weight is None and bias is not None:
            raise ValueError(f"{name}: a layer norm with a bias has a weight")
        weights = tuple(w for w in (weight, bias) if w is not None)
        full = name is None and weight is not None
        if full and weight is not None:
            name = weight.waypoint
        return self.append("layer_norm", name, (x,), weights, full=full, eps=eps)

    def rope(self, x: Tensor, rope: Rope, name: str | None = None) -> Tensor:
        """Turns each head of x [heads, dim] by its row's position."""
        return self.append("rope", name, (x,), (), rope=rope)

    def attend(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cache: Cache,
        scale: float,
        softcap: float = 0.0,
        name: str | None = None,
    ) -> Tensor:
        """Keeps k and v [heads, dim] in `cache`, then attends with q [query heads, dim].

        A row sees the positions of its own sequence up to its own, and of a window cache only the
        last `window` of these, its own included. Query head h reads key head h // (query heads /
        heads). Scores are q.k * scale, capped by ``softcap * tanh(s / softcap)`` where softcap is
        not 0. With k and v None the cache is read as another layer left it. Gives [heads * dim].
        """
        if k is not None and v is not None:
            self.store(k, v, cache, f"{name}.store" if name else None)
        return self.append("attend", name, (q,), (), cache=cache, scale=scale, softcap=softcap)

    def store(self, k: Tensor, v: Tensor, cache: Cache, name: str | None = None) -> None:
        """Keeps k and v [heads, dim] in `cache` for who attends later, in this pass or another."""
        self._append("store", name, (k, v), (), False, None, {"cache": cache})

    def attend_within(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        *,
        causal: bool = False,
        reach: int | None = None,
        bias: Weight | None = None,
        buckets: Buckets | None = None,
        name: str | None = None,
    ) -> Tensor:
        """Attends with q [query heads, dim] to k and v [heads, dim] of the same text.

        A text is the columns that a sequence has in the pass; nothing is kept. A row sees them all,
        with `causal` none after its own, with `reach` none farther away than that. Scores are q.k *
        scale, plus row ``buckets.table(..)[j - i]`` of `bias` [buckets, query heads]. Gives [query
        heads * dim].
        """
        if (bias is None) != (buckets is None):
            raise ValueError(f"{name}: a bias comes with its buckets")
        weights = () if bias is None else (bias,)
        return self.append(
            "attend_within",
            name,
            (q, k, v),
            weights,
            scale=scale,
            causal=causal,
            reach=reach,
            buckets=buckets,
        )

    def pool(self, x: Tensor, name: str | None = None) -> Tensor:
        """The mean over the columns of each wanted row's text: [n, d] to [m, d]."""
        return self.append("pool", name, (x,), (), rows=PICKED)

    def add(self, a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
        """a + b."""
        return self.append("add", name, (a, b), ())

    def mul(self, a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
        """a * b, element by element."""
        return self.append("mul", name, (a, b), ())

    def scale(self, x: Tensor, factor: float | Weight, name: str | None = None) -> Tensor:
        """x * factor, a number or the single one of a weight [1]."""
        if isinstance(factor, Weight):
            return self.append("scale", name or factor.waypoint, (x,), (factor,), name is None)
        return self.append("scale", name, (x,), (), factor=float(factor))

    def glu(self, gate: Tensor, up: Tensor, act: str, name: str | None = None) -> Tensor:
        """act(gate) * up (Shazeer, 2020); act is silu, gelu_tanh, gelu_erf or sigmoid.

        A gate of [1] is the same for all of up.
        """
        return self.append("glu", name, (gate, up), (), act=act)

    def activate(self, x: Tensor, act: str, name: str | None = None) -> Tensor:
        """act(x): the activations of `glu`, and elu."""
        return self.append("activate", name, (x,), (), act=act)

    def l2_norm(self, x: Tensor, eps: float, name: str | None = None) -> Tensor:
        """x / sqrt(sum(x**2) + eps) over the last axis."""
        dim = x.shape[-1]
        unit = self.rms_norm(x, None, eps / dim)
        return self.scale(unit, 1 / math.sqrt(dim), name=name)

    def softcap(self, x: Tensor, cap: float, name: str | None = None) -> Tensor:
        """cap * tanh(x / cap)."""
        return self.append("softcap", name, (x,), (), cap=float(cap))

    def pick(self, x: Tensor, name: str | None = None) -> Tensor:
        """The rows whose logits are wanted: [n, ..] to [m, ..]."""
        return self.append("pick", name, (x,), (), rows=PICKED)

    def reshape(self, x: Tensor, shape: Sequence[int], name: str | None = None) -> Tensor:
        """The same elements of each row in another shape."""
        return self.append("reshape", name, (x,), (), shape=tuple(shape))

    def slice(self, x: Tensor, start: int, stop: int, name: str | None = None) -> Tensor:
        """x[.., start:stop]."""
        return self.append("slice", name, (x,), (), start=start, stop=stop)

    def concat(self, a: Tensor, b: Tensor, name: str | None = None) -> Tensor:
        """The elements of a, then those of b, along the last axis."""
        return self.append("concat", name, (a, b), ())

    def heads(self, x: Tensor, dim: int) -> Tensor:
        """x [heads * dim] as [heads, dim]."""
        return self.reshape(x, (x.size // dim, dim))

    # Rows at other rates

    def split(self, x: Tensor, parts: int, name: str | None = None) -> Tensor:
        """The elements of each row as `parts` rows: [n, parts * d] to [n*parts, d]."""
        rows = at_rate(rate(_following(x)) * parts)
        return self.append("split", name, (x,), (), rows=rows, parts=parts)

    def join(self, x: Tensor, parts: int, name: str | None = None) -> Tensor:
        """`parts` rows of a column as one: [n*parts, d] to [n, parts * d]."""
        if rate(_following(x)) % parts:
            raise ValueError(f"{x.name} has {rate(x.rows)} rows a column, not to be joined {parts}")
        rows = at_rate(rate(x.rows) // parts)
        return self.append("join", name, (x,), (), rows=rows, parts=parts)

    def convolve(
        self,
        x: Tensor,
        weight: Weight,
        bias: Weight | None,
        state: State,
        name: str | None = None,
    ) -> Tensor:
        """A causal convolution over rows, `weight` [outputs, taps * channels], plus `bias`.

        out[i] = weight times rows i - taps + 1 to i beside each other, oldest first; `state`
        [taps - 1, channels] has the newest rows before, zeros before the first.
        """
        weights = (weight,) if bias is None else (weight, bias)
        named = name or weight.waypoint
        _following(x)
        return self.append("convolve", named, (x,), weights, name is None, state=state)

    # Mixtures of experts

    def route(self, scores: Tensor, used: int, name: str | None = None) -> Tensor:
        """Who of the experts, scored [experts], is asked: [2, used], numbers and weights.

        The `used` best, best first, of equals the lower number; the weights are the softmax over
        the chosen.
        """
        return self.append("route", name, (scores,), (), used=used)

    def linear_experts(
        self, x: Tensor, routing: Tensor, weight: Weight, name: str | None = None
    ) -> Tensor:
        """x [inputs], or [used, inputs], times each chosen expert's part of `weight`.

        The weight is [experts, outputs, inputs]; gives [used, outputs].
        """
        named = name or weight.waypoint
        return self.append("linear_experts", named, (x, routing), (weight,), name is None)

    def combine(
        self, x: Tensor, routing: Tensor, scale: Weight | None = None, name: str | None = None
    ) -> Tensor:
        """The sum of x [used, d], each times its weight and, with `scale` [experts], its scale."""
        weights = () if scale is None else (scale,)
        return self.append("combine", name, (x, routing), weights)

    # What goes on from position to position

    def conv(self, x: Tensor, weight: Weight, state: State, name: str | None = None) -> Tensor:
        """A causal convolution of each channel by itself, `weight` [channels, taps].

        out[i] = sum over t of weight[:, t] * x[i - taps + 1 + t]; `state` [taps - 1, channels] has
        the newest inputs, oldest first.
        """
        named = name or weight.waypoint
        return self.append("conv", named, (x,), (weight,), name is None, state=state)

    def decay(self, x: Tensor, a: Weight, bias: Weight, name: str | None = None) -> Tensor:
        """exp(a * softplus(x + bias)), between 0 and 1 where a is negative (Gu, Dao, 2023)."""
        return self.append("decay", name, (x,), (a, bias))

    def delta(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        decay: Tensor,
        beta: Tensor,
        state: State,
        name: str | None = None,
    ) -> Tensor:
        """The gated delta rule (Yang, Kautz, Hatamizadeh, 2024), one position after the other.

        q, k [key heads, dk]; v [value heads, dv]; decay, beta [value heads]; state [value heads,
        dk, dv]. For value head h, with q and k of head h modulo the key heads: S *= decay, then
        S += k (beta * (v - S'k))', and the result is S'q: [value heads, dv].
        """
        return self.append("delta", name, (q, k, v, decay, beta), (), state=state)

    def previous(self, x: Tensor, state: State, name: str | None = None) -> Tensor:
        """x of the position before; zeros before the first. `state` has the shape of x."""
        return self.append("previous", name, (x,), (), state=state)

    def recall(self, state: State, name: str | None = None) -> Tensor:
        """What the row's sequence carries in `state`; for a drafting pass."""
        return self.append("recall", name, (), (), state=state)

    def pass_on(self, x: Tensor, state: State, name: str | None = None) -> None:
        """What `recall` of `state` gives in the next drafting pass, where that goes on from this.

        With it a model says that it can guess more than one token: each from the guess before.
        """
        self._append("pass_on", name, (x,), (), False, None, {"state": state})


def _following(x: Tensor) -> str:
    """The symbol of rows that follow each other."""
    if x.rows == PICKED:
        raise ValueError(f"{x.name} are wanted rows, which do not follow each other")
    return x.rows
