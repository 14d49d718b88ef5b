"""golem-embed beside ONNX Runtime on the same checkpoint and texts, end to end.

    python bench/embeddings.py FOLDER --texts TEXTS.json [--threads 1 2] [--rounds 3] [--json OUT]

FOLDER is a checkpoint of BERT's kind from sentence-transformers with mean pooling. TEXTS has the
keys t12 and t128, a text each, and batch64, a list. Both engines take text and give unit vectors:
tokens by the same library, the model, the mean and the length. The first run writes the models of
ONNX Runtime below --work: a float32 export, and its dynamic int8 (per channel), which are then only
read. ONNX Runtime pads a batch, so it is measured in batches of 1, 4, 8 and 16 and its best is
taken. In each round the engines run in turn, every other round the other way round; the table has
medians over all calls. Needs torch, transformers, onnx and onnxruntime.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (1, 4, 8, 16)  # batches of ONNX Runtime
SECONDS = 0.5  # of one measurement


def export(folder: Path, work: Path) -> tuple[Path, Path]:
    """The models of ONNX Runtime, written once."""
    plain, small = work / "f32.onnx", work / "int8.onnx"
    if not plain.exists():
        import torch
        from transformers import AutoModel

        work.mkdir(parents=True, exist_ok=True)
        model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        class Wrapped(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = model

            def forward(self, ids: Any, mask: Any) -> Any:
                return self.inner(input_ids=ids, attention_mask=mask).last_hidden_state

        ids = torch.ones(2, 16, dtype=torch.long)
        axes = {"ids": {0: "b", 1: "n"}, "mask": {0: "b", 1: "n"}, "hidden": {0: "b", 1: "n"}}
        torch.onnx.export(
            Wrapped(), (ids, torch.ones_like(ids)), str(plain), input_names=["ids", "mask"],
            output_names=["hidden"], dynamic_axes=axes, opset_version=17, dynamo=False,
        )  # fmt: skip
    if not small.exists():
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(plain, small, per_channel=True, weight_type=QuantType.QInt8)
    return plain, small


def onnx(
    path: Path, folder: Path, threads: int, length: int
) -> Callable[[Sequence[str], int], Any]:
    """Texts and a batch's size to vectors."""
    import onnxruntime
    from tokenizers import Tokenizer

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.no_padding()

    def encode(texts: Sequence[str], size: int) -> np.ndarray:
        made = [each.ids for each in tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(made)), key=lambda i: len(made[i]))
        out: list[Any] = [None] * len(made)
        for at in range(0, len(order), size):
            taken = order[at : at + size]
            longest = max(len(made[i]) for i in taken)
            ids = np.zeros((len(taken), longest), np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(taken):
                ids[row, : len(made[i])] = made[i]
                mask[row, : len(made[i])] = 1
            hidden = session.run(None, {"ids": ids, "mask": mask})[0]
            mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
            mean /= np.linalg.norm(mean, axis=1, keepdims=True)
            for row, i in enumerate(taken):
                out[i] = mean[row]
        return np.stack(out)

    return encode


def timed(call: Callable[[], Any]) -> list[float]:
    """Milliseconds of each call, for about `SECONDS`, at least three."""
    call()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begun))
    return times


def worker(arguments: argparse.Namespace) -> None:
    """One engine with so many threads, in a process of its own; prints JSON."""
    texts = json.loads(Path(arguments.texts).read_text(encoding="utf-8"))
    jobs = {"t12": [texts["t12"]], "t128": [texts["t128"]], "batch64": texts["batch64"]}
    engine, threads, folder = arguments.engine, arguments.threads[0], Path(arguments.folder)
    found: dict[str, Any] = {}
    if engine.startswith("golem"):
        import golem_core

        model = golem_core.load_embedder(
            folder, threads=threads, precision=engine.partition("-")[2] or "f32"
        )
        found["precision"] = model.precision
        for name, given in jobs.items():
            found[name] = timed(partial(model.encode, given))
    else:
        plain, small = export(folder, Path(arguments.work))
        limits = json.loads((folder / "sentence_bert_config.json").read_text(encoding="utf-8"))
        path = small if engine.endswith("int8") else plain
        encode = onnx(path, folder, threads, limits["max_seq_length"])
        for name, given in jobs.items():
            sizes = SIZES if len(given) > 1 else (1,)
            all_ = [timed(partial(encode, given, size)) for size in sizes]
            found[name] = min(all_, key=statistics.median)
    print(json.dumps(found))


def main() -> None:
    """Runs the engines in turn and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--texts", required=True)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=["onnx", "onnx-int8", "golem"])
    parser.add_argument("--work", default="/tmp/golem-bench-onnx")
    parser.add_argument("--json")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        worker(arguments)
        return
    export(Path(arguments.folder), Path(arguments.work))
    times: dict[tuple[str, int, str], list[float]] = {}
    for round_ in range(arguments.rounds):
        order = arguments.engines[:: 1 if round_ % 2 == 0 else -1]
        for threads in arguments.threads:
            for engine in order:
                command = [
                    *(sys.executable, __file__, arguments.folder, "--texts", arguments.texts),
                    *("--threads", str(threads), "--work", arguments.work, "--engine", engine),
                ]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                for name, each in json.loads(done.stdout.splitlines()[-1]).items():
                    if isinstance(each, list):
                        times.setdefault((engine, threads, name), []).extend(each)
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; milliseconds")
    rows = []
    for threads in arguments.threads:
        for name in ("t12", "t128", "batch64"):
            first = statistics.median(times[arguments.engines[0], threads, name])
            line = []
            for engine in arguments.engines:
                all_ = times[engine, threads, name]
                median = statistics.median(all_)
                rows.append({"engine": engine, "threads": threads, "texts": name, "median": median,
                             "least": min(all_), "calls": len(all_)})  # fmt: skip
                line.append(f"{engine} {median:.2f} ({median / first:.2f})")
            print(f"{name:8} {threads} threads: " + "   ".join(line))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
