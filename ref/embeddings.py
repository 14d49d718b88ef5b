"""Records what torch makes of 200 texts with the real weights that tests/fetch_weights.py brings.

    python ref/embeddings.py WEIGHTS tests/vectors

Writes encoders.json (the texts) and for each model NAME.npz: ids of all texts, and the first 64
numbers of their unit vectors, by sentence-transformers in float32; and of 500 sentences, which
neighbours.json has, the five that are nearest to each, best first. Needs sentence-transformers.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import numpy as np

MODELS = ("all-MiniLM-L6-v2", "all-mpnet-base-v2")
KEPT = 64
NEAREST = 5
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "rain",
    "falls",
    "on",
    "green",
    "hills",
    "and",
    "people",
    "read",
    "letters",
    "about",
    "science",
    "music",
    "bread",
    "rivers",
    "engines",
    "winter",
    "markets",
    "children",
    "law",
    "history",
]
PIECES = (
    "naïve café Ünïcödé straße",
    "東京 日本語 漢字かな交じり文",
    "привет мир",
    "שלום עולם",
    "مرحبا بالعالم",
    "😀👍🏽🇩🇪 👩‍👩‍👧",
    "e\u0301 o\u0308 combining",
    "tabs\tand\nnewlines\r\n",
    "ＦＵＬＬ width ①②③",
    "[MASK] [SEP] </s>",
    "a\u200db zero\u200cwidth\u00a0space",
    "don't can't it's",
    "http://example.com/a?b=c#d",
    "x" * 150,
    "3.14159 1,000,000 $5 €7 50%",
    "\ufffd\x00\x07 controls",
    "नमस्ते दुनिया",
    "ไทยไม่มีช่องว่าง",
)


def texts() -> list[str]:
    """200 texts: empty, short, long, of many scripts."""
    rng = random.Random(7)
    made = ["", " ", "a", *PIECES, " ".join(WORDS * 30), "漢" * 700]
    while len(made) < 200:
        count = rng.choice((3, 8, 20, 60, 150))
        words = [rng.choice(PIECES if rng.random() < 0.1 else WORDS) for _ in range(count)]
        made.append(" ".join(words))
    return made


def sentences() -> list[str]:
    """500 sentences of 3 to 24 words."""
    rng = random.Random(11)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 24))) for _ in range(500)]


def nearest(vectors: np.ndarray) -> np.ndarray:
    """The places of the `NEAREST` others by cosine, best first, [texts, NEAREST]."""
    cosines = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(cosines, -1)
    return np.argsort(-cosines, axis=1, kind="stable")[:, :NEAREST]


def main() -> None:
    """Writes the files."""
    from sentence_transformers import SentenceTransformer

    weights, out = Path(sys.argv[1]), Path(sys.argv[2])
    given = texts()
    (out / "encoders.json").write_text(json.dumps(given, ensure_ascii=False) + "\n", "utf-8")
    (out / "neighbours.json").write_text(json.dumps(sentences(), indent=0) + "\n", "utf-8")
    for name in MODELS:
        model = SentenceTransformer(str(weights / name), device="cpu")
        vectors = np.stack([model.encode(text) for text in given])  # alone: nothing is padded
        near = nearest(np.stack([model.encode(text) for text in sentences()]))
        whole = model.tokenizer(given, truncation=False)["input_ids"]
        np.savez_compressed(
            out / f"{name}.npz",
            vectors=vectors[:, :KEPT].astype(np.float32),
            nearest=near.astype(np.uint16),
            ids=np.concatenate([np.asarray(ids, np.uint16) for ids in whole]),
            counts=np.asarray([len(ids) for ids in whole], np.int32),
        )
        print(name, vectors.shape)


if __name__ == "__main__":
    main()
