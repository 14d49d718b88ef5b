"""golem-gemma passes the conformance suite with Gemma 4, in each of its geometries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from golem_core.errors import BadWeights, Unsupported
from golem_core.graph import Graph
from golem_core.model import Options
from golem_core.testing import GeneratorSuite, Tiny
from golem_core.testing.tiny import VOCAB
from golem_core.weights import open_weights
from golem_gemma import Gemma4

WIDTH = 64
HEADS = 4
DIMS = {True: 16, False: 32}  # of a head that sees a window, or everything


class Drawn(Tiny):
    """Numbers that a model of this kind could have: scores and routers are not scaled by the code.

    So the queries' norms do it here, and the router tells its experts apart. Attention of random
    numbers would look at one place only, and near-equal experts change places by one rounding.
    """

    def draw(self, name: str) -> npt.NDArray[np.float32]:
        """As `Tiny.draw`."""
        drawn = super().draw(name)
        if name.endswith("attn_q_norm.weight"):
            drawn /= np.sqrt(np.float32(len(drawn)))
        if name.endswith("ffn_gate_inp.weight"):
            drawn *= 4 * np.sqrt(np.float32(WIDTH))
        return drawn


def gemma4(
    local: Sequence[bool],
    *,
    window: int = 16,
    kv_heads: Sequence[int] = (2, 2),  # in a window, and not
    ffn: Sequence[int] | int = 96,
    shared: int = 0,
    per_layer: int = 0,
    experts: int = 0,
    used: int = 2,
    expert_ffn: int = 48,
    keyed: bool = False,
    apart: bool = False,
    seed: int = 0,
) -> Tiny:
    """A tiny Gemma 4 whose layers see a window where `local` says so.

    shared: how many of the last layers have no keys and values. keyed: layers that see everything
    take the key projection for the value. apart: the experts' gate and up are two tensors.
    """
    layers = len(local)
    widths = [ffn] * layers if isinstance(ffn, int) else list(ffn)
    heads_of = [kv_heads[0] if each else kv_heads[1] for each in local]
    tensors: dict[str, tuple[int, ...]] = {"token_embd.weight": (VOCAB, WIDTH)}
    if not all(local):
        tensors["rope_freqs.weight"] = (DIMS[False] // 2,)
    if per_layer:
        tensors["per_layer_token_embd.weight"] = (VOCAB, layers * per_layer)
        tensors["per_layer_model_proj.weight"] = (layers * per_layer, WIDTH)
        tensors["per_layer_proj_norm.weight"] = (per_layer,)
    for i in range(layers):
        dim = DIMS[local[i]]
        q, kv = HEADS * dim, heads_of[i] * dim
        each: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (WIDTH,),
            "attn_q.weight": (q, WIDTH),
            "attn_q_norm.weight": (dim,),
            "attn_output.weight": (WIDTH, q),
            "post_attention_norm.weight": (WIDTH,),
            "ffn_norm.weight": (WIDTH,),
            "ffn_gate.weight": (widths[i], WIDTH),
            "ffn_up.weight": (widths[i], WIDTH),
            "ffn_down.weight": (WIDTH, widths[i]),
            "post_ffw_norm.weight": (WIDTH,),
            "layer_output_scale.weight": (1,),
        }
        if i < layers - shared:
            each["attn_k.weight"] = (kv, WIDTH)
            each["attn_k_norm.weight"] = (dim,)
            if local[i] or not keyed:
                each["attn_v.weight"] = (kv, WIDTH)
        if per_layer:
            each["inp_gate.weight"] = (per_layer, WIDTH)
            each["proj.weight"] = (WIDTH, per_layer)
            each["post_norm.weight"] = (WIDTH,)
        if experts:
            gate_up = {"ffn_gate_up_exps.weight": (experts, 2 * expert_ffn, WIDTH)}
            one = (experts, expert_ffn, WIDTH)
            each |= {
                "ffn_gate_inp.weight": (experts, WIDTH),
                "ffn_gate_inp.scale": (WIDTH,),
                "pre_ffw_norm_2.weight": (WIDTH,),
                "post_ffw_norm_1.weight": (WIDTH,),
                "post_ffw_norm_2.weight": (WIDTH,),
                "ffn_down_exps.weight": (experts, WIDTH, expert_ffn),
                "ffn_down_exps.scale": (experts,),
                **({"ffn_gate_exps.weight": one, "ffn_up_exps.weight": one} if apart else gate_up),
            }
        tensors |= {f"blk.{i}.{name}": shape for name, shape in each.items()}
    tensors["output_norm.weight"] = (WIDTH,)
    keys: dict[str, object] = {
        "context_length": 512,
        "embedding_length": WIDTH,
        "embedding_length_per_layer_input": per_layer,
        "block_count": layers,
        "feed_forward_length": ffn if isinstance(ffn, int) else widths,
        "attention.head_count": HEADS,
        "attention.head_count_kv": heads_of if kv_heads[0] != kv_heads[1] else kv_heads[0],
        "attention.key_length": DIMS[False],
        "attention.value_length": DIMS[False],
        "attention.key_length_swa": DIMS[True],
        "attention.value_length_swa": DIMS[True],
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.sliding_window": window,
        "attention.sliding_window_pattern": list(local),
        "attention.shared_kv_layers": shared,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "rope.dimension_count": DIMS[False],
        "rope.dimension_count_swa": DIMS[True],
        "final_logit_softcapping": 30.0,
    }
    if experts:
        keys |= {
            "expert_count": experts,
            "expert_used_count": used,
            "expert_feed_forward_length": expert_ffn,
        }
    return Drawn("gemma4", keys, tensors, seed)


class Gemma4Suite(GeneratorSuite):
    """What a file may lack: factors, a layer's scale, an expert's, and where v is k also v."""

    optional = (
        "output.weight", "rope_freqs", "layer_output_scale", "ffn_down_exps.scale", "attn_v",
    )  # fmt: skip


class TestPerLayerAndShared(Gemma4Suite):
    """As E2B and E4B: embeddings for each layer, later layers that share keys and values."""

    tiny = gemma4(
        [True, True, False, True, False], ffn=[96, 96, 96, 160, 160], shared=2, per_layer=32,
        kv_heads=(1, 1),
    )  # fmt: skip


class TestKeyAsValue(Gemma4Suite):
    """As 12B and 31B: the value of layers that see everything is the raw key."""

    tiny = gemma4([True, True, False, True, False], keyed=True, kv_heads=(2, 1))


class TestMixture(Gemma4Suite):
    """As 26B A4B: experts beside the shared branch."""

    tiny = gemma4([True, True, False], experts=6, keyed=True, kv_heads=(2, 1))


class TestMixtureApart(Gemma4Suite):
    """Gate and up of the experts as two tensors."""

    tiny = gemma4([True, False], experts=4, apart=True)


class TestNoWindow(Gemma4Suite):
    tiny = gemma4([False, False])


def opened(tiny: Tiny, folder: Path) -> Gemma4:
    with open_weights(tiny.write(folder / "tiny.gguf")) as weights:
        return Gemma4.open(weights, Options())


# What each published size is: layers, width, whether the last of each six or five sees everything.
SIZES = {
    "E2B": ([True, True, True, True, False] * 7, 20, 256, False, 0),
    "E4B": ([True, True, True, True, True, False] * 7, 18, 256, False, 0),
    "12B": ([True, True, True, True, True, False] * 8, 0, 0, True, 0),
    "26B A4B": ([True, True, True, True, True, False] * 5, 0, 0, True, 128),
    "31B": ([True, True, True, True, True, False] * 10, 0, 0, True, 0),
}


@pytest.mark.parametrize("size", SIZES)
def test_every_published_stack_of_layers_is_recorded(size: str, tmp_path: Path) -> None:
    """The stacks of the published sizes, tiny in width; sharing layers read the right cache."""
    local, shared, per_layer, keyed, experts = SIZES[size]
    own = len(local) - shared
    tiny = gemma4(
        local, shared=shared, per_layer=per_layer // 16, keyed=keyed, experts=experts // 16
    )
    with open_weights(tiny.write(tmp_path / "tiny.gguf")) as weights:
        model = Gemma4.open(weights, Options())
        graph = Graph(weights)
        model.forward(graph)
    attends = [op.attributes["cache"] for op in graph.ops if op.kind == "attend"]
    assert len(attends) == len(local)
    assert len(graph.caches) == own
    for i, cache in enumerate(attends):
        expected = i if i < own else own - 1 - local[own - 1 :: -1].index(local[i])
        assert cache.index == expected
        assert (cache.dim, cache.window) == (DIMS[local[i]], 16 if local[i] else None)


def test_what_published_files_carry_unused_is_left_aside(tmp_path: Path) -> None:
    """Keys and values of layers that share others' are in the checkpoints; nothing reads them."""
    tiny = TestPerLayerAndShared.tiny
    for name, shape in (("attn_k", (32, WIDTH)), ("attn_v", (32, WIDTH)), ("attn_k_norm", (32,))):
        tiny = tiny.with_tensor(f"blk.4.{name}.weight", shape)
    opened(tiny, tmp_path)


def test_suppressed_tokens_are_the_files(tmp_path: Path) -> None:
    with open_weights(TestNoWindow.tiny.write(tmp_path / "tiny.gguf")) as weights:
        metadata = {**weights.metadata, "tokenizer.ggml.suppress_tokens": np.array([3, 9, 99999])}
        object.__setattr__(weights, "metadata", metadata)
        assert Gemma4.open(weights, Options()).suppressed == (3, 9)
        metadata["tokenizer.ggml.suppress_tokens"] = np.array(["x"])
        with pytest.raises(BadWeights, match="suppress_tokens"):
            Gemma4.open(weights, Options())
    assert opened(TestNoWindow.tiny, tmp_path).suppressed == ()


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("attn_logit_softcapping", 50.0, Unsupported),
        ("attention.causal", False, Unsupported),
        ("rope.scaling.type", "yarn", Unsupported),
        ("rope.scaling.factor", 8.0, Unsupported),
        ("nextn_predict_layers", 1, Unsupported),
        ("attention.value_length", 16, Unsupported),
        ("attention.value_length_swa", 32, Unsupported),
        ("attention.sliding_window_pattern", [True, False], BadWeights),
        ("attention.sliding_window_pattern", [1, 1, 0, 1, 0], BadWeights),
        ("attention.sliding_window_pattern", None, BadWeights),
        ("attention.shared_kv_layers", 5, BadWeights),
        ("attention.shared_kv_layers", 4, BadWeights),
        ("attention.head_count_kv", [1, 1, 3, 1, 1], BadWeights),
        ("attention.head_count_kv", [1, 1], BadWeights),
        ("rope.dimension_count", 31, BadWeights),
        ("rope.dimension_count_swa", 64, BadWeights),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    key: str, value: object, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error, match=key.replace("head_count_kv", "head_count")):
        opened(TestPerLayerAndShared.tiny.with_key(key, value), tmp_path)


def test_a_window_layer_without_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=r"blk\.0\.attn_v\.weight is missing"):
        opened(TestKeyAsValue.tiny.with_tensor("blk.0.attn_v.weight", None), tmp_path)
