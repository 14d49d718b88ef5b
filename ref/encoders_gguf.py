"""Writes the tiny encoders to GGUF by llama.cpp's own converter, and what llama.cpp makes of texts.

    python -m ref.encoders_gguf golem-embed/tests/checkpoints golem-embed/tests/gguf
        --llama-cpp PEER/llama.cpp --server PEER/llama.cpp/build/bin/llama-server

The checkpoints are those of ref/encoders.py. Each becomes a file in float32; golden.json has, by
file, the ids and vectors (or scores) of texts. Two things are not the converter's: it knows
vocabularies by what they make of one text, so the tiny ones are named to it; and it reads Gemma's
from SentencePiece's own file, so the pieces are written here as it would have. Needs torch,
transformers and safetensors.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

# Checkpoint to the name that the converter is told for its vocabulary.
FILES = {
    "bert": "jina-v2-en",
    "nomic": "jina-v2-en",
    "modernbert": "modern-bert",
    "gemma3": "",
    "qwen3": "qwen2",
    "cross-bert": "jina-v2-en",
    "cross-modernbert": "modern-bert",
    "cross-xlm-roberta": "",
}
QUERY = "the fox"

# Run with the checkout's own `gguf`, which is newer than the published one, so in a process apart.
CONVERT = """
import json, sys, gguf
from pathlib import Path
from conversion import get_model_class
folder, out, name = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
config = json.loads((folder / "config.json").read_text())
kind = get_model_class(config["architectures"][0])
kind.get_vocab_base_pre = lambda self, tokenizer: name

def pieces(self):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {t["id"]: t["content"] for t in tokenizer["added_tokens"]}
    unigram = tokenizer["model"]["type"] == "Unigram"
    if unigram:
        vocab = [(token, i, score) for i, (token, score) in enumerate(tokenizer["model"]["vocab"])]
        vocab += [("<extra>", i, 0.0) for i in range(len(vocab), config["vocab_size"])]
    else:
        vocab = sorted((i, token) for token, i in tokenizer["model"]["vocab"].items())
        vocab = [(token, i, -float(i)) for i, token in vocab]
    kinds, types = [], gguf.TokenType
    for token, i, _ in vocab:
        byte = token.startswith("<0x") and len(token) == 6
        known = types.BYTE if byte else types.NORMAL
        if i in special:
            known = types.UNKNOWN if token == "<unk>" else types.CONTROL
        kinds.append(known)
    writer = self.gguf_writer
    writer.add_tokenizer_model("t5" if unigram else "llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([token for token, _, _ in vocab])
    writer.add_token_scores([score for _, _, score in vocab])
    writer.add_token_types(kinds)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    if unigram:
        writer.add_token_type_count(1)
        writer.add_add_space_prefix(True)
        writer.add_remove_extra_whitespaces(True)
        writer.add_bos_token_id(0)
        writer.add_pad_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_sep_token_id(2)
        writer.add_unk_token_id(3)
        writer.add_add_sep_token(True)
        return
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_space_prefix(False)
    writer.add_sliding_window_pattern(3)  # not written, since the published model has the usual 6

if not name:
    kind.set_vocab = pieces
if config["model_type"] == "gemma3_text":
    # Its rows are cut to the tokens, of which this counts the special ones twice.
    kind.modify_tensors = lambda self, data, tensor, bid, inner=kind.modify_tensors: inner(
        self, data[:len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])]
        if "embed_tokens" in tensor else data, tensor, bid)
if config["model_type"] == "modernbert":
    # Keys of the published files that transformers no longer writes.
    from conversion.base import ModelBase
    found = ModelBase.load_hparams
    ModelBase.load_hparams = staticmethod(lambda *a: {
        **found(*a), "layer_norm_eps": config["norm_eps"], "global_attn_every_n_layers": 3})
if config["model_type"] == "nomic_bert":
    # Of lengths it takes the published two (none is computed with), and the authors' keys, which
    # transformers would turn into its own.
    from conversion.base import ModelBase
    ModelBase.load_hparams = staticmethod(
        lambda *a: {**config, "n_positions": 8192, "max_trained_positions": 2048})
kind(folder, gguf.LlamaFileType.ALL_F32, out, eager=True).write()
"""


def convert(folder: Path, out: Path, vocabulary: str, llama_cpp: Path) -> None:
    """Runs the converter of the llama.cpp checkout on a checkpoint."""
    subprocess.run(
        [sys.executable, "-c", CONVERT, str(folder), str(out), vocabulary],
        env={**os.environ, "PYTHONPATH": f"{llama_cpp / 'gguf-py'}{os.pathsep}{llama_cpp}"},
        check=True,
        stdout=subprocess.DEVNULL,
    )


class Server:
    """llama.cpp's server with a file that makes vectors, or scores."""

    def __init__(self, program: Path, file: Path, ranks: bool) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        words = ["--rerank"] if ranks else ["--embeddings"]
        self.process = subprocess.Popen(
            [str(program), "-m", str(file), "--port", str(self.port), "-t", "1", "-c", "128",
             "-b", "128", "-ub", "128", "-np", "1", "-fa", "off", "--no-warmup",
             "-ctk", "f32", "-ctv", "f32", *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(300):
            try:
                self.ask("/health")
            except OSError:
                time.sleep(0.1)
                if self.process.poll() is not None:
                    raise RuntimeError(f"{program} does not run {file}") from None
            else:
                return
        raise RuntimeError(f"{program} does not answer")

    def ask(self, path: str, **given: Any) -> Any:
        """What the server answers, of JSON."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(given).encode() if given else None,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())

    def close(self) -> None:
        """Ends it."""
        self.process.terminate()
        self.process.wait()


def record(server: Server, cases: list[dict[str, Any]], ranks: bool) -> list[dict[str, Any]]:
    """Each text's ids and vector, or its score behind QUERY."""
    texts = [case["text"] for case in cases][: 5 if ranks else 6]  # the last one is too long
    if ranks:
        found = server.ask("/rerank", query=QUERY, documents=texts)["results"]
        scores = {row["index"]: row["relevance_score"] for row in found}
        return [{"text": text, "score": scores[i]} for i, text in enumerate(texts)]
    made = []
    for text in texts:
        ids = server.ask("/tokenize", content=text, add_special=True)["tokens"]
        vector = server.ask("/v1/embeddings", input=ids)["data"][0]["embedding"]
        made.append({"text": text, "ids": ids, "embedding": vector})
    return made


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoints", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--llama-cpp", type=Path, required=True)
    parser.add_argument("--server", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    golden = {}
    for name, vocabulary in FILES.items():
        folder, file = arguments.checkpoints / name, arguments.out / f"{name}.gguf"
        convert(folder, file, vocabulary, arguments.llama_cpp)
        cases = json.loads((folder / "golden.json").read_text(encoding="utf-8"))["cases"]
        ranks = name.startswith("cross-")
        server = Server(arguments.server, file, ranks)
        try:
            golden[name] = record(server, cases, ranks)
        finally:
            server.close()
        print(name, file.stat().st_size)
    (arguments.out / "golden.json").write_text(
        json.dumps(golden, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
