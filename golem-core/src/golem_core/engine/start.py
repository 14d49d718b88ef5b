"""From a model to a running engine: the context, the pool of pages, the compiled program."""

from __future__ import annotations

from golem_core.engine.engine import Engine
from golem_core.errors import BadRequest, NoMemory
from golem_core.graph import PAGE, Graph, compile
from golem_core.memory import available_memory, pages_for
from golem_core.model import Generator
from golem_core.text import Tokenizer
from golem_core.weights import Weights

# The context where none is asked for: a long conversation, and a pool that a small machine has.
CONTEXT = 8192
# Columns of a pass. Wider reads no faster on a processor.
WIDTH = 512


def start_engine(
    model: Generator,
    weights: Weights,
    *,
    tokenizer: Tokenizer | None = None,
    device: str = "cpu",
    context: int | None = None,
    max_sequences: int = 8,
    threads: int | None = None,
    width: int = WIDTH,
    memory: int | None = None,
) -> Engine:
    """Compiles `model` for `device` and starts an engine over it.

    tokenizer      by default the model's own
    context        the most tokens of a sequence; None: what the model was trained for, at most 8192
    max_sequences  the most that run at a time
    threads        workers of the processor backend; None: all that it may use
    width          the most columns of a pass
    memory         bytes for the pages; None: at most half of what is available

    The pool holds one sequence of the whole context at least, and as many of them, up to
    `max_sequences`, as `memory` has room for. Raises `NoMemory` with both numbers where not even
    one fits, `BadRequest` for a context that the model was not trained for.
    """
    context = choose_context(context, model.context)
    graph = Graph(weights)
    graph.result = model.forward(graph)
    pages = choose_pages(graph, context, max_sequences, width, memory)
    program = compile(
        graph, device, width=width, outputs=max(1, max_sequences), pages=pages, threads=threads
    )
    try:
        tokenizer = model.tokenizer(weights) if tokenizer is None else tokenizer
        return Engine(program, tokenizer, context=context, max_sequences=max_sequences)
    except BaseException:
        program.close()
        raise


def choose_context(asked: int | None, trained: int) -> int:
    """The context in tokens: what is asked for, or what was trained up to `CONTEXT`."""
    if asked is None:
        return min(trained, CONTEXT)
    if not 2 <= asked <= trained:
        raise BadRequest(
            f"context is {asked}, expected 2 to {trained}, which the model was trained for",
            "context",
        )
    return asked


def choose_pages(
    graph: Graph, context: int, sequences: int, width: int, memory: int | None
) -> tuple[int, ...]:
    """Pages for each group of `graph.windows`, for at most so many sequences of `context`."""
    sizes = [0] * len(graph.windows)
    for cache in graph.caches:
        sizes[cache.group] += 2 * 2 * PAGE * cache.heads * cache.dim  # K and V, two bytes each

    def pool(count: int) -> tuple[int, ...]:
        whole = pages_for(context)
        return tuple(
            # A window is read a pass at a time, and its end is kept for who goes on from there.
            count * (whole if window is None else min(whole, 2 * pages_for(window + width)))
            for window in graph.windows
        )

    def total(pages: tuple[int, ...]) -> int:
        return sum(size * count for size, count in zip(sizes, pages, strict=True))

    available = available_memory()
    room = memory
    if room is None and available is not None:
        weights = sum(stored.nbytes for stored in graph.weights.tensors.values())
        room = max(0, available - weights) // 2
    for count in range(sequences, 1, -1):
        if room is None or total(pool(count)) <= room:
            return pool(count)
    most = available if memory is None else memory
    if most is not None and total(pool(1)) > most:
        raise NoMemory(
            f"a sequence of {context} tokens needs {_size(total(pool(1)))} for its keys and values "
            f"and {_size(most)} is available; ask for a shorter context"
        )
    return pool(1)


def _size(count: int) -> str:
    """Bytes as people say them."""
    if count < 2**30:
        return f"{count / 2**20:.1f} MiB"
    return f"{count / 2**30:.2f} GiB"
