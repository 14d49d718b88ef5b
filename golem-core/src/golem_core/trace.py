"""Reads what every operation computes out of a pass: the waypoints of one prompt.

A program for answering keeps only what the next operation needs and fuses what it can. For a trace
the same record is compiled again, so that every waypoint that is asked for survives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from golem_core.errors import BadRequest
from golem_core.graph import PAGE, Graph, compile
from golem_core.graph.program import Batch
from golem_core.model import Generator
from golem_core.weights import Weights

__all__ = ["trace"]


def trace(
    model: Generator,
    weights: Weights,
    ids: Sequence[int],
    *,
    device: str = "cpu",
    threads: int | None = None,
    names: Sequence[str] | None = None,
    every_logit: bool = False,
    kv: str = "f16",
) -> dict[str, np.ndarray]:
    """The waypoints of a prompt, in the order of the record: float32 [tokens, …] by name.

    names        those that are wanted; None is all. Raises `BadRequest` for one that is not there
    every_logit  logits, and what is computed for them alone, for every token, not the last alone
    kv           the type that keys and values are kept in: ``f16`` or ``f32``

    The prompt is read in one pass, or in as few as the backend's width allows.
    """
    if not len(ids):
        raise BadRequest("there is nothing to trace: the prompt has no token", "prompt")
    if not 0 <= min(ids) <= max(ids) < model.vocab:
        raise BadRequest(f"the prompt has a token outside 0 to {model.vocab - 1}", "prompt")
    graph = Graph(weights)
    graph.result = model.forward(graph)
    known = graph.named()
    for name in names or ():
        if name not in known:
            raise BadRequest(f"no waypoint {name}; the first are {', '.join(list(known)[:5])}")
    n = len(ids)
    pages = -(-n // PAGE)
    program = compile(
        graph,
        device,
        width=n,
        outputs=n if every_logit else 1,
        pages=[pages] * len(graph.windows),
        states=1,
        threads=threads,
        kv=kv,
        keep=None if names is None else list(names),
    )
    try:
        found: dict[str, list[np.ndarray]] = {}
        tables = tuple(np.arange(pages, dtype=np.int32)[None, :] for _ in graph.windows)
        for start in range(0, n, program.width):
            end = min(n, start + program.width)
            if every_logit:
                outputs = np.arange(end - start, dtype=np.int32)
            else:  # only the prompt's last token; a pass must want at least one row
                outputs = np.array([end - start - 1], dtype=np.int32)
            batch = Batch(
                ids=np.asarray(ids[start:end], dtype=np.int32),
                positions=np.arange(start, end, dtype=np.int32),
                sequence=np.zeros(end - start, dtype=np.int32),
                pages=tables,
                outputs=outputs,
            )
            if program.states is not None:
                batch.states = np.array([0 if start else -1], np.int32)
                batch.keeps = np.full(end - start, -1, np.int32)
                batch.keeps[-1] = 0
            for name, values in program.trace(batch, names).items():
                picked = known[name].rows == "m" and not every_logit
                found[name] = [] if picked else found.get(name, [])
                found[name].append(np.array(values))
    finally:
        program.close()
    return {name: np.concatenate(found[name]) for name in known if name in found}
