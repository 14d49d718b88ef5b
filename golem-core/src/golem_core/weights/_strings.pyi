import numpy as np
import numpy.typing as npt

_Data = npt.NDArray[np.uint8] | memoryview | bytes

def walk(data: _Data, at: int, starts: npt.NDArray[np.int64]) -> int: ...
def decode(data: _Data, starts: npt.NDArray[np.int64]) -> list[str]: ...
