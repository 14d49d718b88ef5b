from typing import Final

import numpy as np
from numpy.typing import NDArray

SCRATCH: Final[int]
ROWS: Final[int]
LANES: Final[int]

Floats32 = NDArray[np.float32]
Ints32 = NDArray[np.int32]
Pages = NDArray[np.uint16] | NDArray[np.float32]

class Floats:
    name: str
    def __init__(self, name: str) -> None: ...
    def quantise(
        self, x: Floats32, codes: NDArray[np.int8], scales: Floats32, sums: Ints32, halves: Ints32
    ) -> None: ...
    def quantise_runs(
        self, x: Floats32, codes: NDArray[np.int8], scales: Floats32, sums: Ints32
    ) -> None: ...
    def rms_norm(self, x: Floats32, weight: Floats32 | None, eps: float, out: Floats32) -> None: ...
    def layer_norm(
        self,
        x: np.ndarray,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        eps: float,
        out: np.ndarray,
    ) -> None: ...
    def glu(self, act: str, gate: Floats32, up: Floats32 | None, out: Floats32) -> None: ...
    def binary(self, name: str, a: Floats32, b: Floats32, out: Floats32) -> None: ...
    def scalar(self, name: str, a: Floats32, c: float, out: Floats32) -> None: ...
    def axpy(self, a: Floats32, c: float, out: Floats32) -> None: ...
    def conv(self, x: Floats32, weight: Floats32, before: Floats32, out: Floats32) -> None: ...
    def delta(
        self,
        state: Floats32,
        q: Floats32,
        k: Floats32,
        v: Floats32,
        decay: Floats32,
        beta: Floats32,
        out: Floats32,
    ) -> None: ...
    def rope(self, name: str, x: Floats32, cos: Floats32, sin: Floats32, out: Floats32) -> None: ...
    def store(
        self,
        keys: Pages,
        values: Pages,
        table: Ints32,
        position: int,
        key: Floats32,
        value: Floats32,
    ) -> None: ...
    def attend(
        self,
        keys: Pages,
        values: Pages,
        table: Ints32,
        head: int,
        first: int,
        count: int,
        q: Floats32,
        positions: Ints32,
        scale: float,
        softcap: float,
        window: int,
        out: Floats32,
        scratch: Floats32,
    ) -> None: ...
