"""The operations on single rows as `Tape.add_rows` is told of them: a dict of what each needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from golem_core.cpu.arena import Arena
from golem_core.cpu.matrices import format_number
from golem_core.errors import Unsupported
from golem_core.graph.record import Op, Tensor
from golem_core.graph.rope import Rope


def angles(rope: Rope, arena: Arena) -> dict[str, Any]:
    """The cosines and sines that a rope turns by, of one row."""
    turns = np.ascontiguousarray(rope.frequencies(), dtype=np.float64)
    return {
        "kind": "angles",
        "out": arena.turns[rope],
        "half": rope.dims // 2,
        "turns": turns,
        "value": rope.magnitude,
    }


def row_op(op: Op, arena: Arena) -> dict[str, Any]:
    """One operation of the record."""
    shape = op.inputs[0].shape if op.inputs else ()
    made: dict[str, Any] = {"kind": op.kind}
    for key, tensor in zip("ab", op.inputs, strict=False):
        made[key] = arena.place_of(tensor)
    if op.output is not None:
        made["out"] = arena.place_of(op.output)
        made["size"] = op.output.size
    attributes = op.attributes
    if op.kind == "embed":
        table = op.weights[0]
        stored = table.stored
        made["table"] = stored.data
        made["rows"] = table.shape[0] - attributes["first"]
        made["by"], made["start"] = attributes["by"], attributes["first"]
        made["row_bytes"] = len(stored.data) // table.shape[0]
        made["format"] = format_number(table)
        if table.shape[1] % stored.format.block:
            raise Unsupported(f"{table.name}: rows of {table.shape[1]} are no whole blocks")
    elif op.kind == "layer_norm":
        made["heads"] = int(np.prod(shape[:-1], dtype=np.int64))
        made["dim"] = shape[-1]
        made["value"] = attributes["eps"]
        made["vector"], made["bias"] = (
            op.weights[i].floats() if len(op.weights) > i else None for i in range(2)
        )
    elif op.kind == "rms_norm":
        made["heads"] = int(np.prod(shape[:-1], dtype=np.int64))
        made["dim"] = shape[-1]
        made["value"] = attributes["eps"]
        made["vector"] = op.weights[0].floats() if op.weights else None
    elif op.kind == "rope":
        made["heads"], made["dim"] = shape
        made["half"] = attributes["rope"].dims // 2
        made["layout"] = attributes["rope"].layout
        made["b"] = arena.turns[attributes["rope"]]
    elif op.kind == "store":
        made["cache"] = attributes["cache"].index
    elif op.kind == "scale":
        weights = op.weights
        made["value"] = float(weights[0].floats()[0]) if weights else attributes["factor"]
    elif op.kind == "softcap":
        made["value"] = attributes["cap"]
    elif op.kind in ("glu", "activate"):
        made["act"] = attributes["act"]
        made["single"] = op.kind == "glu" and op.inputs[0].shape != op.inputs[1].shape
    elif op.kind == "concat":
        made["heads"] = op.inputs[0].size // shape[-1]
        made["dim"], made["count"] = shape[-1], op.inputs[1].shape[-1]
    elif op.kind == "slice":
        made["heads"], made["dim"] = op.inputs[0].size // shape[-1], shape[-1]
        made["start"], made["count"] = attributes["start"], op.output.shape[-1]  # type: ignore[union-attr]
    elif op.kind == "decay":
        made["vector"], made["bias"] = (w.floats() for w in op.weights)
    elif op.kind == "route":
        made["dim"], made["heads"] = shape[0], attributes["used"]
    elif op.kind == "combine":
        made["heads"], made["dim"] = shape
        made["vector"] = op.weights[0].floats() if op.weights else None
    elif op.kind in ("recall", "pass_on"):
        made["state"] = attributes["state"].index
    return made


def quantise(tensor: Tensor, arena: Arena, run: int) -> dict[str, Any]:
    """The codes of a row that products read, with a scale for each `run` of them."""
    return {
        "kind": "quantise",
        "a": arena.place_of(tensor),
        "size": tensor.size,
        "dim": run,
        "codes": arena.codes[arena.views[tensor]],
    }


def rounding(tensor: Tensor, arena: Arena) -> dict[str, Any]:
    """A row that products read rounded to bf16."""
    return {
        "kind": "round",
        "a": arena.place_of(tensor),
        "size": tensor.size,
        "out": arena.rounded[arena.views[tensor]],
    }
