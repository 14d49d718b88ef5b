"""Holds the tiny files against llama.cpp's own converter: same tensors, same keys.

`ref.tiny` writes GGUF by itself so that a test needs neither torch nor llama.cpp. Here the
transformers model with the same numbers goes through the public converter, and everything the
converter wrote must stand in the file of `ref.tiny`, value for value.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from ref import hugging_face, tiny
from ref.drawn import Tiny

WEIGHTS = "model.safetensors"
# What the converter adds about a published model's name and origin, and what golem leaves to the
# vocabulary (the tiny files carry one of their own).
NOT_COMPARED = ("general.", "tokenizer.", "GGUF.")
# What a key that a file may leave out means then; files older than the key exist.
DEFAULTS = {"gemma3.rope.freq_base_swa": 10000.0}

# Run with the checkout's own `gguf`, which is newer than the published one, so in a process apart.
CONVERT = """
import sys, gguf
from pathlib import Path
from conversion import get_model_class
converter = get_model_class(sys.argv[1])
converter.set_vocab = lambda self: None
converter.no_mtp = sys.argv[4] == "plain"
converter(Path(sys.argv[2]), gguf.LlamaFileType.ALL_F32, Path(sys.argv[3]), eager=True).write()
"""


def convert(model: Tiny, folder: Path, llama_cpp: Path) -> Path:
    """Runs the converter of the llama.cpp checkout on the model; gives the GGUF it wrote."""
    tensors = hugging_face.state_dict(model)
    save_file({name: values.copy() for name, values in tensors.items()}, folder / WEIGHTS)
    (folder / "config.json").write_text(json.dumps(hugging_face.config(model)))
    vocabulary = {str(token): token for token in range(model.vocab)}
    wanted = {"model": {"vocab": vocabulary}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(wanted))
    out = folder / "converted.gguf"
    architecture = hugging_face.ARCHITECTURES[model.family]
    kind = "predicts" if any(name.startswith("mtp.") for name in tensors) else "plain"
    subprocess.run(
        [sys.executable, "-c", CONVERT, architecture, str(folder), str(out), kind],
        env={**os.environ, "PYTHONPATH": f"{llama_cpp / 'gguf-py'}{os.pathsep}{llama_cpp}"},
        check=True,
        capture_output=True,
    )
    return out


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    reader = gguf.GGUFReader(path)
    keys = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith(NOT_COMPARED)
    }
    return keys, {tensor.name: np.array(tensor.data) for tensor in reader.tensors}


def differences(model: Tiny, llama_cpp: Path) -> list[str]:
    """What the converter's file holds that the file of `ref.tiny` does not, in words."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny.write(model, folder / "ours.gguf")
        keys, values = _contents(convert(model, folder, llama_cpp))
        our_keys, our_values = _contents(folder / "ours.gguf")
    found = [
        f"{key} is {keys[key]!r}, ours {our_keys.get(key)!r}"
        for key in keys
        if keys[key] != our_keys.get(key, DEFAULTS.get(key))
    ]
    for tensor in sorted(values.keys() | our_values.keys()):
        theirs, ours = values.get(tensor), our_values.get(tensor)
        if theirs is None or ours is None:
            found.append(f"{tensor} is only {'ours' if theirs is None else 'theirs'}")
        elif theirs.shape != ours.shape or not np.allclose(theirs, ours, rtol=1e-6, atol=0):
            found.append(f"{tensor} differs")
    return found
