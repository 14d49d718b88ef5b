"""From a model to a running engine: the context, the pools, the compiled program."""

from __future__ import annotations

from typing import NamedTuple

from golem_core.engine.draft import WAYS, Block, Recurrence
from golem_core.engine.engine import Engine
from golem_core.errors import BadRequest, NoMemory, Unsupported
from golem_core.graph import PAGE, Graph, compile
from golem_core.memory import available_memory, pages_for
from golem_core.model import Generator
from golem_core.text import Tokenizer
from golem_core.weights import Weights

# The context where none is asked for: a long conversation, and a pool that a small machine has.
CONTEXT = 8192
# Columns of a pass. Wider reads no faster on a processor.
WIDTH = 512
# Snapshots of state for each conversation: the end of its prompt, the end of a beginning that it
# shares, and the last page that it has passed.
SNAPSHOTS = 3


class Room(NamedTuple):
    """How much a program has room for."""

    pages: tuple[int, ...]  # of each group
    states: int  # slots; 0 where nothing is recurrent


class Plan(NamedTuple):
    """What is to be compiled."""

    graph: Graph
    room: Room
    outputs: int  # most rows of logits of a pass
    guesses: int  # of a sequence at a time, at most


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
    draft: str = "off",
) -> Engine:
    """Compiles `model` for `device` and starts an engine over it.

    tokenizer      by default the model's own
    context        the most tokens of a sequence; None: what the model was trained for, at most 8192
    max_sequences  the most that run at a time
    threads        workers of the processor backend; None: all that it may use
    width          the most columns of a pass
    memory         bytes for pages and states; None: at most half of what is available
    draft          how next tokens are guessed: ``auto``, ``off``, ``mtp``, ``ngram`` (see `Engine`)

    The pools hold one sequence of the whole context at least, and as many of them, up to
    `max_sequences`, as `memory` has room for. Raises `NoMemory` with both numbers where not even
    one fits, `BadRequest` for a context that the model was not trained for or a `draft` that golem
    does not know, `Unsupported` for ``mtp`` where the file has no prediction block.
    """
    context = choose_context(context, model.context)
    plan = choose_plan(model, weights, context, max(1, max_sequences), width, memory, draft)
    program = compile(
        plan.graph,
        device,
        width=width,
        outputs=plan.outputs,
        pages=plan.room.pages,
        states=plan.room.states,
        guesses=plan.guesses,
        threads=threads,
    )
    try:
        return Engine(
            program,
            model.tokenizer(weights) if tokenizer is None else tokenizer,
            context=context,
            max_sequences=max_sequences,
            suppressed=model.suppressed,
            draft=draft,
        )
    except BaseException:
        program.close()
        raise


def choose_plan(
    model: Generator,
    weights: Weights,
    context: int,
    sequences: int,
    width: int,
    memory: int | None,
    draft: str,
) -> Plan:
    """What `start_engine` compiles when it is given these; raises what it raises."""
    graph = record(model, weights, draft)
    drafts = most_drafts(graph, draft)
    room = choose_room(graph, context, sequences, width, memory, drafts)
    return Plan(graph, room, sequences + shared_drafts(sequences, drafts), drafts)


def record(model: Generator, weights: Weights, draft: str) -> Graph:
    """The pass of `model`, with its prediction block only where that is to draft.

    Raises `BadRequest` for a way of drafting that golem does not know, `Unsupported` for ``mtp``
    where the file has no prediction block.
    """
    if draft not in WAYS:
        raise BadRequest(f"draft is {draft!r}, expected one of {', '.join(WAYS)}", "draft")
    graph = Graph(weights, drafts=draft in ("auto", "mtp"))
    graph.result = model.forward(graph)
    if draft == "mtp" and graph.draft is None:
        raise Unsupported(
            f"draft is 'mtp', and {weights.path} has no prediction block; 'ngram' needs none"
        )
    return graph


def most_drafts(graph: Graph, draft: str) -> int:
    """Tokens that a sequence may guess at a time."""
    if draft == "off":
        return 0
    if graph.draft is None:
        return Recurrence.most
    return Block.MOST if any(op.kind == "pass_on" for op in graph.ops) else 1


def shared_drafts(sequences: int, drafts: int) -> int:
    """Guesses in a pass: a sequence alone may have all of its own, many have one each."""
    return max(sequences, drafts) if drafts else 0


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


def pool_sizes(graph: Graph, drafts: int = 0) -> tuple[list[int], int]:
    """Bytes of a page of each group, and of a slot of state with so many guesses behind it."""
    sizes = [0] * len(graph.windows)
    for cache in graph.caches:
        sizes[cache.group] += 2 * 2 * PAGE * cache.heads * cache.dim  # K and V, two bytes each
    slot = sum(state.size for state in graph.states)
    for op in graph.ops:
        if op.kind in ("conv", "previous"):
            slot += drafts * op.inputs[0].size
        elif op.kind == "delta":
            slot += drafts * op.attributes["state"].size // 16  # a key for 32 values, and these
    return sizes, 4 * slot


def choose_room(
    graph: Graph, context: int, sequences: int, width: int, memory: int | None, drafts: int = 0
) -> Room:
    """Room for at most so many sequences of `context` tokens that guess up to `drafts` each.

    A sequence that runs needs a slot for its state; the others are for snapshots. Raises `NoMemory`
    with both numbers where one sequence has no room.
    """
    sizes, slot = pool_sizes(graph, drafts)

    def pools(count: int, snapshots: int) -> Room:
        whole = pages_for(context)
        pages = tuple(
            # A window is read a pass at a time, and its end is kept for who goes on from there.
            count * (whole if window is None else min(whole, 2 * pages_for(window + width)))
            for window in graph.windows
        )
        return Room(pages, count * (1 + snapshots) if graph.states else 0)

    def total(room: Room) -> int:
        pages = sum(size * count for size, count in zip(sizes, room.pages, strict=True))
        return pages + room.states * slot

    choices = [pools(count, SNAPSHOTS) for count in range(sequences, 0, -1)]
    least = pools(1, 0)
    available = available_memory()
    most = available if memory is None else memory
    share = memory
    if share is None and available is not None:
        weights = sum(stored.nbytes for stored in graph.weights.tensors.values())
        share = max(0, available - weights) // 2
    for room in (*choices, pools(1, 1), least):
        if share is None or total(room) <= share:
            return room
    # One sequence may have more than its share, as long as there is so much.
    if most is not None and total(least) > most:
        kept = "keys and values" + (" and recurrent states" if graph.states else "")
        raise NoMemory(
            f"a sequence of {context} tokens needs {_size(total(least))} for its {kept} "
            f"and {_size(most)} is available; ask for a shorter context"
        )
    return least


def _size(count: int) -> str:
    """Bytes as people say them."""
    if count < 2**30:
        return f"{count / 2**20:.1f} MiB"
    return f"{count / 2**30:.2f} GiB"
