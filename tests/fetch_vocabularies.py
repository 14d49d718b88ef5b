"""Fetches llama.cpp's vocabularies and the ids that it records for them, once; prints the folder.

    python tests/fetch_vocabularies.py

They lie in the source distribution of llama-cpp-python, which carries llama.cpp (MIT). Only they
are taken out of it: `ggml-vocab-NAME.gguf` with `.inp` and `.out` beside it, and `templates`. pip
asks a source distribution's build backend for its metadata, so that backend is installed first.
"""

from __future__ import annotations

import tarfile
from pathlib import Path, PurePosixPath

from fetching import Archive, fetch_once

VERSION = "0.3.36"
ARCHIVE = Archive(
    f"llama-cpp-python=={VERSION}",
    f"llama_cpp_python-{VERSION}.tar.gz",
    "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    ("--no-binary", ":all:", "--no-build-isolation"),
)
INSIDE = PurePosixPath(f"llama_cpp_python-{VERSION}/vendor/llama.cpp/models")
BACKEND = ("scikit-build-core>=0.10", "pathspec")


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


if __name__ == "__main__":
    fetch_once("test-vocabularies", VERSION, ARCHIVE, unpack, BACKEND)
