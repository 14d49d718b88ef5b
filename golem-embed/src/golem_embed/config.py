"""The geometry of an encoder, read from a checkpoint's own files.

What it asks for and golem does not run is refused by name.

Sources: transformers' configuration classes, llama.cpp's keys of the same architectures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from golem_core.errors import Unsupported
from golem_core.weights import Keys, Weights


@dataclass(frozen=True)
class Config:
    """What an encoder is, whichever family.

    family      which forward pass: bert, nomic, modern, qwen or gemma
    length      most positions of a text, special tokens included
    first       row of the table of positions that position 0 has; None: no such table
    head        elements of a head
    eps         of the norms
    ropes       base of the rope of a layer of all positions, and of one with a reach
    reach       positions to each side that a local layer sees; None: there are no such layers
    period      one layer of so many sees all positions,
    anchor      namely those with layer % period == anchor
    buckets     rows of the table of relative biases; 0: there is none
    scores      outputs of a classification head; 0: there is none
    head_pools  how such a head takes the tokens together: cls or mean
    """

    family: str
    vocab: int
    length: int
    layers: int
    width: int
    ffn: int
    heads: int
    kv_heads: int
    head: int
    eps: float
    first: int | None = None
    ropes: tuple[float, float] = (0.0, 0.0)
    reach: int | None = None
    period: int = 1
    anchor: int = 0
    scale: float = 0.0
    buckets: int = 0
    scores: int = 0
    head_pools: str = "cls"
    cuts: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)

    def sees_all(self, layer: int) -> bool:
        """Whether a layer sees every position."""
        return self.reach is None or layer % self.period == self.anchor


def from_hugging_face(weights: Weights, architecture: str) -> Config:
    """Reads config.json; raises BadWeights and Unsupported by key."""
    keys = Keys(weights, "")
    keys.absent("is_decoder", "add_cross_attention", "quantization_config")
    read = {
        "distilbert": _distilbert,
        "modernbert": _modernbert,
        "nomic_bert": _nomic,
        "qwen3": _qwen3,
        "gemma3_text": _gemma3,
    }.get(architecture, _bert)
    return read(keys, architecture)


def _scores(keys: Keys) -> int:
    """Outputs of the classification head that config.json declares, 0 if none."""
    declared = keys.metadata.get("architectures") or []
    heads = [str(name) for name in declared] if isinstance(declared, list) else []
    if not any(name.endswith("ForSequenceClassification") for name in heads):
        return 0
    labels = keys.metadata.get("id2label")
    if isinstance(labels, dict):
        return len(labels)
    return keys.whole("num_labels", 2)


def _divided(keys: Keys, width: str, heads: str) -> tuple[int, int]:
    wide, count = keys.whole(width), keys.whole(heads)
    if wide % count:
        raise keys.bad(width, f"not a multiple of {heads} {count}")
    return wide, count


def _bert(keys: Keys, architecture: str) -> Config:
    width, heads = _divided(keys, "hidden_size", "num_attention_heads")
    keys.one_of("hidden_act", ("gelu",), "gelu")
    keys.one_of("position_embedding_type", ("absolute",), "absolute")
    first = 0
    if architecture != "bert":  # positions begin behind the padding's
        first = keys.whole("pad_token_id", 1) + 1
    buckets = 0
    if architecture == "mpnet":
        buckets = keys.one_of("relative_attention_num_buckets", (32,), 32)
        keys.one_of("pad_token_id", (1,), 1)
    eps = 1e-5 if architecture in ("mpnet",) else 1e-12
    return Config(
        family="bert",
        vocab=keys.whole("vocab_size"),
        length=keys.whole("max_position_embeddings") - first,
        layers=keys.whole("num_hidden_layers"),
        width=width,
        ffn=keys.whole("intermediate_size"),
        heads=heads,
        kv_heads=heads,
        head=width // heads,
        eps=keys.real("layer_norm_eps", eps, above=0),
        first=first,
        buckets=buckets,
        scores=_scores(keys),
    )


def _distilbert(keys: Keys, _architecture: str) -> Config:
    width, heads = _divided(keys, "dim", "n_heads")
    keys.one_of("activation", ("gelu",), "gelu")
    keys.absent("sinusoidal_pos_embds")
    if _scores(keys):
        raise Unsupported(
            "architectures asks for a classification head of DistilBERT, which golem does not run "
            f"({keys.weights.path})"
        )
    return Config(
        family="bert",
        vocab=keys.whole("vocab_size"),
        length=keys.whole("max_position_embeddings"),
        layers=keys.whole("n_layers"),
        width=width,
        ffn=keys.whole("hidden_dim"),
        heads=heads,
        kv_heads=heads,
        head=width // heads,
        eps=1e-12,  # written into the reference implementation, whatever config.json says
        first=0,
    )


def _modernbert(keys: Keys, _architecture: str) -> Config:
    width, heads = _divided(keys, "hidden_size", "num_attention_heads")
    keys.one_of("hidden_activation", ("gelu",), "gelu")
    keys.absent("norm_bias", "attention_bias", "mlp_bias")
    scores = _scores(keys)
    if scores:
        keys.one_of("classifier_activation", ("gelu",), "gelu")
        keys.absent("classifier_bias")
    glob, local = _thetas(keys, "global_rope_theta", 160000.0, "local_rope_theta", 10000.0)
    ffn = keys.whole("intermediate_size")
    return Config(
        family="modern",
        vocab=keys.whole("vocab_size"),
        length=keys.whole("max_position_embeddings"),
        layers=keys.whole("num_hidden_layers"),
        width=width,
        ffn=ffn,
        heads=heads,
        kv_heads=heads,
        head=width // heads,
        eps=keys.real("norm_eps", 1e-5, above=0),
        ropes=(glob, local),
        reach=keys.whole("local_attention", 128) // 2,
        period=_period(keys, "global_attn_every_n_layers", 3, 0),
        scores=scores,
        head_pools=keys.one_of("classifier_pooling", ("cls", "mean"), "cls") if scores else "cls",
        cuts={
            "attn_qkv.weight": tuple((f"attn_{part}.weight", width) for part in "qkv"),
            "ffn_gate_up.weight": (("ffn_gate.weight", ffn), ("ffn_up.weight", ffn)),
        },
    )


def _period(keys: Keys, key: str, usual: int, anchor: int) -> int:
    """How many layers there are to one that sees all; by the list of them where there is one."""
    period = keys.whole(key, usual) if keys.has(key) else usual
    kinds = keys.metadata.get("layer_types")
    if isinstance(kinds, list):
        fulls = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
        guesses: list[int] = [period, *range(1, len(kinds) + 2)]
        for guess in guesses:
            where = guess - 1 if anchor < 0 else anchor
            if fulls == [i for i in range(len(kinds)) if i % guess == where]:
                return guess
        raise keys.bad("layer_types", "which has no period")
    return period


def _thetas(
    keys: Keys, full: str, usual: float, local: str, usual_local: float
) -> tuple[float, float]:
    """The two bases of ropes, under the keys of older and of newer files."""
    given = keys.metadata.get("rope_parameters")
    if isinstance(given, dict) and ("full_attention" in given or "sliding_attention" in given):
        found = []
        for kind, other in (("full_attention", usual), ("sliding_attention", usual_local)):
            entry = given.get(kind) or {}
            if entry.get("rope_type", "default") != "default":
                raise keys.bad("rope_parameters", f"of which golem runs no {entry['rope_type']!r}")
            found.append(float(entry.get("rope_theta", other)))
        return found[0], found[1]
    return keys.real(full, usual, above=0), keys.real(local, usual_local, above=0)


def _theta(keys: Keys, usual: float) -> float:
    """The one base of ropes, under the key of older or of newer files."""
    given = keys.metadata.get("rope_parameters")
    if isinstance(given, dict):
        if given.get("rope_type", "default") != "default":
            raise keys.bad("rope_parameters", f"of which golem runs no {given['rope_type']!r}")
        return float(given.get("rope_theta", usual))
    return keys.real("rope_theta", usual, above=0)


def _nomic(keys: Keys, _architecture: str) -> Config:
    if not keys.has("n_embd"):
        return _nomic_of_transformers(keys)
    width, heads = _divided(keys, "n_embd", "n_head")
    keys.one_of("activation_function", ("swiglu",))
    for key, wanted in (("prenorm", False), ("causal", False), ("use_rms_norm", False)):
        keys.one_of(key, (wanted,), wanted)
    keys.absent("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias", "rotary_emb_interleaved")
    keys.absent("rotary_emb_scale_base", "num_experts", "moe_every_n_layers")
    if keys.real("rotary_emb_fraction", 1.0) != 1.0:
        raise keys.bad("rotary_emb_fraction", "of which golem runs 1.0")
    inner = keys.metadata.get("n_inner")
    # A rope that is stretched beyond what it was trained for is not run: texts end there.
    length = keys.whole("max_trained_positions", keys.whole("n_positions"))
    return Config(
        family="nomic",
        vocab=keys.whole("vocab_size"),
        length=min(length, keys.whole("n_positions")),
        layers=keys.whole("n_layer"),
        width=width,
        ffn=keys.whole("n_inner") if inner is not None else 4 * width,
        heads=heads,
        kv_heads=heads,
        head=width // heads,
        eps=keys.real("layer_norm_epsilon", 1e-12, above=0),
        ropes=(keys.real("rotary_emb_base", 10000.0, above=0), 0.0),
        cuts={"attn_qkv.weight": tuple((f"attn_{part}.weight", width) for part in "qkv")},
    )


def _nomic_of_transformers(keys: Keys) -> Config:
    """The keys of transformers' own class; the authors' have the names of GPT-2."""
    width, heads = _divided(keys, "hidden_size", "num_attention_heads")
    keys.one_of("hidden_act", ("silu",), "silu")
    return Config(
        family="nomic",
        vocab=keys.whole("vocab_size"),
        length=keys.whole("max_position_embeddings"),
        layers=keys.whole("num_hidden_layers"),
        width=width,
        ffn=keys.whole("intermediate_size"),
        heads=heads,
        kv_heads=heads,
        head=keys.one_of("head_dim", (width // heads,), width // heads),
        eps=keys.real("layer_norm_eps", 1e-12, above=0),
        ropes=(_theta(keys, 1000.0), 0.0),
        cuts={"attn_qkv.weight": tuple((f"attn_{part}.weight", width) for part in "qkv")},
    )


def _qwen3(keys: Keys, _architecture: str) -> Config:
    keys.one_of("hidden_act", ("silu",), "silu")
    keys.absent("attention_bias", "rope_scaling", "use_sliding_window")
    width, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    return Config(
        family="qwen",
        vocab=keys.whole("vocab_size"),
        length=keys.whole("max_position_embeddings"),
        layers=keys.whole("num_hidden_layers"),
        width=width,
        ffn=keys.whole("intermediate_size"),
        heads=heads,
        kv_heads=keys.whole("num_key_value_heads", heads),
        head=keys.whole("head_dim", 128),
        eps=keys.real("rms_norm_eps", 1e-6, above=0),
        ropes=(_theta(keys, 10000.0), 0.0),
    )


def _gemma3(keys: Keys, _architecture: str) -> Config:
    keys.one_of("hidden_activation", ("gelu_pytorch_tanh",), "gelu_pytorch_tanh")
    keys.one_of("use_bidirectional_attention", (True,))
    keys.absent(
        "attention_bias", "rope_scaling", "attn_logit_softcapping", "final_logit_softcapping"
    )
    width, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    glob, local = _thetas(keys, "rope_theta", 1e6, "rope_local_base_freq", 1e4)
    key = (
        "_sliding_window_pattern"
        if keys.has("_sliding_window_pattern")
        else "sliding_window_pattern"
    )
    period = _period(keys, key, 6, -1)
    return Config(
        family="gemma",
        vocab=keys.whole("vocab_size"),
        length=keys.whole("max_position_embeddings"),
        layers=keys.whole("num_hidden_layers"),
        width=width,
        ffn=keys.whole("intermediate_size"),
        heads=heads,
        kv_heads=keys.whole("num_key_value_heads", heads),
        head=keys.whole("head_dim", 256),
        eps=keys.real("rms_norm_eps", 1e-6, above=0),
        ropes=(glob, local),
        reach=keys.whole("sliding_window") // 2,
        period=period,
        anchor=period - 1,
        scale=keys.real("query_pre_attn_scalar", 256, above=0) ** -0.5,
    )
