"""Fetches llama.cpp's vocabularies and the ids that it records for them, once; prints the folder.

    python tests/fetch_vocabularies.py

They lie in the source distribution of llama-cpp-python, which carries llama.cpp (MIT). Only they
are taken out of it: `ggml-vocab-NAME.gguf` with `.inp` and `.out` beside it, and `templates`. pip
asks a source distribution's build backend for its metadata, so that backend is installed first.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from golem_core.settings import cache_folder

VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = PurePosixPath(f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models")
BACKEND = ("scikit-build-core>=0.10", "pathspec")


def download(folder: Path) -> Path:
    """The archive, held to its sum."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", *BACKEND], check=True, stdout=sys.stderr)
    source = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    subprocess.run(
        [*pip, "download", *source, "-d", str(folder), f"llama-cpp-python=={VERSION}"],
        check=True,
        stdout=sys.stderr,
    )
    archive = folder / f"llama_cpp_python-{VERSION}.tar.gz"
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"fetch_vocabularies: {archive.name} has sha256 {found}, not {SHA256}")
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """The vocabularies, their vectors and the templates, under their own names."""
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as files:
        for member in files:
            path = PurePosixPath(member.name)
            if path.parent == INSIDE and path.name.startswith("ggml-vocab-"):
                place = folder / path.name
            elif path.parent == INSIDE / "templates":
                place = folder / "templates" / path.name
            else:
                continue
            content = files.extractfile(member)
            if content is not None:
                place.write_bytes(content.read())


def main() -> int:
    """Fetches what is not there; a failure is told, and what needs the files skips."""
    folder = cache_folder() / "test-vocabularies" / VERSION
    done = folder / "complete"
    if not done.exists():
        with tempfile.TemporaryDirectory() as temporary:
            try:
                unpack(download(Path(temporary)), folder)
            except subprocess.CalledProcessError as error:
                print(f"fetch_vocabularies: not to be had: {error}", file=sys.stderr)
                return 0
        done.touch()
    print(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
