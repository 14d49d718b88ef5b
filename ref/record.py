"""Writes the recordings under tests/recordings: `python -m ref.record WHAT... --peer BIN`.

    waypoints   transformers' float32 waypoints of the tiny models (needs torch, transformers)
    closeness   transformers' logits of the wide tiny models, and how far llama.cpp's logits on the
                same numbers are from them in every format (needs --peer too)
    greedy      llama.cpp's greedy ids on real models (needs --peer, --weights)
    converter   writes nothing: holds the tiny files against llama.cpp's converter (--llama-cpp)

BIN is the folder of programs that bench/build_peer.sh builds.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ref import tiny
from ref.compare import divergence
from ref.prompts import PROMPTS, Prompt
from ref.quantise import Floats

RECORDINGS = Path(__file__).parent.parent / "tests" / "recordings"

# Of a prompt of 48 tokens: the first, before and after a window and a page end, the last.
ROWS = np.array([0, 7, 16, 31, 32, 47], np.int32)
POSITIONS = 48
CLOSENESS_POSITIONS = 64
GREEDY_TOKENS = 64
THREADS = 1


def waypoints() -> None:
    """One npz a model: what went in, the names and largest magnitudes, and each waypoint.

    Of a waypoint only ROWS are kept, and its largest magnitude over all rows: attention carries
    an error of any row into the later ones.
    """
    from ref import hugging_face

    (RECORDINGS / "waypoints").mkdir(parents=True, exist_ok=True)
    for name in tiny.WAYPOINTS:
        model = tiny.TINY[name]
        ids = tiny.prompt(model, POSITIONS)
        seen = hugging_face.run(model, ids)
        given = {
            "in/ids": np.array(ids, np.int32),
            "in/rows": ROWS,
            "in/names": np.array(list(seen)),
            "in/peaks": np.array([np.abs(value).max() for value in seen.values()]),
        }
        with tempfile.TemporaryDirectory() as folder:
            given["in/checksum"] = np.array(tiny.write(model, Path(folder) / "model.gguf"))
        kept = {key: value[ROWS] for key, value in seen.items()}
        np.savez_compressed(RECORDINGS / "waypoints" / f"{name}.npz", **given, **kept)
        print(f"{name}: {len(seen)} waypoints")


def _peer_logits(peer: Path, model: Path, ids: list[int], vocab: int, kv: str) -> Floats:
    """llama.cpp's logits of every position, [positions, vocabulary]."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "ids", Path(folder) / "logits"
        given.write_text(" ".join(map(str, ids)) + "\n")
        subprocess.run([peer / "peer", "logits", model, given, out, kv], check=True)
        return np.fromfile(out, np.float32).reshape(len(ids), vocab)


def closeness(peer: Path) -> None:
    """closeness.npz with the ids and transformers' logits; closeness.json with the divergences.

    For each model and format, as means over all positions of KL(transformers || llama.cpp):

        f16, f32    from the model's original float32 numbers: what the format costs, and the engine
        own_f16,    from the numbers that the file holds: what the engine adds of its own
        own_f32

    llama.cpp runs twice: f16 is as it comes, with keys and values in half precision and flash
    attention; f32 has them in float32 and no flash attention, the nearest it gets.
    """
    from ref import hugging_face

    arrays: dict[str, Any] = {}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in tiny.WIDE:
            model = tiny.TINY[name]
            ids = tiny.prompt(model, CLOSENESS_POSITIONS)
            original = hugging_face.run(model, ids)["logits"]
            arrays[f"{name}/ids"], arrays[f"{name}/logits"] = np.array(ids, np.int32), original
            found[name] = {}
            for form in tiny.FORMATS:
                path = Path(folder) / f"{name}-{form}.gguf"
                row: dict[str, Any] = {"checksum": tiny.write(model, path, form)}
                same = hugging_face.run(model, ids, form)["logits"]
                for kv in ("f16", "f32"):
                    theirs = _peer_logits(peer, path, ids, model.vocab, kv)
                    row[kv] = divergence(original, theirs)
                    row[f"own_{kv}"] = divergence(same, theirs)
                found[name][form] = row
                numbers = ", ".join(f"{k} {v:.2e}" for k, v in row.items() if k != "checksum")
                print(f"{name} {form}: {numbers}", flush=True)
                path.unlink()
    np.savez_compressed(RECORDINGS / "closeness.npz", **arrays)
    (RECORDINGS / "closeness.json").write_text(json.dumps(found, indent=1) + "\n")


def _peer_ids(peer: Path, model: Path, prompt: Prompt) -> list[int]:
    """The ids that llama.cpp makes of the text, <bos> as the file says."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(prompt.text)
        file.flush()
        command = [peer / "peer", "tokens", model, file.name, str(int(prompt.special))]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(word) for word in made.stdout.split()]


def greedy(peer: Path, weights: Path) -> None:
    """One json.gz a model: for each prompt its text and ids, llama.cpp's ids and top-two gaps.

    64 tokens are drawn whether or not one of them ends the text: every step compares.
    """
    (RECORDINGS / "greedy").mkdir(parents=True, exist_ok=True)
    for file_name, prompts in PROMPTS.items():
        model = weights / file_name
        given = [_peer_ids(peer, model, prompt) for prompt in prompts]
        with tempfile.NamedTemporaryFile("w") as file:
            file.writelines(" ".join(map(str, ids)) + "\n" for ids in given)
            file.flush()
            command = [peer / "peer", "greedy", model, file.name, str(GREEDY_TOKENS), str(THREADS)]
            made = subprocess.run(command, check=True, capture_output=True, text=True)
        rows = []
        for prompt, ids, line in zip(prompts, given, made.stdout.splitlines(), strict=True):
            words = line.split()
            rows.append(
                {
                    "name": prompt.name,
                    "text": prompt.text,
                    "special": prompt.special,
                    "prompt_ids": ids,
                    "ids": [int(word) for word in words[0::2]],
                    "gaps": [round(float(word), 4) for word in words[1::2]],
                }
            )
            print(
                f"{file_name} {prompt.name}: {len(ids)} tokens, least gap {min(rows[-1]['gaps'])}"
            )
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        recording = {"file": file_name, "sha256": digest, "prompts": rows}
        packed = gzip.compress(json.dumps(recording, ensure_ascii=False).encode(), mtime=0)
        (RECORDINGS / "greedy" / f"{model.stem}.json.gz").write_bytes(packed)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ref.record", description=__doc__)
    parser.add_argument(
        "what", nargs="+", choices=["waypoints", "closeness", "greedy", "converter"]
    )
    parser.add_argument("--peer", type=Path, help="folder of llama.cpp's programs and `peer`")
    parser.add_argument("--weights", type=Path, help="folder of the real models")
    parser.add_argument("--llama-cpp", type=Path, help="the checkout, for its converter")
    args = parser.parse_args()
    if "waypoints" in args.what:
        waypoints()
    if "closeness" in args.what:
        closeness(args.peer)
    if "greedy" in args.what:
        greedy(args.peer, args.weights)
    if "converter" in args.what:
        from ref import convert

        for name, model in tiny.TINY.items():
            print(name, convert.differences(model, args.llama_cpp) or "as the converter writes it")


if __name__ == "__main__":
    main()
