"""Sound to the loudspeaker, by whichever player is installed."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import numpy.typing as npt

from golem_core.errors import GolemError, Unsupported
from golem_core.media.wave import pcm16

__all__ = ["PLAYERS", "Player", "find_player"]

# Programs that play bare 16-bit samples from their standard input, in the order they are tried.
PLAYERS: dict[str, tuple[str, ...]] = {
    "paplay": ("--raw", "--format=s16le", "--rate={rate}", "--channels=1"),
    "aplay": ("-q", "-t", "raw", "-f", "S16_LE", "-r", "{rate}", "-c", "1", "-"),
    "pw-play": ("--raw", "--format=s16", "--rate={rate}", "--channels=1", "-"),
    "ffplay": ("-v", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar", "{rate}", "-"),
}


# What a player says that heard nothing and yet ends with 0.
SILENT = ("audio open failed",)


def find_player() -> str | None:
    """The first player that is installed; None if none is."""
    return next((name for name in PLAYERS if shutil.which(name)), None)


class Player:
    """Plays what it is given, while more is made."""

    def __init__(self, rate: int) -> None:
        """Starts a player. Raises `Unsupported` where none is installed."""
        self.name = find_player() or ""
        if not self.name:
            raise Unsupported(
                f"nothing plays sound here: none of {', '.join(PLAYERS)} is installed; -o FILE "
                "writes it"
            )
        arguments = [part.format(rate=rate) for part in PLAYERS[self.name]]
        self._process = subprocess.Popen(
            [self.name, *arguments], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def write(self, samples: npt.NDArray[np.float32]) -> None:
        """The next samples; waits while the player has enough. Raises `GolemError` if it ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm16(samples))
            self._process.stdin.flush()
        except BrokenPipeError:
            self._end()

    def finish(self) -> None:
        """Waits until all was heard. Raises `GolemError`, with its reason, if the player failed."""
        self._end()

    def _end(self) -> None:
        _, told = self._process.communicate()
        said = told.decode("utf-8", "replace").strip()
        if self._process.returncode or any(words in said for words in SILENT):
            reason = said.splitlines()[-1] if said else "it gave no reason"
            raise GolemError(f"{self.name} ended with {self._process.returncode}: {reason}")

    def close(self) -> None:
        """Stops it, heard or not."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()
