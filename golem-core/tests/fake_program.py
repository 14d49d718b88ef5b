"""A program whose logits are a hash of what it reads back from its pages.

It keeps the token ids themselves where a real program keeps keys and values. So a page that is
wrong, freed too early, shared wrongly or written over changes the logits, and the text differs
from `expected`, which hashes the tokens without any pages. `CarryingProgram` has a hash of the
whole text for its recurrent state, besides, and refuses a state that is not of the position before.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from golem_core.graph.program import PAGE, Batch, PageGroup, Program, StateGroup

VOCABULARY = 128
END = 127  # ends an answer
POISON = 126  # a token whose keys and values are NaN


def logits_of(visible: Iterable[np.ndarray]) -> np.ndarray:
    """Logits float32 [VOCABULARY] for what each group shows of a text: int32 [positions]."""
    parts = [np.ascontiguousarray(ids, dtype=np.int32) for ids in visible]
    if any((ids == POISON).any() for ids in parts):
        return np.full(VOCABULARY, np.nan, dtype=np.float32)
    state = 1
    for ids in parts:
        state = zlib.crc32(ids.tobytes(), state)
    mixed = (np.arange(VOCABULARY, dtype=np.uint64) + 1) * np.uint64(state * 2 + 1)
    mixed = (mixed ^ (mixed >> np.uint64(15))) * np.uint64(0x9E3779B97F4A7C15)
    logits = (mixed >> np.uint64(40)).astype(np.float32) / np.float32(2**22)
    logits[POISON] = -1.0
    return logits


def shown(tokens: Sequence[int], windows: Sequence[int | None]) -> list[np.ndarray]:
    """What each group shows to the last of `tokens`."""
    ids = np.asarray(tokens, dtype=np.int32)
    return [ids if window is None else ids[-window:] for window in windows]


def hashed(tokens: Sequence[int], windows: Sequence[int | None]) -> np.ndarray:
    """The logits of a `HashProgram` after `tokens`."""
    return logits_of(shown(tokens, windows))


def expected(
    prompt: Sequence[int],
    windows: Sequence[int | None],
    most: int,
    context: int,
    logits: Callable[[Sequence[int], Sequence[int | None]], np.ndarray] = hashed,
) -> list[int]:
    """The greedy answer, by a run that has no pages, no passes and no company."""
    tokens = list(prompt)
    while len(tokens) < min(len(prompt) + most, context):
        token = int(logits(tokens, windows).argmax())
        if token == END:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


class HashProgram(Program):
    """Keeps ids in pages and hashes what its page tables show.

    `before` is called with the number of each pass, on the engine's thread.
    """

    device = "fake"
    vocabulary = VOCABULARY

    def __init__(
        self,
        windows: Sequence[int | None] = (None,),
        pages: Sequence[int] = (64,),
        width: int = 64,
        outputs: int = 16,
        before: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.width = width
        self.outputs = outputs
        self.groups = tuple(
            PageGroup(window, 1, 64, count) for window, count in zip(windows, pages, strict=True)
        )
        self.before = before
        self.passes: list[tuple[int, ...]] = []  # the columns of each sequence
        self.closed = False
        self._kept = [np.full((count, PAGE), -1, dtype=np.int32) for count in pages]

    def run(self, batch: Batch) -> np.ndarray:
        n = len(batch.ids)
        self.before(len(self.passes))
        rows = np.flatnonzero(np.diff(batch.sequence, prepend=-1))
        assert len(set(batch.sequence[rows].tolist())) == len(rows), "columns of one stand together"
        self.passes.append(tuple(np.diff([*rows, n]).tolist()))
        assert 0 < n <= self.width
        assert 0 < len(batch.outputs) <= self.outputs
        assert (np.diff(batch.outputs) > 0).all()
        for array in (batch.ids, batch.positions, batch.sequence, batch.outputs, *batch.pages):
            assert array.dtype == np.int32
            assert array.flags.c_contiguous
        self._keep(batch)
        return np.stack([self._logits(batch, int(column)) for column in batch.outputs])

    def _keep(self, batch: Batch) -> None:
        n = len(batch.ids)
        for table, kept in zip(batch.pages, self._kept, strict=True):
            pages = table[batch.sequence, batch.positions // PAGE]
            assert (pages >= 0).all()
            assert len(set(zip(pages, batch.positions % PAGE, strict=True))) == n, "a shared write"
            kept[pages, batch.positions % PAGE] = batch.ids

    def _logits(self, batch: Batch, column: int) -> np.ndarray:
        return logits_of(self._visible(batch, column))

    def _visible(self, batch: Batch, column: int) -> list[np.ndarray]:
        position = int(batch.positions[column])
        visible = []
        for group, table, kept in zip(self.groups, batch.pages, self._kept, strict=True):
            first = 0 if group.window is None else max(0, position - group.window + 1)
            at = np.arange(first, position + 1)
            pages = table[batch.sequence[column], at // PAGE]
            assert (pages >= 0).all(), "reads a page that was given back"
            visible.append(kept[pages, at % PAGE])
        return visible

    def trace(self, batch: Batch, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        return {"logits": self.run(batch)}

    def close(self) -> None:
        assert not self.closed
        self.closed = True


CARRIED = 0x9E37  # what a text begins with


def carried(tokens: Iterable[int], state: int = CARRIED) -> int:
    """The recurrent state after `tokens`."""
    for token in tokens:
        state = zlib.crc32(int(token).to_bytes(4, "little"), state)
    return state


def carrying_logits(tokens: Sequence[int], windows: Sequence[int | None]) -> np.ndarray:
    """The logits of a `CarryingProgram` after `tokens`."""
    state = np.array([carried(tokens) & 0x7FFFFFFF], dtype=np.int32)
    return logits_of([state, *shown(tokens, windows)])


class CarryingProgram(HashProgram):
    """A `HashProgram` whose logits depend on a recurrent state, too.

    slots   of state
    hits    how many of eight drafts are what will be greedily drawn; None: it cannot draft
    chains  whether it can draft from its own draft
    guesses how many columns behind a kept state it remembers
    """

    def __init__(
        self,
        windows: Sequence[int | None] = (None,),
        pages: Sequence[int] = (64,),
        width: int = 64,
        outputs: int = 16,
        slots: int = 32,
        hits: int | None = None,
        chains: bool = True,
        guesses: int = 4,
    ) -> None:
        super().__init__(windows, pages, width, outputs)
        self.states = StateGroup(slots, 8, guesses)
        self.drafts = hits is not None
        self.chains = self.drafts and chains
        self.hits = hits
        self._passed: dict[int, tuple[int, int]] = {}  # by row: as `_slots`
        self.drafted = 0
        # Of each slot the positions that it is after, and the state; then of the columns behind it.
        self._slots = [[(-1, 0)]] * slots
        self._after: list[int] = []

    def run(self, batch: Batch) -> np.ndarray:
        assert batch.states is not None
        assert batch.keeps is not None
        assert batch.replays is not None
        assert batch.states.dtype == batch.replays.dtype == batch.keeps.dtype == np.int32
        assert len(batch.keeps) == len(batch.ids)
        written = batch.keeps[batch.keeps >= 0].tolist()
        assert len(set(written)) == len(written), "a slot is written twice"
        self._after = []
        kept: dict[int, list[tuple[int, int]]] = {}
        behind: list[list[tuple[int, int]]] = []
        for column, token in enumerate(batch.ids.tolist()):
            row, position = int(batch.sequence[column]), int(batch.positions[column])
            if column == 0 or batch.sequence[column - 1] != row:
                state = self._read(batch, row, position)
                behind = []
            state = carried([token], state)
            self._after.append(state)
            for states in behind:
                states.append((position + 1, state))
            if (slot := int(batch.keeps[column])) >= 0:
                readers = {int(r) for r in np.unique(batch.sequence) if batch.states[r] == slot}
                assert readers <= {row}, "a slot that another reads is written"
                kept[slot] = [(position + 1, state)]
                behind.append(kept[slot])
        logits = super().run(batch)
        for slot, value in kept.items():
            self._slots[slot] = value[: 1 + self.states.guesses]
        return logits

    def draft(self, batch: Batch, again: bool = False) -> np.ndarray:
        assert self.drafts
        assert self.chains or not again
        assert len(set(batch.sequence.tolist())) == len(batch.ids) <= self.outputs
        self.drafted += 1
        befores = dict(self._passed) if again else None
        self._after = []
        for token, row, position in zip(batch.ids, batch.sequence, batch.positions, strict=True):
            if befores is None:
                before = self._read(batch, int(row), int(position))
            else:
                after, before = befores[int(row)]
                assert after == position
            self._after.append(carried([token], before))
            self._passed[int(row)] = position + 1, self._after[-1]
        for table in batch.pages:
            assert (table[batch.sequence, batch.positions // PAGE] >= 0).all()
        self._keep(batch)
        guesses = np.stack([self._logits(batch, column) for column in range(len(batch.ids))])
        wrong = [column for column, state in enumerate(self._after) if state % 8 >= self.hits]
        guesses[wrong] = np.roll(guesses[wrong], 1, axis=1)
        return guesses

    def _read(self, batch: Batch, row: int, position: int) -> int:
        slot = int(batch.states[row])
        if slot < 0:
            assert position == 0, "a text goes on without a state"
            return CARRIED
        after, state = self._slots[slot][int(batch.replays[row])]
        assert after == position, f"the state after {after} positions is read at {position}"
        return state

    def _visible(self, batch: Batch, column: int) -> list[np.ndarray]:
        state = np.array([self._after[column] & 0x7FFFFFFF], dtype=np.int32)
        return [state, *super()._visible(batch, column)]
