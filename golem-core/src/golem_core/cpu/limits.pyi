"""What this machine can do at most with one instruction set, for `golem bench` to compare with."""

from typing import Any

class Limits:
    """The loops of the layer `name`, which the processor must be able to run."""

    def __init__(self, name: str) -> None: ...
    def read(self, data: Any) -> int:
        """Reads all of `data` (contiguous uint8); gives how many bytes that were."""
    def multiply(self, rounds: int) -> int:
        """Multiplies and adds bytes without touching memory; gives how many products."""
