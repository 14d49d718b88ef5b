"""The models that a server's settings name, and what each is called."""

from __future__ import annotations

import re
from pathlib import Path

from golem_core import hub
from golem_core.errors import BadRequest, NotFound
from golem_server.held import Offer
from golem_server.settings import ServeSettings


def named(settings: ServeSettings, started: int) -> dict[str, Offer]:
    """The models that the settings name, by id."""
    found: dict[str, Offer] = {}
    references = list(settings.models)
    if settings.model_folder is not None:
        folder = Path(settings.model_folder).expanduser()
        if not folder.is_dir():
            raise NotFound(f"no folder {settings.model_folder}")
        references += [
            str(path)
            for path in sorted(folder.rglob("*.gguf"))
            if not re.search(r"-(?!00001)\d{5}-of-\d{5}\.gguf$|^mmproj", path.name)
        ]
    for text in references:
        match = re.fullmatch(r"([\w./:@-]+)=(?!=)(.+)", text)
        if match is not None and not Path(text).exists():
            name, text = match[1], match[2]
        else:
            name = _id(text)
        if name in found:
            raise BadRequest(
                f"two models are called {name}: {found[name].reference} and {text}; "
                f"call one by another name, such as other={text}"
            )
        reference = hub.parse(text)
        created = started
        if reference.kind == "path":
            path = Path(reference.name)
            if not path.exists():
                raise NotFound(f"no file {text}")
            created = int(path.stat().st_mtime)
        elif reference.kind == "name":
            hub.resolve(text)
        found[name] = Offer(name, text, created)
    return found


def _id(text: str) -> str:
    """What a model is called where nobody says: its file's name, or the reference itself."""
    reference = hub.parse(text)
    if reference.kind != "path":
        return text
    name = Path(reference.name).resolve().name.removesuffix(".gguf")
    return re.sub(r"-\d{5}-of-\d{5}$", "", name)
