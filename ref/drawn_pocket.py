"""Writes models of Pocket TTS with seeded weights, in the makers' layout: a yaml and safetensors.

    python -m ref.drawn_pocket FOLDER VARIANT [--bf16] [--tokenizer FILE [--pieces N]]

The small variants have every kind of head and every option of the real ones, and odd sizes; the
others have the real shapes. Weights are damped where a latent goes back into the model, so that
rounding does not grow from frame to frame and two programs can be compared over many.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml


def _transformer(width: int, heads: int, layers: int, context: int, ffn: int) -> dict[str, Any]:
    return {
        "d_model": width, "num_heads": heads, "num_layers": layers, "layer_scale": 0.01,
        "context": context, "dim_feedforward": ffn, "input_dimension": width,
        "output_dimensions": [width],
    }  # fmt: skip


def _seanet(width: int, filters: int, kernel: int) -> dict[str, Any]:
    return {
        "dimension": width, "channels": 1, "n_filters": filters, "n_residual_layers": 1,
        "ratios": [6, 5, 4], "kernel_size": kernel, "residual_kernel_size": 3,
        "last_kernel_size": 3, "dilation_base": 2, "pad_mode": "constant", "compress": 2,
    }  # fmt: skip


def _config(
    flow: tuple[str, int, int],
    model: dict[str, int],
    *,
    pieces: int,
    rank: int | None = None,
    z: int | None = None,
    inner: int = 32,
    bos: bool = True,
    codec: tuple[dict[str, Any], dict[str, Any]],
    decoder: tuple[dict[str, Any], dict[str, Any]] | None = None,
    eos: float = -4.0,
) -> dict[str, Any]:
    seanet, transformer = codec
    outer = (decoder or codec)[1]["d_model"]
    kind, dim, depth = flow
    table = {
        "dim": model["d_model"], "n_bins": pieces, "tokenizer": "sentencepiece",
        "tokenizer_path": "tokenizer.model",
    }  # fmt: skip
    made: dict[str, Any] = {
        "default_temperature": 0.3,
        "default_eos_threshold": eos,
        "flow_lm": {
            "insert_bos_before_voice": bos, "dtype": "float32",
            "flow": {"depth": depth, "dim": dim, "type": kind},
            "transformer": {"max_period": 10000, **model}, "lookup_table": table,
        },
        "mimi": {
            "dtype": "float32", "sample_rate": 24000, "inner_dim": inner, "outer_dim": outer,
            "channels": 1, "frame_rate": 12.5, "seanet": seanet, "transformer": transformer,
            "quantizer": {"dimension": 32, "output_dimension": outer},
        },
    }  # fmt: skip
    if rank is not None:
        table["rank"] = rank
    if z is not None:
        made["flow_lm"]["z_dim"] = z
    if decoder is not None:
        made["mimi"]["decoder_seanet"], made["mimi"]["decoder_transformer"] = decoder
    return made


def _large(flow: tuple[str, int, int], layers: int, **options: Any) -> dict[str, Any]:
    model = {"d_model": 1024, "hidden_scale": 4, "num_heads": 16, "num_layers": layers}
    codec = (_seanet(512, 64, 7), _transformer(512, 8, 2, 250, 2048))
    return _config(flow, model, pieces=4000, codec=codec, **options)


def _small(
    flow: tuple[str, int, int], model: dict[str, int], filters: int, layers: int, **options: Any
) -> dict[str, Any]:
    codec = (_seanet(512, 64, 7), _transformer(512, 8, 2, 250, 2048))
    decoder = (_seanet(128, filters, 3), _transformer(128, 4, layers, 50, 384))
    return _config(
        flow, model, pieces=4000, codec=codec, decoder=decoder, z=64, eos=-1.0, **options
    )


def _tiny(kind: str, *, every: bool = False, **options: Any) -> dict[str, Any]:
    """Small shapes; `every` option of the models of the fourth version."""
    model = {"d_model": 64, "hidden_scale": 4, "num_heads": 4, "num_layers": 2}
    codec = (_seanet(32, 4, 7), _transformer(32, 2, 2, 250, 64))
    if every:
        model = {**model, "attn_dim": 96, "num_heads": 6, "num_kv_heads": 2, "dim_feedforward": 72}
        decoder = (_seanet(24, 5, 3), _transformer(24, 2, 3, 50, 72))
        options = {"rank": 16, "z": 24, "decoder": decoder, "eos": -1.0, **options}
    return _config((kind, 48, 2), model, pieces=420, codec=codec, **options)


VARIANTS: dict[str, dict[str, Any]] = {
    "tiny_lsd": _tiny("lsd"),
    "tiny_first": _tiny("lsd", inner=40, bos=False),
    "tiny_drifting": _tiny("drifting", every=True),
    "tiny_pointwise": _tiny("pointwise", every=True),
    "tiny_matching": _tiny("flow_matching"),
    "english": _large(("lsd", 512, 6), 6),
    "english_2026-01": _large(("lsd", 512, 6), 6, inner=512, bos=False),
    "english_drifting": _large(("drifting", 512, 6), 6),
    "french_24l": _large(("lsd", 512, 6), 24),
    "english_18m": _small(
        ("drifting", 192, 4),
        {"d_model": 512, "hidden_scale": 1, "num_heads": 8, "num_layers": 8}, 32, 12,
    ),
    "english_7m": _small(
        ("drifting", 192, 4),
        {"d_model": 224, "hidden_scale": 1, "num_heads": 8, "num_layers": 8, "attn_dim": 512,
         "num_kv_heads": 2}, 32, 12, rank=64,
    ),
    "english_2m": _small(
        ("pointwise", 64, 4),
        {"d_model": 112, "hidden_scale": 1, "num_heads": 3, "num_layers": 8, "attn_dim": 192,
         "num_kv_heads": 1, "dim_feedforward": 96}, 24, 4, rank=32,
    ),
}  # fmt: skip
TINY = tuple(name for name in VARIANTS if name.startswith("tiny_"))


def shapes(config: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every tensor of a model, by the makers' names."""
    lm, mimi = config["flow_lm"], config["mimi"]
    t, table, flow = lm["transformer"], lm["lookup_table"], lm["flow"]
    d, f = t["d_model"], flow["dim"]
    z, latent = lm.get("z_dim") or d, mimi["quantizer"]["dimension"]
    at = "flow_lm"
    yield f"{at}.bos_emb", (latent,)
    if lm["insert_bos_before_voice"]:
        yield f"{at}.bos_before_voice", (1, 1, d)
    yield f"{at}.speaker_proj_weight", (d, mimi["inner_dim"])
    yield f"{at}.emb_std", (latent,)
    yield f"{at}.emb_mean", (latent,)
    rank = table.get("rank")
    yield f"{at}.conditioner.embed.weight", (table["n_bins"] + 1, rank or d)
    if rank:
        yield f"{at}.conditioner.proj.weight", (d, rank)
    net = f"{at}.flow_net"
    for i in range({"lsd": 2, "flow_matching": 1}.get(flow["type"], 0)):
        time = f"{net}.time_embed.{i}"
        yield f"{time}.freqs", (128,)
        yield from _linear(f"{time}.mlp.0", f, 256)
        yield from _linear(f"{time}.mlp.2", f, f)
        yield f"{time}.mlp.3.alpha", (f,)
    yield from _linear(f"{net}.cond_embed", f, z)
    yield from _linear(f"{net}.input_proj", f, latent)
    for i in range(flow["depth"]):
        block = f"{net}.res_blocks.{i}"
        yield from _linear(f"{block}.in_ln", f)
        yield from _linear(f"{block}.mlp.0", f, f)
        yield from _linear(f"{block}.mlp.2", f, f)
        yield from _linear(f"{block}.adaLN_modulation.1", 3 * f, f)
    yield from _linear(f"{net}.final_layer.linear", latent, f)
    yield from _linear(f"{net}.final_layer.adaLN_modulation.1", 2 * f, f)
    yield f"{at}.input_linear.weight", (d, latent)
    heads = t["num_heads"]
    attention = t.get("attn_dim") or d
    kv = (t.get("num_kv_heads") or heads) * (attention // heads)
    ffn = t.get("dim_feedforward") or d * t["hidden_scale"]
    yield from _layers(f"{at}.transformer", t["num_layers"], d, attention, kv, ffn, scaled=False)
    yield from _linear(f"{at}.out_norm", d)
    if lm.get("z_dim"):
        yield f"{at}.z_proj.weight", (z, d)
    yield from _linear(f"{at}.out_eos", 1, z)
    yield from _codec(mimi)


def _codec(mimi: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    outer, inner, latent = mimi["outer_dim"], mimi["inner_dim"], mimi["quantizer"]["dimension"]
    yield "mimi.quantizer.output_proj.weight", (outer, latent, 1)
    yield "mimi.upsample.convtr.convtr.weight", (outer, 1, 32)
    yield "mimi.downsample.conv.conv.weight", (inner, mimi["transformer"]["d_model"], 32)
    for side in ("encoder", "decoder"):
        t = mimi["transformer"]
        c = mimi["seanet"]
        if side == "decoder":
            t, c = mimi.get("decoder_transformer") or t, mimi.get("decoder_seanet") or c
        width, ffn = t["d_model"], t["dim_feedforward"]
        stack = f"mimi.{side}_transformer.transformer"
        yield from _layers(stack, t["num_layers"], width, width, width, ffn, scaled=True)
        at, n = f"mimi.{side}.model", c["n_filters"]
        kernel, inside, last = c["kernel_size"], c["residual_kernel_size"], c["last_kernel_size"]
        if side == "encoder":
            yield from _conv(f"{at}.0.conv", n, 1, kernel)
            for i, r in enumerate(reversed(c["ratios"])):
                yield from _conv(f"{at}.{3 * i + 1}.block.1.conv", n // 2, n, inside)
                yield from _conv(f"{at}.{3 * i + 1}.block.3.conv", n, n // 2, 1)
                yield from _conv(f"{at}.{3 * i + 3}.conv", 2 * n, n, 2 * r)
                n *= 2
            yield from _conv(f"{at}.11.conv", c["dimension"], n, last)
        else:
            n *= 8
            yield from _conv(f"{at}.0.conv", n, c["dimension"], kernel)
            for i, r in enumerate(c["ratios"]):
                yield f"{at}.{3 * i + 2}.convtr.weight", (n, n // 2, 2 * r)
                yield f"{at}.{3 * i + 2}.convtr.bias", (n // 2,)
                n //= 2
                yield from _conv(f"{at}.{3 * i + 3}.block.1.conv", n // 2, n, inside)
                yield from _conv(f"{at}.{3 * i + 3}.block.3.conv", n, n // 2, 1)
            yield from _conv(f"{at}.11.conv", 1, n, last)


def _linear(at: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{at}.weight", shape
    yield f"{at}.bias", shape[:1]


_conv = _linear


def _layers(
    at: str, layers: int, width: int, attention: int, kv: int, ffn: int, *, scaled: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    for i in range(layers):
        layer = f"{at}.layers.{i}"
        yield f"{layer}.self_attn.in_proj.weight", (attention + 2 * kv, width)
        yield f"{layer}.self_attn.out_proj.weight", (width, attention)
        yield from _linear(f"{layer}.norm1", width)
        yield from _linear(f"{layer}.norm2", width)
        yield f"{layer}.linear1.weight", (ffn, width)
        yield f"{layer}.linear2.weight", (width, ffn)
        if scaled:
            yield f"{layer}.layer_scale_1.scale", (width,)
            yield f"{layer}.layer_scale_2.scale", (width,)


# Branches, and what a latent does to the next one, by which rounding would grow.
GAINS = {
    "self_attn.out_proj": 0.3,
    "linear2": 0.3,
    "adaLN": 0.2,
    "cond_embed": 0.3,
    "res_blocks": 0.5,
    "input_linear": 0.5,
    "final_layer.linear": 0.25,
    ".block.3.": 0.5,
    "mimi.decoder.model.11.conv": 0.1,
}


def values(name: str, shape: tuple[int, ...], rng: np.random.Generator, eos: float) -> np.ndarray:
    """Numbers that keep what goes through a model around 1, and sound around 0.1."""
    drawn = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith(".freqs"):
        return np.exp(-math.log(10000) * np.arange(shape[0], dtype=np.float32) / shape[0])
    if name == "flow_lm.out_eos.bias":
        return np.full(shape, eos, np.float32)
    if name.endswith((".scale", "emb_std")):
        return 0.3 + 0.1 * np.abs(drawn)
    if name.endswith(".alpha") or ("norm" in name and "weight" in name) or "in_ln.weight" in name:
        return 1 + 0.1 * drawn
    if name.endswith(("emb_mean", ".bias")):
        return 0.1 * drawn
    if len(shape) == 1 or "bos_before" in name or "conditioner.embed" in name:
        return drawn
    if name == "flow_lm.out_eos.weight":
        return drawn * (2 / math.sqrt(shape[1]))
    fan = shape[1] * (shape[2] if len(shape) == 3 else 1)
    if ".convtr." in name:
        fan = 2 * (1 if "upsample" in name else shape[0])
    gain = next((gain for part, gain in GAINS.items() if part in name), 1.0)
    return drawn * (gain / math.sqrt(fan))


def write(
    folder: Path,
    variant: str,
    *,
    bf16: bool = False,
    eos: float = -30.0,
    seed: int = 0,
    tokenizer: Path | None = None,
    pieces: int | None = None,
) -> Path:
    """Writes a model and gives the folder back.

    eos     the bias of the logit that ends a line
    pieces  of the table of pieces, where the tokenizer has not as many as the variant
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads(json.dumps(VARIANTS[variant]))
    if tokenizer is not None:
        shutil.copy(tokenizer, folder / "tokenizer.model")
        config["flow_lm"]["lookup_table"]["tokenizer_path"] = str(folder / "tokenizer.model")
    if pieces is not None:
        config["flow_lm"]["lookup_table"]["n_bins"] = pieces
    weights = folder / "model.safetensors"
    config["weights_path"] = str(weights)
    (folder / "model.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    rng = np.random.default_rng(seed)
    size = 2 if bf16 else 4
    header, end = {}, 0
    for name, shape in shapes(config):
        count = math.prod(shape) * size
        header[name] = {
            "dtype": "BF16" if bf16 else "F32", "shape": shape, "data_offsets": [end, end + count],
        }  # fmt: skip
        end += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with weights.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes(config):
            made = np.ascontiguousarray(values(name, shape, rng, eos), np.float32)
            if bf16:  # to the nearest, ties to even
                bits = made.view(np.uint32)
                made = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
            file.write(made.tobytes())
    return folder


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--eos", type=float, default=-30.0)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--pieces", type=int)
    given = parser.parse_args()
    write(
        given.folder, given.variant, bf16=given.bf16, eos=given.eos, tokenizer=given.tokenizer,
        pieces=given.pieces,
    )  # fmt: skip


if __name__ == "__main__":
    main()
