"""Reads the geometry and the habits of a model: from its yaml, or its tensors where it has none.

The makers publish a folder of each language with the weights alone; the yaml of it is in their
program. A yaml beside the weights is read in full and nothing in it is guessed. Without one the
sizes are the tensors', and what no tensor shows is that of the published models: heads of 64 (32 in
the small decoders), a window of 1.25 s (0.25 s in these), rope base 10,000.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from golem_core.errors import BadWeights, Unsupported
from golem_core.weights import Weights
from golem_pockettts.config import (
    DRIFTING,
    FLOW_MATCHING,
    FLOWS,
    LSD,
    POINTWISE,
    Codec,
    Config,
    Layers,
)
from golem_pockettts.keys import check_keys
from golem_pockettts.languages import TextRules, published_rules

LARGEST_YAML = 1 << 20


def read_config(weights: Weights) -> Config:
    """Reads the yaml beside the weights, or the tensors alone.

    Raises `BadWeights` for what cannot be true, `Unsupported` for what is not run, by key.
    """
    folder = weights.path if weights.path.is_dir() else weights.path.parent
    document, path = _document(folder, weights)
    return _Reader(weights, document, path, folder).config()


def _document(folder: Path, weights: Weights) -> tuple[dict[str, Any] | None, Path]:
    """The yaml beside the weights, None if there is none."""
    found = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])
    if not found:
        return None, weights.path
    named = [path for path in found if path.stem in (folder.name, "model", "config")]
    if len(found) > 1 and len(named) != 1:
        listed = ", ".join(path.name for path in found)
        raise BadWeights(f"{folder} has several configurations ({listed}); leave one")
    path = named[0] if len(named) == 1 else found[0]
    if path.stat().st_size > LARGEST_YAML:
        raise BadWeights(f"{path} has more than {LARGEST_YAML} bytes")
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise BadWeights(f"{path} cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise BadWeights(f"{path} is no object")
    check_keys(document, path)
    return document, path


class _Reader:
    """Reads one model; every refusal names the key or the tensor, and the file."""

    def __init__(
        self, weights: Weights, document: dict[str, Any] | None, path: Path, folder: Path
    ) -> None:
        self.weights, self.path, self.folder = weights, path, folder
        self.document = document
        self.given: dict[str, Any] = document or {}

    def bad(self, what: str) -> BadWeights:
        return BadWeights(f"{what} ({self.path})")

    # The yaml

    def value(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """What stands at a key with dots; the default where neither it nor its parent does."""
        found: Any = self.given
        for part in key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if found is None:
            if default is ...:
                raise self.bad(f"{key} is missing")
            return default
        if isinstance(found, bool) and kind is not bool:
            raise self.bad(f"{key} is {found!r}")
        if not isinstance(found, kind):
            raise self.bad(f"{key} is {found!r}")
        return found

    def whole(self, key: str, default: Any = ...) -> Any:
        found = self.value(key, int, default)
        if isinstance(found, int) and not 0 < found < 1 << 24:
            raise self.bad(f"{key} is {found}")
        return found

    def real(self, key: str, default: Any = ...) -> Any:
        found = self.value(key, (int, float), default)
        return found if found is None else float(found)

    # The tensors

    def shape(self, name: str, dims: int) -> tuple[int, ...]:
        stored = self.weights.tensors.get(name)
        if stored is None:
            raise self.bad(f"{name} is missing")
        if len(stored.shape) != dims:
            raise self.bad(f"{name} has shape {list(stored.shape)}, expected {dims} axes")
        return stored.shape

    def has(self, name: str) -> bool:
        return name in self.weights.tensors

    def count(self, pattern: str) -> int:
        """How many numbers, from 0 on, stand in names at the group of `pattern`."""
        found = {int(m[1]) for name in self.weights.tensors if (m := re.match(pattern, name))}
        return len(found)

    # The parts

    def config(self) -> Config:
        flow, bos = "flow_lm.", self.has("flow_lm.bos_before_voice")
        (latent,) = self.shape(f"{flow}bos_emb", 1)
        width, _ = self.shape(f"{flow}input_linear.weight", 2)
        vocab, rank = self.shape(f"{flow}conditioner.embed.weight", 2)
        low = self.has(f"{flow}conditioner.proj.weight")
        projects = self.has(f"{flow}z_proj.weight")
        z = self.shape(f"{flow}z_proj.weight", 2)[0] if projects else width
        times = self.count(r"flow_lm\.flow_net\.time_embed\.(\d+)\.")
        head, _ = self.shape(f"{flow}flow_net.input_proj.weight", 2)
        depth = self.count(r"flow_lm\.flow_net\.res_blocks\.(\d+)\.")
        if self.document is not None:
            said = self.value("flow_lm.insert_bos_before_voice", bool, False)
            if said != bos:
                state = "there" if bos else "missing"
                raise self.bad(
                    f"flow_lm.insert_bos_before_voice is {said}, but flow_lm.bos_before_voice is "
                    f"{state}"
                )
            pieces = self.whole("flow_lm.lookup_table.n_bins", vocab - 1)
            if pieces != vocab - 1:  # the last row pads
                raise self.bad(
                    f"flow_lm.lookup_table.n_bins is {pieces}, but "
                    f"flow_lm.conditioner.embed.weight is of {vocab - 1} pieces"
                )
        inner, _, stride2 = self.shape("mimi.downsample.conv.conv.weight", 3)
        outer, _, _ = self.shape("mimi.quantizer.output_proj.weight", 3)
        _, one, taps = self.shape("mimi.upsample.convtr.convtr.weight", 3)
        if one != 1 or taps % 2 or taps != stride2:
            raise self.bad(
                f"mimi.upsample.convtr.convtr.weight is no upsampling by half of {taps} taps"
            )
        return Config(
            vocab=vocab,
            rank=rank if low else None,
            flow=self.flow(times, head),
            flow_width=head,
            flow_depth=depth,
            flow_frequencies=(
                self.shape(f"{flow}flow_net.time_embed.0.freqs", 1)[0] if times else 0
            ),
            latent=latent,
            z=z,
            projects=projects,
            bos_before_voice=bos,
            model=self.layers("flow_lm.transformer", "flow_lm.transformer", None),
            encoder_layers=self.layers(
                "mimi.encoder_transformer.transformer", "mimi.transformer", "mimi.transformer"
            ),
            decoder_layers=self.layers(
                "mimi.decoder_transformer.transformer",
                "mimi.decoder_transformer" if self.apart("transformer") else "mimi.transformer",
                "mimi.transformer",
            ),
            encoder=self.codec("encoder", "mimi.seanet"),
            decoder=self.codec(
                "decoder", "mimi.decoder_seanet" if self.apart("seanet") else "mimi.seanet"
            ),
            ratios=self.ratios(),
            stride=taps // 2,
            inner=inner,
            outer=outer,
            sample_rate=self.sample_rate(),
            frame_rate=self.frame_rate(taps // 2),
            temperature=self.real("default_temperature", 0.3),
            eos_threshold=self.eos(width),
            text=self.text(width),
        )

    def apart(self, part: str) -> bool:
        return isinstance(self.given.get("mimi"), dict) and bool(
            self.given["mimi"].get(f"decoder_{part}")
        )

    def flow(self, times: int, head: int) -> str:
        if self.document is None:
            # The head of 64 is the one that was published without times and adds the noise.
            return {0: POINTWISE if head == 64 else DRIFTING, 1: FLOW_MATCHING, 2: LSD}.get(
                times, str(times)
            )
        said = self.value("flow_lm.flow.type", str, LSD)
        if said not in FLOWS:
            raise Unsupported(
                f"flow_lm.flow.type is {said!r}, expected {', '.join(FLOWS)} ({self.path})"
            )
        if FLOWS[said] != times:
            raise self.bad(f"flow_lm.flow.type is {said!r}, but the head is told {times} times")
        return str(said)

    def layers(self, tensors: str, key: str, mimi: str | None) -> Layers:
        """A stack by the names of its tensors and the key of its configuration."""
        first = f"{tensors}.layers.0"
        rows, width = self.shape(f"{first}.self_attn.in_proj.weight", 2)
        _, attention = self.shape(f"{first}.self_attn.out_proj.weight", 2)
        ffn, _ = self.shape(f"{first}.linear1.weight", 2)
        count = self.count(re.escape(tensors) + r"\.layers\.(\d+)\.")
        both = rows - attention
        if self.document is None:
            dim = 64 if mimi is None or width >= 512 else 32
            heads, window = attention // dim, None if mimi is None else 250
            if mimi is not None and width < 512:
                window = 50
            base = 10000.0
        else:
            heads = self.whole(f"{key}.num_heads")
            base = self.real(f"{key}.max_period", 10000.0)
            window = None if mimi is None else self.whole(f"{key}.context")
            for name, found in (("num_layers", count), ("d_model", width)):
                if self.whole(f"{key}.{name}") != found:
                    raise self.bad(
                        f"{key}.{name} is {self.whole(f'{key}.{name}')}, but the tensors of "
                        f"{tensors} have {found}"
                    )
        if heads == 0 or attention % heads or (attention // heads) % 2:
            raise self.bad(f"{key}: {attention} is not an even number for each of {heads} heads")
        dim = attention // heads
        if both <= 0 or both % (2 * dim) or heads % (both // 2 // dim):
            raise self.bad(f"{first}.self_attn.in_proj.weight has {rows} rows for {heads} heads")
        kv_heads = both // 2 // dim
        said = self.whole(f"{key}.num_kv_heads", None) if mimi is None else None
        if said is not None and said != kv_heads:
            raise self.bad(f"{key}.num_kv_heads is {said}, but the tensors have {kv_heads}")
        return Layers(width, count, heads, kv_heads, attention, ffn, base, window)

    def codec(self, side: str, key: str) -> Codec:
        last = len(self.steps()) * 3 + 2
        first = f"mimi.{side}.model.0.conv.weight"
        out = f"mimi.{side}.model.{last}.conv.weight"
        outputs, inputs, kernel = self.shape(first, 3)
        ends, _, last_kernel = self.shape(out, 3)
        block = "mimi.encoder.model.1" if side == "encoder" else "mimi.decoder.model.3"
        hidden, whole, residual = self.shape(f"{block}.block.1.conv.weight", 3)
        if self.document is not None:
            self.only(f"{key}.channels", 1)
            self.only(f"{key}.n_residual_layers", 1)
            self.only(f"{key}.pad_mode", "constant")
        width, filters = (inputs, whole) if side == "decoder" else (ends, outputs)
        if side == "decoder":
            filters = self.shape(out, 3)[1]
        return Codec(width, filters, kernel, residual, last_kernel, whole // hidden)

    def only(self, key: str, wanted: Any) -> None:
        found = self.value(key, (int, str), wanted)
        if found != wanted:
            raise Unsupported(f"{key} is {found!r}, expected {wanted!r} ({self.path})")

    def steps(self) -> list[str]:
        """Names of the decoder's steps up."""
        found: list[str] = []
        while self.has(name := f"mimi.decoder.model.{3 * len(found) + 2}.convtr.weight"):
            found.append(name)
        if not found:
            raise self.bad("mimi.decoder.model.2.convtr.weight is missing")
        return found

    def ratios(self) -> tuple[int, ...]:
        found = []
        for name in self.steps():
            taps = self.shape(name, 3)[2]
            if taps % 2:
                raise self.bad(f"{name} has {taps} taps, no step up by their half")
            found.append(taps // 2)
        said = self.value("mimi.seanet.ratios", list, found)
        if said != found:
            raise self.bad(f"mimi.seanet.ratios is {said}, but the tensors have {found}")
        return tuple(found)

    def sample_rate(self) -> int:
        self.only("mimi.channels", 1)
        return int(self.whole("mimi.sample_rate", 24000))

    def frame_rate(self, stride: int) -> float:
        hop = stride
        for ratio in self.ratios():
            hop *= ratio
        rate = self.sample_rate() / hop
        said = self.real("mimi.frame_rate", rate)
        if abs(said - rate) > 1e-6:
            raise self.bad(f"mimi.frame_rate is {said}, but a frame has {hop} samples")
        return float(rate)

    def eos(self, width: int) -> float:
        """The published small models ask for another threshold than all others."""
        small = self.document is None and width <= 512
        return float(self.real("default_eos_threshold", -1.0 if small else -4.0))

    def text(self, width: int) -> TextRules:
        """The rules of the yaml; without one, those of the language that names the folder."""
        tokenizer = self.tokenizer()
        if self.document is None:
            return published_rules(self.folder.name, tokenizer)
        replace = self.value("replace_characters", dict, {})
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in replace.items()):
            raise self.bad("replace_characters is no table of texts")
        return TextRules(
            tokenizer=tokenizer,
            replace=replace,
            pad_short=self.value("pad_with_spaces_for_short_inputs", bool, False),
            no_semicolons=self.value("remove_semicolons", bool, False),
            terminal=self.value("append_terminal_punctuation", bool, True),
            capitalise=self.value("capitalize_first_letter", bool, True),
            rest=self.value("model_recommended_frames_after_eos", int, None),
        )

    def tokenizer(self) -> Path | None:
        """The vocabulary: the file of the yaml's name beside the weights, or the usual ones."""
        said = self.value("flow_lm.lookup_table.tokenizer_path", str, "")
        names = [re.split(r"[/\\]", said.split("@")[0])[-1]] if said else []
        for name in [*names, "tokenizer.json", "tokenizer.model"]:
            if name and (self.folder / name).is_file():
                return self.folder / name
        return None
