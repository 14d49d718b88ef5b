"""Vectors that were recorded, and how far a model is from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from golem_core.embedding import Embedding
from golem_core.errors import BadRequest, NotFound


def read(path: Path) -> list[dict[str, Any]]:
    """The cases of a file: objects with `text`, `embedding` and perhaps `ids`.

    Raises `NotFound`, and `BadRequest` for a file that has none, since comparing with nothing would
    always succeed.
    """
    if not path.is_file():
        raise NotFound(f"no file {path}")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{path} is no JSON: {error}") from None
    if isinstance(found, dict):
        found = found.get("cases")
    if not isinstance(found, list) or not found:
        raise BadRequest(f"{path} has no cases")
    for i, case in enumerate(found):
        if not isinstance(case, dict) or not isinstance(case.get("text"), str):
            raise BadRequest(f"case {i} of {path} has no text")
        if not isinstance(case.get("embedding"), list) or not case["embedding"]:
            raise BadRequest(f"case {i} of {path} has no embedding")
    return found


def compare(model: Embedding, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each case comes to: text, whether ids are equal, difference, cosine."""
    result = model.embed([case["text"] for case in cases], prompt="")
    made = []
    for i, case in enumerate(cases):
        wanted = np.asarray(case["embedding"], np.float64)
        got = result.vectors[i].astype(np.float64)
        if wanted.shape != got.shape:
            raise BadRequest(f"case {i} has {len(wanted)} numbers, the model makes {len(got)}")
        ids = None
        if case.get("ids") is not None:
            given = [int(token) for token in case["ids"]]
            ids = model.tokenize(case["text"]) == given
        lengths = float(np.linalg.norm(wanted) * np.linalg.norm(got))
        made.append(
            {
                "text": case["text"],
                "ids": ids,
                "difference": float(np.abs(wanted - got).max()),
                "cosine": float(wanted @ got) / max(lengths, 1e-12),
            }
        )
    return made
