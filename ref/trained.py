"""Records the trained test models: `python -m ref.trained --models FOLDER --llama-cpp CHECKOUT`.

FOLDER is what GOLEM_TEST_MODELS names: for each model `hf/` (fp16 safetensors), a Q8_0 file, and
`ids.txt`, held-out tokens. CHECKOUT is llama.cpp with its converter, built by bench/build_peer.sh,
whose programs lie in ``build/bin`` or in --peer. Needs torch and transformers.

One npz a model in tests/recordings/trained:

    ids, rows         the tokens, and the positions that are kept of
    top, logs, rest   transformers' float32 logits there: the likeliest tokens, their logarithmic
                      probabilities, and that of all others together
    peer              JSON: for each format llama.cpp's divergence from transformers, in full over
                      all positions and as the kept numbers show it, read in one pass ("kept")
                      and token by token ("follow")
    greedy            JSON: for each prompt its ids and llama.cpp's, with the top-two gaps: on the
                      Q8_0 file ("shipped") and on its numbers as float32 ("exact"); and the root
                      mean square of how much llama.cpp's gap differs between the two

It prints how golem compares, in full, for all formats: what a test can only hold for the files
that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.weights import open_weights
from ref.compare import divergence, grouped, log_softmax
from ref.expand import expand
from ref.prompts import Prompt
from ref.quantise import Floats
from ref.record import RECORDINGS, _peer_greedy, _peer_ids, _peer_logits
from ref.replay import Replay

MODELS = ("qwen3", "qwen35", "gemma4", "gemma4moe")
FORMATS = ("F16", "Q8_0", "Q4_K_M")
EVERY, TOP = 4, 96
GREEDY_TOKENS = 48

PROMPTS = (
    "And God said unto Moses,",
    "The king of the forest",
    "Once upon a time there was a",
    "A violin is",
    "In the beginning",
    "def add(a, b):\n",
    "HACKER, n.",
    "Count from 1 to 9:",
    "The quick brown fox",
    "One day it began to rain and",
    "The function returns",
    "Other kinds of dog are",
)


# Run with the checkout's own `gguf`. How text is cut is said by the Q8_0 file: the converter
# knows only the published tokenizers.
CONVERT = """
import sys, gguf
from pathlib import Path
from conversion import get_model_class
folder, out, architecture, rule = sys.argv[1:]
converter = get_model_class(architecture)
converter.get_vocab_base_pre = lambda self, tokenizer: rule
converter(Path(folder), gguf.LlamaFileType.MOSTLY_F16, Path(out)).write()
"""


def transformers_logits(folder: Path, ids: list[int]) -> Floats:
    """The float32 logits of the model in `folder`, all positions."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        logits: Floats = model(torch.tensor([ids])).logits[0].numpy()
    return logits


def files(folder: Path, name: str, llama_cpp: Path, peer: Path, made: Path) -> dict[str, Path]:
    """A file of each format: those of the folder, and llama.cpp's own where it has none."""
    whole = made / f"{name}-f16.gguf"
    paths = f"{llama_cpp / 'gguf-py'}{os.pathsep}{llama_cpp}"
    architecture = json.loads((folder / "hf" / "config.json").read_text())["architectures"][0]
    with open_weights(folder / f"{name}-q8_0.gguf") as weights:
        rule = str(weights.metadata.get("tokenizer.ggml.pre", ""))
    subprocess.run(
        [sys.executable, "-c", CONVERT, folder / "hf", whole, architecture, rule],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
    )
    found = {"F16": whole}
    for form in FORMATS[1:]:
        path = folder / f"{name}-{form.lower()}.gguf"
        if not path.exists():
            path = made / path.name
            subprocess.run(
                [peer / "llama-quantize", whole, path, form], check=True, capture_output=True
            )
        found[form] = path
    return found


def record(name: str, models: Path, llama_cpp: Path, peer: Path) -> None:
    """Writes one recording and prints one table."""
    folder = models / name
    ids = [int(word) for word in (folder / "ids.txt").read_text().replace(",", " ").split()]
    exact = transformers_logits(folder / "hf", ids)
    rows = np.arange(0, len(ids), EVERY, dtype=np.int32)
    logs = log_softmax(exact[rows])
    top = np.argsort(-logs, axis=1)[:, :TOP].astype(np.int32)
    kept = np.take_along_axis(logs, top, axis=1).astype(np.float32)
    rest = np.log1p(-np.exp(kept.astype(np.float64)).sum(axis=1).clip(max=1 - 1e-12))
    peers = {}
    with tempfile.TemporaryDirectory() as made:
        found = files(folder, name, llama_cpp, peer, Path(made))
        for form, path in found.items():
            theirs = _peer_logits(peer, path, ids, "f16")
            followed = _peer_logits(peer, path, ids, "f16", 0, "follow")
            with Replay(path, length=len(ids)) as replay:
                ours = replay.read(ids)
            peers[form] = {
                "whole": divergence(exact, theirs),
                "kept": grouped(kept, top, rest, theirs[rows]),
                "follow": grouped(kept, top, rest, followed[rows]),
            }
            mine, yours = divergence(exact, ours), peers[form]["whole"]
            coarse = grouped(kept, top, rest, ours[rows]) / peers[form]["kept"]
            print(
                f"{name} {form}: golem {mine:.3e}, llama.cpp {yours:.3e}, ratio {mine / yours:.3f}"
                f" (kept {coarse:.3f})",
                flush=True,
            )
        greedy = continuations(peer, found["Q8_0"], Path(made) / "expanded.gguf")
    (RECORDINGS / "trained").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(
        RECORDINGS / "trained" / f"{name}.npz",
        ids=np.array(ids, np.int32),
        rows=rows,
        top=top.astype(np.uint16),
        logs=kept,
        rest=rest.astype(np.float32),
        peer=np.array(json.dumps(peers)),
        greedy=np.array(json.dumps(greedy, ensure_ascii=False)),
    )


def continuations(peer: Path, shipped: Path, expanded: Path) -> list[dict[str, Any]]:
    """For each prompt llama.cpp's greedy text: on the file, and on its numbers as float32."""
    expand(shipped, expanded)
    prompts = [_peer_ids(peer, shipped, Prompt("", text)) for text in PROMPTS]
    drawn = _peer_greedy(peer, shipped, prompts, "f16", GREEDY_TOKENS)
    exact = _peer_greedy(peer, expanded, prompts, "f32", GREEDY_TOKENS)
    rows = []
    for text, prompt, (ids, gaps), (exact_ids, exact_gaps) in zip(
        PROMPTS, prompts, drawn, exact, strict=True
    ):
        whole = (prompt + ids)[:-1]
        ways = [
            _peer_logits(peer, path, whole, kv, GREEDY_TOKENS)
            for path, kv in ((shipped, "f16"), (expanded, "f32"))
        ]
        two = [np.diff(np.sort(logits, axis=1)[:, -2:], axis=1) for logits in ways]
        rows.append(
            {
                "text": text,
                "prompt": prompt,
                "shipped": {"ids": ids, "gaps": gaps},
                "exact": {"ids": exact_ids, "gaps": exact_gaps},
                "gap_change": float(np.sqrt(np.mean((two[0] - two[1]) ** 2))),
            }
        )
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ref.trained", description=__doc__)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--peer", type=Path)
    parser.add_argument("names", nargs="*", default=MODELS)
    args = parser.parse_args()
    for name in args.names:
        record(name, args.models, args.llama_cpp, args.peer or args.llama_cpp / "build" / "bin")


if __name__ == "__main__":
    main()
