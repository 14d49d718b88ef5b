"""Writes the recordings under tests/recordings: `python -m ref.record WHAT... --peer BIN`.

    waypoints   transformers' float32 waypoints of the tiny models (needs torch, transformers)
    closeness   transformers' logits of the wide tiny models, and how far llama.cpp's logits on the
                same numbers are from them in every format (needs --peer too)
    tinies      llama.cpp's greedy ids on the tiny models in float32 (needs --peer)
    greedy      llama.cpp's greedy ids on real models (needs --peer, --weights)
    converter   writes nothing: holds the tiny files against llama.cpp's converter (--llama-cpp)

--models NAMES limits the first two and the last to some of the tiny models. BIN is the folder of
programs that bench/build_peer.sh builds.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ref import tiny
from ref.compare import among, divergence, log_softmax
from ref.expand import expand
from ref.prompts import PROMPTS, Prompt
from ref.quantise import Floats
from ref.tiny_qwen35 import Qwen35

RECORDINGS = Path(__file__).parent.parent / "tests" / "recordings"

# Of a prompt of 48 tokens: the first, before and after a window and a page end, the last.
ROWS = np.array([0, 7, 16, 31, 32, 47], np.int32)
POSITIONS = 48
CLOSENESS_POSITIONS = 64
GREEDY_TOKENS = 64
TINY_PROMPT, TINY_TOKENS = 24, 48
TOP = 12  # of the likeliest tokens at a step of greedy text


def waypoints(names: Collection[str]) -> None:
    """One npz a model: what went in, the names and largest magnitudes, and each waypoint.

    Of a waypoint only ROWS are kept, and its largest magnitude over all rows: attention carries
    an error of any row into the later ones. Where there is a prediction block, its guesses too.
    """
    from ref import hugging_face, prediction

    (RECORDINGS / "waypoints").mkdir(parents=True, exist_ok=True)
    for name in (name for name in tiny.WAYPOINTS if name in names):
        model = tiny.TINY[name]
        ids = tiny.prompt(model, POSITIONS)
        seen = hugging_face.run(model, ids)
        given: dict[str, Any] = {
            "in/ids": np.array(ids, np.int32),
            "in/rows": ROWS,
            "in/names": np.array(list(seen)),
            "in/peaks": np.array([np.abs(value).max() for value in seen.values()]),
        }
        if isinstance(model, Qwen35) and model.predicts:
            given["in/guesses"] = prediction.logits(model, ids)[ROWS]
        with tempfile.TemporaryDirectory() as folder:
            given["in/checksum"] = np.array(tiny.write(model, Path(folder) / "model.gguf"))
        kept: dict[str, Any] = {key: value[ROWS] for key, value in seen.items()}
        np.savez_compressed(RECORDINGS / "waypoints" / f"{name}.npz", **given, **kept)
        print(f"{name}: {len(seen)} waypoints")


def _peer_logits(
    peer: Path, model: Path, ids: list[int], kv: str, count: int = 0, mode: str = "logits"
) -> Floats:
    """llama.cpp's logits of the last `count` positions, or all: [positions, vocabulary]."""
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "ids", Path(folder) / "logits"
        given.write_text(" ".join(map(str, ids)) + "\n")
        subprocess.run([peer / "peer", mode, model, given, out, kv, str(count)], check=True)
        return np.fromfile(out, np.float32).reshape(count or len(ids), -1)


def _distances(
    peer: Path, name: str, forms: Collection[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """A tiny model's ids and transformers' logits, and for each format the divergences from them.

    As means over all positions of KL(transformers || llama.cpp):

        f16, f32    from the model's original float32 numbers: what the format costs, and the engine
        own_f16,    from the numbers that the file holds: what the engine adds of its own
        own_f32

    llama.cpp runs twice: f16 is as it comes, with keys and values in half precision and flash
    attention; f32 has them in float32 and no flash attention, the nearest it gets.
    """
    from ref import hugging_face

    model = tiny.TINY[name]
    ids = tiny.prompt(model, CLOSENESS_POSITIONS)
    original = hugging_face.run(model, ids)["logits"]
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for form in forms:
            path = Path(folder) / f"{name}-{form}.gguf"
            row: dict[str, Any] = {"checksum": tiny.write(model, path, form)}
            same = hugging_face.run(model, ids, form)["logits"]
            for kv in ("f16", "f32"):
                theirs = _peer_logits(peer, path, ids, kv)
                row[kv] = divergence(original, theirs)
                row[f"own_{kv}"] = divergence(same, theirs)
            rows[form] = row
            numbers = ", ".join(f"{k} {v:.2e}" for k, v in row.items() if k != "checksum")
            print(f"{name} {form}: {numbers}", flush=True)
            path.unlink()
    return {"ids": np.array(ids, np.int32), "logits": original}, rows


def closeness(peer: Path, names: Collection[str]) -> None:
    """The ids, transformers' logits and llama.cpp's divergences from them, see `_distances`.

    closeness.npz and closeness.json have those of the models that are measured together, in every
    format; closeness/NAME.npz those of a model that is measured by itself, in a few.
    """
    if any(name in names for name in tiny.WIDE):
        arrays: dict[str, Any] = {}
        found = {}
        for name in tiny.WIDE:
            given, found[name] = _distances(peer, name, tiny.FORMATS)
            arrays |= {f"{name}/{key}": value for key, value in given.items()}
        np.savez_compressed(RECORDINGS / "closeness.npz", **arrays)
        (RECORDINGS / "closeness.json").write_text(json.dumps(found, indent=1) + "\n")
    (RECORDINGS / "closeness").mkdir(parents=True, exist_ok=True)
    for name in (name for name in tiny.ALONE if name in names):
        given, rows = _distances(peer, name, tiny.FEW)
        given["peer"] = np.array(json.dumps(rows))
        np.savez_compressed(RECORDINGS / "closeness" / f"{name}.npz", **given)


def _peer_ids(peer: Path, model: Path, prompt: Prompt) -> list[int]:
    """The ids that llama.cpp makes of the text, <bos> as the file says."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(prompt.text)
        file.flush()
        command = [str(peer / "peer"), "tokens", str(model), file.name, str(int(prompt.special))]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(word) for word in made.stdout.split()]


def _peer_greedy(
    peer: Path, model: Path, prompts: list[list[int]], kv: str, count: int = GREEDY_TOKENS
) -> list[tuple[list[int], list[float]]]:
    """For each prompt the ids that llama.cpp draws, and the top-two gaps."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.writelines(" ".join(map(str, ids)) + "\n" for ids in prompts)
        file.flush()
        command = [str(peer / "peer"), "greedy", str(model), file.name, str(count), kv]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [line.split() for line in made.stdout.splitlines()]
    return [
        ([int(word) for word in line[0::2]], [round(float(word), 4) for word in line[1::2]])
        for line in lines
    ]


def greedy(peer: Path, weights: Path) -> None:
    """One json.gz a model. For each prompt its text and ids, and two greedy continuations.

    "shipped" is llama.cpp on the file as it comes, which rounds activations to eight bits. "exact"
    is llama.cpp on the file's numbers written out as float32, with nothing else rounded, and its
    TOP likeliest tokens at each step with their logarithmic probabilities. "peer" says how
    far the shipped file is from that when it follows the exact ids: the mean over the steps of
    the divergence among the likeliest tokens, one token at a time ("follow") and the whole
    text in one pass ("pass"), and the root of the mean squared change of the top-two gap between
    those two. 64 tokens are drawn whether or not one of them ends the text.
    """
    (RECORDINGS / "greedy").mkdir(parents=True, exist_ok=True)
    for file_name, prompts in PROMPTS.items():
        model = weights / file_name
        given = [_peer_ids(peer, model, prompt) for prompt in prompts]
        with tempfile.TemporaryDirectory(dir=weights) as folder:
            expanded = Path(folder) / file_name
            expand(model, expanded)
            shipped = _peer_greedy(peer, model, given, "f16")
            exact = _peer_greedy(peer, expanded, given, "f32")
            rows = []
            for number, prompt in enumerate(prompts):
                text = (given[number] + exact[number][0])[:-1]
                row = _continuations(peer, model, expanded, text)
                row["shipped"] = dict(zip(("ids", "gaps"), shipped[number], strict=True))
                row["exact"] |= dict(zip(("ids", "gaps"), exact[number], strict=True))
                plain = {"name": prompt.name, "text": prompt.text, "special": prompt.special}
                rows.append({**plain, "prompt_ids": given[number], **row})
                print(f"{file_name} {prompt.name}: {len(given[number])}, {row['peer']}", flush=True)
        digest = hashlib.sha256(model.read_bytes()).hexdigest()
        recording = {"file": file_name, "sha256": digest, "prompts": rows}
        packed = gzip.compress(json.dumps(recording, ensure_ascii=False).encode(), mtime=0)
        (RECORDINGS / "greedy" / f"{model.stem}.json.gz").write_bytes(packed)


def _continuations(peer: Path, model: Path, expanded: Path, text: list[int]) -> dict[str, Any]:
    """What llama.cpp thinks of the last 64 positions of a text: exactly, and as it comes."""
    exact = _peer_logits(peer, expanded, text, "f32", GREEDY_TOKENS)
    follow = _peer_logits(peer, model, text, "f16", GREEDY_TOKENS, "follow")
    whole = _peer_logits(peer, model, text, "f16", GREEDY_TOKENS)
    top = np.argsort(-exact, axis=1)[:, :TOP]
    logs = log_softmax(np.take_along_axis(exact, top, axis=1))
    gaps = [np.diff(np.sort(logits, axis=1)[:, -2:], axis=1) for logits in (follow, whole)]
    return {
        "exact": {"top": top.tolist(), "logs": np.round(logs, 3).tolist()},
        "peer": {
            "follow": among(logs, top, follow),
            "pass": among(logs, top, whole),
            "parted": int((follow.argmax(axis=1) != exact.argmax(axis=1)).sum()),
            "gap_change": float(np.sqrt(np.mean((gaps[0] - gaps[1]) ** 2))),
        },
    }


def tinies(peer: Path, names: Collection[str]) -> None:
    """tinies.json: for each tiny model its prompt, and llama.cpp's greedy ids with top-two gaps.

    In float32 with keys and values in float32, so nothing but the order of sums and llama.cpp's
    half-precision table of GELU can move a gap. Models that llama.cpp does not load are left out.
    """
    path = RECORDINGS / "tinies.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for name in (name for name in tiny.TINY if name in names):
        prompt = [int(token) for token in tiny.prompt(tiny.TINY[name], TINY_PROMPT)]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.gguf"
            checksum = tiny.write(tiny.TINY[name], file)
            try:
                ((ids, gaps),) = _peer_greedy(peer, file, [prompt], "f32", TINY_TOKENS)
            except subprocess.CalledProcessError:
                print(f"{name}: llama.cpp does not load it")
                found.pop(name, None)
                continue
        found[name] = {"checksum": checksum, "prompt": prompt, "ids": ids, "gaps": gaps}
        print(f"{name}: {len(set(ids))} different tokens, smallest gap {min(gaps)}")
    path.write_text(
        "{\n"
        + ",\n".join(
            f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(found.items())
        )
        + "\n}\n"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m ref.record", description=__doc__)
    parser.add_argument(
        "what", nargs="+", choices=["waypoints", "closeness", "tinies", "greedy", "converter"]
    )
    parser.add_argument("--peer", type=Path, help="folder of llama.cpp's programs and `peer`")
    parser.add_argument("--weights", type=Path, help="folder of the real models")
    parser.add_argument("--llama-cpp", type=Path, help="the checkout, for its converter")
    parser.add_argument("--models", nargs="+", choices=list(tiny.TINY), default=list(tiny.TINY))
    args = parser.parse_args()
    if "waypoints" in args.what:
        waypoints(args.models)
    if "closeness" in args.what:
        closeness(args.peer, args.models)
    if "tinies" in args.what:
        tinies(args.peer, args.models)
    if "greedy" in args.what:
        greedy(args.peer, args.weights)
    if "converter" in args.what:
        from ref import convert

        for name in args.models:
            wrong = convert.differences(tiny.TINY[name], args.llama_cpp)
            print(name, wrong or "as the converter writes it")


if __name__ == "__main__":
    main()
