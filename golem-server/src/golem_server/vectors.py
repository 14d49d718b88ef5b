"""What the APIs for vectors and scores share: what a request names, and how it is asked."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from golem_core.embedding import Embedded, Ranked
from golem_core.errors import ContextFull
from golem_server.errors import ApiError
from golem_server.held import ServedEmbedder
from golem_server.parse import Body, invalid

__all__ = ["MOST", "form_of", "inputs_of", "ranked", "vectors"]

MOST = 2048  # texts of a request, as OpenAI's own limit


def inputs_of(body: Body, key: str = "input") -> list[str | list[int]]:
    """A text, several, the ids of one, or those of several; raises a 400 for anything else."""
    given = body.get(key)
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise invalid(f"{key} must be a text, a list of texts, or token ids; not empty", key)
    if all(_is_id(token) for token in given):
        return [given]
    if len(given) > MOST:
        raise invalid(f"{key} has {len(given)} texts, more than {MOST}", key)
    found: list[str | list[int]] = []
    for i, one in enumerate(given):
        if isinstance(one, str) or (isinstance(one, list) and one and all(map(_is_id, one))):
            found.append(one)
        else:
            raise invalid(f"{key}[{i}] is neither a text nor a list of token ids", f"{key}[{i}]")
    return found


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


async def vectors(
    served: ServedEmbedder,
    texts: list[str | list[int]],
    *,
    dimensions: int | None = None,
    prompt: str | None = None,
    truncate: bool = True,
) -> Embedded:
    """Vectors of texts; texts of other requests that wait at the same time share their passes."""
    try:
        return await served.asked(
            served.embedding.embed, texts, dimensions=dimensions, prompt=prompt, truncate=truncate
        )
    except ContextFull as error:
        raise ApiError(400, str(error), param="input", code="context_length_exceeded") from None


async def ranked(served: ServedEmbedder, query: str, documents: list[str]) -> Ranked:
    """Scores of documents for a query."""
    return await served.asked(served.embedding.rank, query, documents)


def form_of(vector: np.ndarray, form: str) -> Any:
    """A list of numbers, or with ``base64`` the bytes of little-endian float32."""
    if form == "base64":
        return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode()
    return vector.tolist()
