"""The memory of a server's models: what each needs, and whether another one fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import golem_core
from golem_core import Embedding, LanguageModel, Speaking, plugins
from golem_core.api import open_generator
from golem_core.cpu.measure import measure
from golem_core.engine.start import WIDTH, choose_context, choose_plan, pool_sizes
from golem_core.errors import NoMemory
from golem_core.memory import available_memory
from golem_core.model import Embedder, Speaker
from golem_core.threads import choose
from golem_core.weights import open_weights
from golem_server.settings import ServeSettings

__all__ = ["Plan", "Room"]

# Beside the weights of a model that speaks, for each text that is spoken at a time: its past and
# the states of its convolutions. An estimate: Pocket TTS of the usual size keeps 49,152 bytes a
# position, and a line has 300 positions or so.
SPEECH = 16 << 20

# Beside the weights of a model that embeds: what the columns of a pass hold.
PASS = 128 << 20


@dataclass(frozen=True)
class Plan:
    """What a model needs, in bytes."""

    reference: str
    path: Path
    weights: int
    passes: int
    pages: tuple[int, ...]  # one page of each group
    state: int  # one slot
    pools: int  # pages and slots for one whole conversation
    speaks: bool = False
    embeds: bool = False

    @property
    def total(self) -> int:
        """With room for one whole conversation."""
        return self.weights + self.passes + self.pools


class Room:
    """Counts what the loaded models take. `limit` in bytes; None: what is available now."""

    def __init__(self, limit: int | None) -> None:
        self.limit = available_memory() if limit is None else limit
        self._asked = limit
        self._taken: dict[object, int] = {}

    @property
    def taken(self) -> int:
        """Bytes that the loaded models may come to, once their pools are full."""
        return sum(self._taken.values())

    def plan(self, reference: str, path: Path, settings: ServeSettings) -> Plan:
        """What a model needs at the least. Raises as `golem_core.load`."""
        with open_weights(path) as weights:
            kind = plugins.meant(weights)
            if issubclass(kind, Embedder):
                return Plan(reference, path, weights.nbytes, PASS, (), 0, 0, embeds=True)
            if issubclass(kind, Speaker):
                past = SPEECH * settings.max_sequences
                return Plan(reference, path, weights.nbytes, 0, (), 0, past, speaks=True)
            model = open_generator(weights)
            context = choose_context(settings.context, model.context)
            plan = choose_plan(model, weights, context, 1, WIDTH, 2**63, settings.draft)
            needs = measure(
                plan.graph,
                width=WIDTH,
                outputs=plan.outputs,
                pages=plan.room.pages,
                states=plan.room.states,
                guesses=plan.guesses,
                workers=choose(settings.threads).count,
            )
            pages, state = pool_sizes(plan.graph, plan.guesses)
            return Plan(
                reference,
                path,
                weights=needs["weights"],
                passes=needs["passes"],
                pages=tuple(pages),
                state=state,
                pools=needs["pages"] + needs["states"],
            )

    def free(self) -> int | None:
        """Bytes that are left for another model; None where nothing says."""
        left = [] if self.limit is None else [self.limit - self.taken]
        now = available_memory() if self._asked is None else None
        if now is not None:
            left.append(now)
        return min(left) if left else None

    def fits(self, plan: Plan) -> bool:
        """Whether the model can be loaded as things are."""
        free = self.free()
        return free is None or plan.total <= free

    def refusal(self, plan: Plan, others: bool) -> NoMemory:
        """Why a model is not loaded, with both numbers."""
        free = self.free() or 0
        in_use = f"; {_size(self.taken)} is in use by models that are answering" if others else ""
        return NoMemory(
            f"{plan.reference} needs {_size(plan.total)} with room for one conversation, and "
            f"{_size(max(0, free))} is left{in_use}; a shorter --context needs less"
        )

    def load(self, plan: Plan, settings: ServeSettings) -> LanguageModel | Speaking | Embedding:
        """Loads the model with pools of at most half of what is free."""
        if plan.embeds:
            return golem_core.load_embedder(
                plan.path,
                device=settings.device,
                threads=settings.threads,
                precision=settings.precision,
            )
        if plan.speaks:
            return golem_core.load_speaker(
                plan.path,
                device=settings.device,
                threads=settings.threads,
                sequences=settings.max_sequences,
            )
        free = self.free()
        pools = None if free is None else max(plan.pools, (free - plan.weights) // 2)
        model = golem_core.load(
            plan.path,
            device=settings.device,
            threads=settings.threads,
            context=settings.context,
            max_sequences=settings.max_sequences,
            draft=settings.draft,
            memory=pools,
        )
        model.tokenizer.prepare()  # not while others wait for their next word
        return model

    def take(self, who: object, plan: Plan, model: LanguageModel | Speaking | Embedding) -> None:
        """Counts a model that was loaded, with the pools that it got, under `who`."""
        if isinstance(model, (Speaking, Embedding)):
            self._taken[who] = plan.total
            return
        stats = model.engine.stats()
        pools = sum(
            size * group.pages for size, group in zip(plan.pages, stats.groups, strict=True)
        )
        if stats.states is not None:
            pools += plan.state * stats.states.slots
        self._taken[who] = plan.weights + plan.passes + pools

    def give_back(self, who: object) -> None:
        """Counts a model no longer."""
        self._taken.pop(who, None)


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count < 2**30 else f"{count / 2**30:.2f} GiB"
