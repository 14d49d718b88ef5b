"""What guessing the next tokens gains: tokens a second with and without drafts, one conversation.

    python -m bench.drafting FILE... [--threads 1 2] [--rounds 5] [--tokens 96]

For each file and thread count every way that the file has (`off`, `auto`, `mtp`, `ngram`) answers
the same greedy chats, in turn, every other round in the other order; the table has the medians of
tokens a second and, of the last round, the share of guesses that were right. The texts must be the
same, or the command fails.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from golem_core import load
from golem_core.api import LanguageModel
from golem_core.errors import BadRequest

CHATS = (
    "What is a lemon?",
    "Tell me a story about a cat.",
    "Count from 3 to 15.",
    "Tell me about a piano.",
    "Repeat after me: blue dog apple",
    "List the days of the week.",
)


def answer(model: LanguageModel, tokens: int) -> tuple[list[list[int]], float]:
    """The ids of all answers, and tokens a second between the first and the last of each."""
    ids, drawn, seconds = [], 0, 0.0
    for chat in CHATS:
        if model.template is None:
            done = model.generate(chat, temperature=0, max_tokens=tokens).complete()
        else:
            done = model.chat(chat, temperature=0, max_tokens=tokens).complete()
        ids.append(done.ids)
        drawn += max(0, done.timings["generated_tokens"] - 1)
        seconds += done.timings["generate_seconds"]
    return ids, drawn / seconds


def measure(file: Path, threads: int, rounds: int, tokens: int) -> list[str]:
    """The table's rows of one file."""
    ways: dict[str, LanguageModel] = {}
    for way in ("off", "auto", "mtp", "ngram"):
        try:
            ways[way] = load(file, threads=threads, max_sequences=1, draft=way)
        except BadRequest:
            continue  # no prediction block
    rates: dict[str, list[float]] = {way: [] for way in ways}
    expected = answer(ways["off"], tokens)[0]
    for number in range(rounds):
        for way in list(ways) if number % 2 == 0 else list(reversed(ways)):
            ids, rate = answer(ways[way], tokens)
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
    args = parser.parse_args()
    print("| file | threads | drafts | tokens/s | to off | right |\n|---|---|---|---|---|---|")
    for file in args.files:
        for threads in args.threads:
            print("\n".join(measure(file, threads, args.rounds, args.tokens)), flush=True)


if __name__ == "__main__":
    main()
