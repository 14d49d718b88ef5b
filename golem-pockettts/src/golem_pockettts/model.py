"""Pocket TTS, as a model that speaks.

    text ─ pieces ─ table ──────────────────────────┐
    recording ─ encoder ─ speaker_proj ─ (bos) ─────┤─ flow model ─ latents ─ decoder ─ samples
                                latent of before ───┘

One sequence of positions: a voice, a text, then a frame of 80 ms after the other. What the flow
model keeps of a voice is the voice's state, which every line goes on from. Kyutai, 2026.
"""

from __future__ import annotations

import math
from functools import cached_property
from pathlib import Path

import numpy as np

from golem_core.errors import Unsupported
from golem_core.graph import Graph, Program, compile
from golem_core.model import Options, Speaker
from golem_core.weights import Weights
from golem_pockettts.codec import Decoder, Encoder
from golem_pockettts.config import FLOW_MATCHING, Config
from golem_pockettts.derived import Array, Tensors
from golem_pockettts.flow import Flow
from golem_pockettts.reading import read_config
from golem_pockettts.speaking import PocketSpeaking

# How matrices may be kept: those of the flow model, those of the codec's decoder.
KEPT: dict[str | None, tuple[str | None, str | None]] = {
    None: (None, None),
    "Q8_0": ("Q8_0", None),
    "Q8_0-codec": (None, "Q8_0"),
    "Q8_0-all": ("Q8_0", "Q8_0"),
}
EULER = 16  # steps of a head that is no distilled one


class PocketTts(Speaker):
    """A model of the architecture `pocket_tts`."""

    def __init__(self, config: Config, weights: Weights) -> None:
        self.config, self.weights = config, weights
        self.sample_rate, self.frame_rate = config.sample_rate, config.frame_rate

    @classmethod
    def open(cls, weights: Weights, options: Options) -> PocketTts:
        """As `Speaker.open`: records every pass once, which checks every tensor's shape."""
        model = cls(read_config(weights), weights)
        model._checked()
        return model

    def _checked(self) -> None:
        """Raises `Unsupported` for a tensor that nothing reads."""
        c = self.config
        if c.outer != c.decoder_layers.width or c.decoder.width != c.outer:
            raise Unsupported(
                f"the decoder goes from {c.outer} by layers of {c.decoder_layers.width} to "
                f"{c.decoder.width}, expected one width ({self.weights.path})"
            )
        if c.encoder.width != c.encoder_layers.width:
            raise Unsupported(
                f"the encoder's layers are {c.encoder_layers.width} wide behind "
                f"{c.encoder.width} ({self.weights.path})"
            )
        for tensors, part in (self.flow(), self.decoder(), self.encoder()):
            part.record(Graph(tensors.opened()))
        self.table  # noqa: B018 - reads the shapes
        if self.has_encoder:
            self.shapes_of_a_voice()
        known = ("flow_lm.transformer.", "flow_lm.flow_net.", "mimi.")
        others = (
            "bos_emb", "bos_before_voice", "speaker_proj_weight", "emb_std", "emb_mean",
            "conditioner.embed.weight", "conditioner.proj.weight", "input_linear.weight",
            "out_norm.weight", "out_norm.bias", "z_proj.weight", "out_eos.weight", "out_eos.bias",
        )  # fmt: skip
        for name in self.weights.tensors:
            if not name.startswith(known) and name.removeprefix("flow_lm.") not in others:
                raise Unsupported(
                    f"{name} is a tensor that golem-pockettts does not read, so it does not run "
                    f"this file ({self.weights.path})"
                )

    # The programs

    def flow(self, kept: str | None = None, steps: int | None = None) -> tuple[Tensors, Flow]:
        """The flow model and its tensors."""
        tensors = Tensors(self.weights, kept)
        usual = EULER if self.config.flow == FLOW_MATCHING else 1
        return tensors, Flow(tensors, self.config, steps or usual)

    def decoder(self, kept: str | None = None) -> tuple[Tensors, Decoder]:
        """The decoder and its tensors."""
        tensors = Tensors(self.weights, kept)
        return tensors, Decoder(tensors, self.config)

    def encoder(self) -> tuple[Tensors, Encoder]:
        """The encoder and its tensors."""
        tensors = Tensors(self.weights)
        return tensors, Encoder(tensors, self.config)

    def program(
        self,
        part: tuple[Tensors, Flow | Decoder | Encoder],
        *,
        device: str,
        width: int,
        outputs: int,
        pages: int,
        states: int,
        threads: int,
    ) -> Program:
        """One of these compiled; keys and values are kept in float32."""
        tensors, model = part
        graph = Graph(tensors.opened())
        graph.result = model.record(graph)
        return compile(
            graph,
            device,
            width=width,
            outputs=outputs,
            pages=(pages,),
            states=states,
            threads=threads,
            kv="f32",
        )

    # What stands before the programs

    @cached_property
    def table(self) -> tuple[str, Array | None]:
        """The name of the table of pieces, and what its rows go through, where they are short."""
        c = self.config
        name, width = "flow_lm.conditioner.embed.weight", c.model.width
        tensors = Tensors(self.weights)
        tensors.source(name, (c.vocab, c.rank or width))
        if c.rank is None:
            return name, None
        return name, tensors.values("flow_lm.conditioner.proj.weight", (width, c.rank))

    def embedded(self, ids: tuple[int, ...]) -> Array:
        """The pieces of a text as the flow model reads them: [pieces, width]."""
        name, project = self.table
        stored = self.weights.tensors[name]
        rows = [stored.dequantize(slice(i, i + 1)) for i in ids]
        found = np.concatenate(rows) if rows else np.zeros((0, stored.shape[1]), np.float32)
        return found if project is None else np.asarray(found @ project.T, np.float32)

    @property
    def has_encoder(self) -> bool:
        """Whether the file has what makes a voice of a recording."""
        return "flow_lm.speaker_proj_weight" in self.weights.tensors

    def shapes_of_a_voice(self) -> tuple[Array, Array]:
        """How steps become frames [inner, width * taps], and these what the flow model reads."""
        c, tensors = self.config, Tensors(self.weights)
        fall = tensors.values(
            "mimi.downsample.conv.conv.weight", (c.inner, c.encoder_layers.width, 2 * c.stride)
        )
        return fall, tensors.values("flow_lm.speaker_proj_weight", (c.model.width, c.inner))

    @cached_property
    def clones(self) -> bool:
        """Whether these weights make voices: the open files have zeros where others project."""
        return self.has_encoder and bool(self.shapes_of_a_voice()[1].any())

    def voiced(self, steps: Array) -> Array:
        """Encoded steps [stride * frames, width] as the flow model reads a voice, [positions, d].

        The steps fall to frames in windows of two frames, where the first step stands for those
        before it.
        """
        c = self.config
        fall, project = self.shapes_of_a_voice()
        padded = np.concatenate([steps[:1].repeat(c.stride, axis=0), steps])
        frames = len(steps) // c.stride
        windows = np.stack(
            [padded[i * c.stride : (i + 2) * c.stride].reshape(-1) for i in range(frames)]
        )
        latents = windows @ np.ascontiguousarray(fall.transpose(0, 2, 1)).reshape(c.inner, -1).T
        given = np.asarray(latents @ project.T, np.float32)
        if not c.bos_before_voice:
            return given
        bos = Tensors(self.weights).values("flow_lm.bos_before_voice", (1, 1, c.model.width))
        return np.concatenate([bos[0], given])

    def longest(self, pieces: int) -> int:
        """The most frames of a line of so many pieces."""
        return math.ceil((pieces / 3.0 + 2.0) * self.frame_rate)

    @property
    def folder(self) -> Path:
        """Where the weights lie."""
        path = self.weights.path
        return path if path.is_dir() else path.parent

    def speaking(
        self,
        weights: Weights,
        *,
        device: str = "cpu",
        threads: int = 1,
        sequences: int = 8,
        kept: str | None = None,
    ) -> PocketSpeaking:
        """As `Speaker.speaking`; `kept` is one of `KEPT`."""
        if kept not in KEPT:
            names = ", ".join(name for name in KEPT if name is not None)
            raise Unsupported(f"weights are kept as published or as {names}, not {kept}")
        return PocketSpeaking(
            self, device=device, threads=threads, sequences=sequences, kept=KEPT[kept]
        )
