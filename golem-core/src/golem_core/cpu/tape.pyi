from collections.abc import Sequence
from typing import Any

import numpy as np

from golem_core.cpu.pool import Pool

Where = tuple[bool, int, int]

class Tape:
    pool: Pool
    width: int
    most_outputs: int
    def __init__(self, pool: Pool, width: int, outputs: int, group_pages: list[int]) -> None: ...
    def reserve_weights(self, nbytes: int) -> None: ...
    def map_weights(self, descriptor: int, offset: int, nbytes: int, writable: bool) -> None: ...
    def enter_weights(self) -> None: ...
    def pack(
        self, format: int, source: np.ndarray, rows: int, cols: int, panel: int, offset: int
    ) -> None: ...
    def reserve_arena(
        self, nbytes: int, row_scratch: int, product_scratch: int, scan_scratch: int
    ) -> None: ...
    def add_cache(self, group: int, heads: int, dim: int, window: int | None, kv: str) -> int: ...
    def add_rows(self, picked: bool, rate: int, ops: list[dict[str, Any]]) -> None: ...
    def add_product(
        self,
        picked: bool,
        rate: int,
        x: Where | None,
        codes: tuple[int, int, int] | None,
        rounded: Where | None,
        cols: int,
        jobs: list[dict[str, Any]],
    ) -> None: ...
    def add_convolution(
        self,
        state: int,
        rate: int,
        past: int,
        x: Where,
        lead: Where,
        codes: tuple[int, int, int] | None,
        size: int,
        act: str,
        job: dict[str, Any],
    ) -> None: ...
    @property
    def caches(self) -> int: ...
    def put(
        self, cache: int, table: np.ndarray, first: int, keys: np.ndarray, values: np.ndarray
    ) -> None: ...
    def page(self, cache: int, page: int) -> tuple[np.ndarray, np.ndarray]: ...
    def add_state(self, size: int, slots: int, row: int, guesses: int) -> int: ...
    def add_sort(self, picked: bool, routing: Where, used: int, experts: int) -> None: ...
    def add_experts(
        self,
        picked: bool,
        used: int,
        experts: int,
        source: Where | None,
        codes: tuple[int, int, int] | None,
        rounded: Where | None,
        room: tuple[int, int, int],
        coded: bool,
        floating: bool,
        rounding: bool,
        each: bool,
        jobs: list[dict[str, Any]],
    ) -> None: ...
    def add_conv(self, state: int, x: Where, out: Where, taps: np.ndarray) -> None: ...
    def add_delta(
        self,
        state: int,
        inputs: list[Where],
        out: Where,
        key_heads: int,
        keys: int,
        heads: int,
        size: int,
    ) -> None: ...
    def add_previous(self, state: int, x: Where, out: Where, size: int) -> None: ...
    def add_within(
        self,
        inputs: list[Where],
        out: Where,
        heads: int,
        key_heads: int,
        dim: int,
        scale: float,
        reach: int,
        causal: bool,
        bias: np.ndarray | None,
    ) -> None: ...
    def begin_drafting(self) -> None: ...
    def add_attend(
        self,
        picked: bool,
        cache: int,
        q: Where,
        out: Where,
        query_heads: int,
        scale: float,
        softcap: float,
    ) -> None: ...
    def finish(self) -> None: ...
    def view(self, offset: int, rows: int, size: int) -> np.ndarray: ...
    def run(
        self,
        ids: np.ndarray,
        positions: np.ndarray,
        sequence: np.ndarray,
        tables: Sequence[np.ndarray],
        outputs: np.ndarray,
        states: np.ndarray | None,
        replays: np.ndarray | None,
        keeps: np.ndarray | None,
        drafting: bool,
        kinds: np.ndarray | None = None,
        again: bool = False,
        stop: np.ndarray | None = None,
    ) -> bool: ...
    def guess(
        self,
        ids: np.ndarray,
        positions: np.ndarray,
        sequence: np.ndarray,
        tables: Sequence[np.ndarray],
        states: np.ndarray | None,
        replays: np.ndarray | None,
        logits: np.ndarray,
        guesses: np.ndarray,
        reach: int,
    ) -> None: ...
    def time_stages(self) -> np.ndarray: ...
    def close(self) -> None: ...

def delta_floats(keys: int) -> int: ...
def within_floats(length: int, dim: int) -> int: ...
