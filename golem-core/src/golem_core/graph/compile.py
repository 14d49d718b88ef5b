"""From a recorded graph to a program of one backend."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from golem_core.errors import BadRequest
from golem_core.graph.graph import Graph
from golem_core.graph.program import Program

# A backend is imported when it is asked for: `vulkan` needs what not every machine has.
BACKENDS = {
    "reference": "golem_core.reference.program",
    "cpu": "golem_core.cpu.lower",
    "vulkan": "golem_core.vulkan.lower",
}


def compile(
    graph: Graph,
    device: str = "cpu",
    *,
    width: int = 512,
    outputs: int = 64,
    pages: Sequence[int] | None = None,
    states: int = 8,
    guesses: int = 0,
    threads: int | None = None,
    kv: str = "f16",
    keep: Sequence[str] | None = (),
) -> Program:
    """A program for `graph.result` on `device`.

    width    most columns of a pass; a backend may settle for fewer, `Program.width` says
    outputs  most rows of logits of a pass
    pages    room for so many pages of 32 positions in each group of `graph.windows`; by default
             64 of each, a sequence of 2,048 positions
    states   slots for what sequences carry, in a program that has states
    guesses  columns after a kept state that a sequence may go on from, see `Batch.replays`
    threads  workers of the processor backend; None: all that it may use
    kv       the type that keys and values are kept in, ``f16`` or ``f32``
    keep     waypoints that `Program.trace` will be asked for, which must not vanish in a fusion;
             None: all of them

    Raises `BadRequest` for a device that golem does not have and `Unsupported` where the device
    lacks a kernel for a weight's format.
    """
    name, _, _number = device.partition(":")
    if name not in BACKENDS:
        raise BadRequest(f"no device {device!r}; golem has {', '.join(BACKENDS)}", "device")
    if graph.result is None:
        raise ValueError("the graph has no result: set graph.result to the logits")
    rooms = tuple(pages) if pages is not None else (64,) * len(graph.windows)
    if len(rooms) != len(graph.windows):
        raise ValueError(f"{len(rooms)} page counts for {len(graph.windows)} groups")
    backend = import_module(BACKENDS[name])
    program: Program = backend.lower(
        graph,
        device=device,
        width=width,
        outputs=outputs,
        pages=rooms,
        states=states if graph.states else 0,
        guesses=guesses if graph.states else 0,
        threads=threads,
        kv=kv,
        keep=None if keep is None else tuple(keep),
    )
    return program
