"""How a text is to be spoken, with the model's own numbers where none are given, and checked."""

from __future__ import annotations

from dataclasses import replace

from golem_core.errors import BadRequest
from golem_core.speech import Delivery
from golem_pockettts.config import Config

__all__ = ["checked"]


def checked(d: Delivery, c: Config) -> Delivery:
    """The delivery with nothing left open but the seed; `BadRequest` names what is out of range."""
    d = replace(
        d,
        temperature=c.temperature if d.temperature is None else d.temperature,
        eos_threshold=c.eos_threshold if d.eos_threshold is None else d.eos_threshold,
    )
    for name, value, least, most in (
        ("temperature", d.temperature, 0, 10),
        ("noise_clamp", d.noise_clamp, 1e-6, 1e6),
        ("eos_threshold", d.eos_threshold, -1e6, 1e6),
        ("frames_after_eos", d.frames_after_eos, 0, 1000),
        ("max_tokens", d.max_tokens, 1, 1 << 20),
    ):
        if value is not None and not least <= value <= most:
            raise BadRequest(f"{name} is {value}, which is out of its range", name)
    return d
