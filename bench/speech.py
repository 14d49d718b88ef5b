"""How fast Pocket TTS speaks, beside its makers' own program on the same weights.

    python bench/speech.py [--peer PYTHON] [--variants english ...] [--threads 2] [--rounds 1]

PYTHON is an interpreter with pocket-tts 4.0.1. Weights are drawn as `ref.drawn_pocket` does, in
bf16, with no end of speech, so both make the same number of frames. Each program runs by itself,
one after the other and, but with one round, then in the other order; the table has the medians:
times real time, the first sound, four texts at once (golem's), seconds for the voice of a 10 s
recording, and the most memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

IDS = list(range(100, 125))  # a line of 25 pieces: 130 frames, 10.4 s
FRAMES, REPEATS, CLIENTS = 130, 3, 4


def recorded() -> np.ndarray:
    """Ten seconds that a voice is made of."""
    return (0.1 * np.random.default_rng(0).standard_normal(240_000)).astype(np.float32)


def timed(sounds: Iterator[Any]) -> tuple[float, float]:
    """Seconds to the first piece of a speech, and to its last."""
    begun = time.perf_counter()
    first = 0.0
    for _ in sounds:
        first = first or time.perf_counter() - begun
    return first, time.perf_counter() - begun


def ours(folder: Path, threads: int, kept: str | None) -> dict[str, float]:
    """What golem needs."""
    from golem_core import load_speaker
    from golem_core.speech import Delivery, Line

    def speech(speaking: Any, voice: Any, seed: int) -> Any:
        how = Delivery(seed=seed, eos_threshold=1e6)
        return speaking.speak_lines([Line("", tuple(IDS), 3)], voice, how)

    with load_speaker(folder, threads=threads, weights=kept, sequences=CLIENTS) as speaking:
        begun = time.perf_counter()
        voice = speaking.voice(recorded())
        cloned = time.perf_counter() - begun
        runs = [timed(speech(speaking, voice, i)) for i in range(REPEATS + 1)][1:]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        four = statistics.median(clients(speaking, voice, speech) for _ in range(REPEATS))
    return {**summary(runs), "voice": cloned, "memory": peak, "four": four}


def clients(speaking: Any, voice: Any, speech: Any) -> float:
    """Times real time of four texts at once, each heard by a thread of its own."""
    begun = time.perf_counter()
    # Nobody is kept waiting for another: who does not listen has 8 s made ahead, then none.
    listening = [threading.Thread(target=speech(speaking, voice, i).whole) for i in range(CLIENTS)]
    for one in listening:
        one.start()
    for one in listening:
        one.join()
    return CLIENTS * FRAMES / 12.5 / (time.perf_counter() - begun)


def theirs(folder: Path, threads: int) -> dict[str, float]:
    """What the makers' program needs."""
    import torch
    from pocket_tts import TTSModel
    from pocket_tts.modules import text_conditioner

    text_conditioner.build_tokenizer = lambda *_: None
    model = TTSModel.load_model(config=str(folder / "model.yaml"))
    torch.set_num_threads(threads)
    model.flow_lm.conditioner.prepare = lambda _: torch.tensor([IDS])
    begun = time.perf_counter()
    voice = model.get_state_for_audio_prompt(torch.from_numpy(recorded())[None])
    cloned = time.perf_counter() - begun
    runs = []
    for _ in range(REPEATS + 1):
        runs.append(
            timed(
                model._generate_audio_stream_short_text(
                    model_state=voice, text_to_generate="", frames_after_eos=3, copy_state=True,
                    stop=threading.Event(),
                )
            )
        )  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**summary(runs[1:]), "voice": cloned, "memory": peak}


def summary(runs: list[tuple[float, float]]) -> dict[str, float]:
    """Medians of speeches."""
    first, total = (statistics.median(run[i] for run in runs) for i in range(2))
    return {"times": FRAMES / 12.5 / total, "first": 1000 * first}


def child(python: str, who: str, folder: Path, threads: int, kept: str) -> dict[str, float]:
    """One program in a process of its own."""
    command = [python, __file__, "--child", who, "--folder", str(folder), "--kept", kept]
    done = subprocess.run(
        [*command, "--threads", str(threads)], check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peer", help="an interpreter that has pocket-tts")
    parser.add_argument("--variants", nargs="*", default=["english", "french_24l", "english_2m"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--peer-threads", type=int, default=1, help="the makers' usual 1 keeps two cores busy"
    )
    parser.add_argument("--rounds", type=int, choices=(1, 2), default=2, help="orders")
    parser.add_argument("--kept", default="", help="how golem keeps matrices, such as Q8_0")
    parser.add_argument("--child", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        made = (
            ours(given.folder, given.threads, given.kept or None)
            if given.child == "ours"
            else theirs(given.folder, given.threads)
        )
        print(json.dumps(made))
        return
    from ref.drawn_pocket import write

    programs = {"ours": sys.executable, **({"theirs": given.peer} if given.peer else {})}
    print(f"{'model':12} {'program':8} {'x real':>7} {'first ms':>9} {'4 x real':>9} ", end="")
    print(f"{'voice s':>8} {'MiB':>6}")
    for variant in given.variants:
        with tempfile.TemporaryDirectory() as place:
            folder = write(Path(place), variant, bf16=True)
            found: dict[str, list[dict[str, float]]] = {who: [] for who in programs}
            for order in (list(programs), list(programs)[::-1])[: given.rounds]:
                for who in order:
                    threads = given.threads if who == "ours" else given.peer_threads
                    made = child(programs[who], who, folder, threads, given.kept)
                    found[who].append(made)
        for who, runs in found.items():
            row = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            four = f"{row['four']:9.2f}" if "four" in row else " " * 9
            print(f"{variant:12} {who:8} {row['times']:7.2f} {row['first']:9.0f} {four} ", end="")
            print(f"{row['voice']:8.2f} {row['memory']:6.0f}", flush=True)


if __name__ == "__main__":
    main()
