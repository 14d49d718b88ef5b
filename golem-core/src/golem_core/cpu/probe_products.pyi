import numpy as np
from numpy.typing import NDArray

Coded = tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int32], NDArray[np.int32]]

def dequantise(format: str, source: NDArray[np.uint8], elements: int) -> NDArray[np.float32]: ...
def pack(
    format: str,
    source: NDArray[np.uint8],
    rows: int,
    cols: int,
    first: int = 0,
    panels: int | None = None,
) -> NDArray[np.uint8]: ...
def product(
    format: str,
    packed: NDArray[np.uint8],
    rows: int,
    cols: int,
    x: NDArray[np.float32] | Coded,
    first: int = 0,
    panels: int | None = None,
    column: int = 0,
    columns: int | None = None,
    out: NDArray[np.float32] | None = None,
    repeat: int = 1,
) -> NDArray[np.float32]: ...
