"""The geometry and the habits of a model."""

from __future__ import annotations

from dataclasses import dataclass

from golem_pockettts.languages import TextRules

LSD, DRIFTING, POINTWISE, FLOW_MATCHING = "lsd", "drifting", "pointwise", "flow_matching"
FLOWS = {LSD: 2, DRIFTING: 0, POINTWISE: 0, FLOW_MATCHING: 1}  # times that the head is told


@dataclass(frozen=True)
class Layers:
    """A stack of transformer layers.

    width is that of the residual, attention that of queries; window is None for all of the past.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    attention: int
    ffn: int
    base: float
    window: int | None

    @property
    def dim(self) -> int:
        """Of one head."""
        return self.attention // self.heads


@dataclass(frozen=True)
class Codec:
    """One side of Mimi's convolutions: `width` at 200 frames a second, `filters` at the samples."""

    width: int
    filters: int
    kernel: int
    residual_kernel: int
    last_kernel: int
    compress: int


@dataclass(frozen=True)
class Config:
    """A model.

    vocab    rows of the table of pieces, the padding's included
    rank     of the table; None if it is whole
    latent   width of what stands for a frame of sound
    z        width of what the head is told
    inner    width of what a voice is made of; outer of what the decoder makes sound of
    ratios   of the decoder's steps up, the samples of a step of 200 Hz their product
    stride   steps of 200 Hz a latent
    """

    vocab: int
    rank: int | None
    flow: str
    flow_width: int
    flow_depth: int
    flow_frequencies: int
    latent: int
    z: int
    projects: bool
    bos_before_voice: bool
    model: Layers
    encoder_layers: Layers
    decoder_layers: Layers
    encoder: Codec
    decoder: Codec
    ratios: tuple[int, ...]
    stride: int
    inner: int
    outer: int
    sample_rate: int
    frame_rate: float
    temperature: float
    eos_threshold: float
    text: TextRules

    @property
    def samples(self) -> int:
        """Samples of a latent."""
        hop = self.stride
        for ratio in self.ratios:
            hop *= ratio
        return hop
