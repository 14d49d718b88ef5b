"""What guessing the next tokens gains: tokens a second with and without drafts, one conversation.

    python -m bench.drafting FILE... [--threads 1 2] [--rounds 5] [--tokens 96]

For each file and thread count every way that the file has (`off`, `auto`, `mtp`, `ngram`) answers
the same greedy chats, in turn, every other round in the other order; the table has the medians of
tokens a second and, of the last round, the share of guesses that were right. The texts must be the
same, or the command fails.

A file of seeded weights guesses nothing right. With `--right` its guesses are made, timed and
thrown away: the engine gets the tokens that will be drawn instead, so many of them right at each
depth as is said. `--right 0.95 0.88 0.58 --reach 32768 --covered 0.94` has the rates of a trained
model and a head that is read up to a token, beyond which lie 6 % of a text.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from golem_core import load
from golem_core.api import LanguageModel
from golem_core.errors import BadRequest
from golem_core.graph import Batch

CHATS = (
    "What is a lemon?",
    "Tell me a story about a cat.",
    "Count from 3 to 15.",
    "Tell me about a piano.",
    "Repeat after me: blue dog apple",
    "List the days of the week.",
)


class Replay:
    """Guesses of known texts in place of a program's own, which are made and not used.

    right   the share of right guesses at each depth, where those before it are right
    """

    def __init__(self, model: LanguageModel, right: Sequence[float], reach: int) -> None:
        program = model.engine._program
        self.text: list[int] = []
        self._right, self._guess = right, program.guess
        self._reach = min(reach, program.vocabulary)
        self._random = np.random.default_rng(7)
        program.guess = self.guess  # type: ignore[method-assign]

    def guess(self, batch: Batch, count: int, _reach: int) -> np.ndarray:
        """See `Program.guess`."""
        guesses = self._guess(batch, count, self._reach)
        first = int(batch.positions[0]) + 1
        for depth, chance in zip(range(count), self._right, strict=False):
            known = first + depth < len(self.text)
            token = self.text[first + depth] if known else 0
            wrong = self._random.random() >= chance
            guesses[depth] = token + 1 if wrong and token == 0 else 0 if wrong else token
        return guesses


def answer(
    model: LanguageModel,
    tokens: int,
    replay: Replay | None = None,
    texts: Sequence[list[int]] = (),
) -> tuple[list[list[int]], float]:
    """The ids of all answers, and tokens a second between the first and the last of each."""
    ids, drawn, seconds = [], 0, 0.0
    for number, chat in enumerate(CHATS):
        if replay is not None:
            replay.text = texts[number]
        if model.template is None:
            done = model.generate(chat, temperature=0, max_tokens=tokens).complete()
        else:
            done = model.chat(chat, temperature=0, max_tokens=tokens).complete()
        ids.append([*done.prompt_ids, *done.ids])
        drawn += max(0, done.timings["generated_tokens"] - 1)
        seconds += done.timings["generate_seconds"]
    return ids, drawn / seconds


def measure(
    file: Path, threads: int, rounds: int, tokens: int, right: Sequence[float], reach: int
) -> list[str]:
    """The table's rows of one file."""
    ways: dict[str, LanguageModel] = {}
    for way in ("off", "auto", "mtp") if right else ("off", "auto", "mtp", "ngram"):
        try:
            ways[way] = load(file, threads=threads, max_sequences=1, draft=way)
        except BadRequest:
            continue  # no prediction block
    replays = {
        way: Replay(model, right, reach)
        for way, model in ways.items()
        if right and way != "off" and model.engine._program.drafts
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    expected = answer(ways["off"], tokens)[0]
    for number in range(rounds):
        for way in list(ways) if number % 2 == 0 else list(reversed(ways)):
            ids, rate = answer(ways[way], tokens, replays.get(way), expected)
            if ids != expected:
                raise SystemExit(f"drafting: {file.name} says something else with {way}")
            rates[way].append(rate)
    rows = []
    plain = statistics.median(rates["off"])
    for way, model in ways.items():
        rate, stats = statistics.median(rates[way]), model.engine.stats()
        right = "" if stats.acceptance is None else f"{stats.acceptance:.3f}"
        rows.append(
            f"| {file.name} | {threads} | {way} | {rate:.1f} | {rate / plain:.2f} | {right} |"
        )
        model.close()
    return rows


def main() -> None:
    """The command of the module's first lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--right", nargs="+", type=float, default=[], metavar="SHARE")
    parser.add_argument("--reach", type=int, default=2**31, metavar="TOKENS")
    parser.add_argument("--covered", type=float, default=1.0, metavar="SHARE")
    args = parser.parse_args()
    right = [share * args.covered for share in args.right]
    print("| file | threads | drafts | tokens/s | to off | right |\n|---|---|---|---|---|---|")
    for file in args.files:
        for threads in args.threads:
            rows = measure(file, threads, args.rounds, args.tokens, right, args.reach)
            print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
