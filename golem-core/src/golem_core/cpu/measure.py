"""What a program would take of memory on the processor, without making it."""

from __future__ import annotations

from collections.abc import Sequence

from golem_core.cpu.lower import _Lowering, scan_scratch
from golem_core.graph.graph import Graph


def measure(
    graph: Graph,
    *,
    width: int,
    outputs: int,
    pages: Sequence[int],
    states: int,
    guesses: int = 0,
    workers: int,
    kv: str = "f16",
) -> dict[str, int]:
    """Bytes by what they are for: the weights, the pages, the states and the passes themselves.

    The arguments are those of `golem_core.graph.compile`. Of a table that rows are looked up in,
    and that no product reads, only those rows come into memory: it is not counted. Nor are what
    the tape's own structures and tiles take, less than 100 kB a worker.
    """
    lowering = _Lowering(graph, width, outputs, tuple(pages), (states, guesses), workers, kv, ())
    try:
        where, packed = lowering.matrices.lay()
        moved = {weight.name for weight, _, _ in where}
        matrices = lowering.matrices.all()
        mapped = sum(w.stored.nbytes for w in matrices if w.name not in moved)
        arena = lowering.lay_values()
        own = max(arena.scratch, 4 * lowering.product_scratch(), 4 * scan_scratch(lowering.graph))
        return {
            "weights": packed + mapped,
            "pages": sum(group.pages * group.bytes_per_page for group in lowering.page_groups()),
            "states": states * lowering.slot_bytes(),
            "passes": arena.nbytes + workers * own,
        }
    finally:
        lowering.tape.close()
