"""The keys that a yaml of the makers may have; another is a slip, and is refused by its name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golem_core.errors import BadWeights

__all__ = ["check_keys"]

_SEANET = dict.fromkeys(
    (
        "dimension", "channels", "n_filters", "n_residual_layers", "ratios", "kernel_size",
        "residual_kernel_size", "last_kernel_size", "dilation_base", "pad_mode", "compress",
    )
)  # fmt: skip
_MIMI_LAYERS = dict.fromkeys(
    (
        "d_model", "input_dimension", "output_dimensions", "num_heads", "num_layers",
        "layer_scale", "context", "max_period", "dim_feedforward",
    )
)  # fmt: skip
_FLOW_LAYERS = dict.fromkeys(
    (
        "hidden_scale", "max_period", "d_model", "num_heads", "num_layers", "attn_dim",
        "num_kv_heads", "dim_feedforward",
    )
)  # fmt: skip

# Each key with those below it; None where it has a value.
KEYS: Mapping[str, Any] = {
    "weights_path": None,
    "weights_path_without_voice_cloning": None,
    "pad_with_spaces_for_short_inputs": None,
    "remove_semicolons": None,
    "append_terminal_punctuation": None,
    "capitalize_first_letter": None,
    "replace_characters": None,
    "model_recommended_frames_after_eos": None,
    "default_temperature": None,
    "default_eos_threshold": None,
    "flow_lm": {
        "dtype": None,
        "flow": {"dim": None, "depth": None, "type": None},
        "transformer": _FLOW_LAYERS,
        "z_dim": None,
        "lookup_table": dict.fromkeys(("dim", "n_bins", "tokenizer", "tokenizer_path", "rank")),
        "weights_path": None,
        "insert_bos_before_voice": None,
    },
    "mimi": {
        "dtype": None,
        "sample_rate": None,
        "channels": None,
        "frame_rate": None,
        "seanet": _SEANET,
        "transformer": _MIMI_LAYERS,
        "quantizer": {"dimension": None, "output_dimension": None},
        "weights_path": None,
        "inner_dim": None,
        "outer_dim": None,
        "decoder_seanet": _SEANET,
        "decoder_transformer": _MIMI_LAYERS,
    },
}


def check_keys(document: Mapping[Any, Any], path: Path) -> None:
    """Raises `BadWeights` for the first key that is none, and for a table that is no table."""
    _check(document, KEYS, "", path)
    replace = document.get("replace_characters") or {}
    for old, new in replace.items() if isinstance(replace, Mapping) else ():
        if not isinstance(old, str) or len(old) != 1 or not isinstance(new, str):
            raise BadWeights(
                f"replace_characters has {old!r}: {new!r}, expected one character and a text "
                f"({path})"
            )


def _check(found: Mapping[Any, Any], known: Mapping[str, Any], within: str, path: Path) -> None:
    for key, value in found.items():
        place = f"{within}{key}"
        if key not in known:
            close = difflib.get_close_matches(str(key), list(known), 1)
            hint = f"; did you mean {within}{close[0]}?" if close else ""
            raise BadWeights(f"{place} is no key of a Pocket TTS configuration{hint} ({path})")
        below = known[key]
        if below is None or value is None:
            continue
        if not isinstance(value, Mapping):
            raise BadWeights(f"{place} is {value!r}, expected keys below it ({path})")
        _check(value, below, f"{place}.", path)
