"""The published models: where the files of each lie, at the state that they had when it came out.

The weights are in two repositories. One is shown to who accepts its terms, and its models clone
voices; the other to everybody, without what cloning needs. Vocabularies and voices are in the
second. The makers' program of version 4.0.1 names the same states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from golem_core.errors import NotFound
from golem_core.hub_fetch import Denied, Pinned, fetch_pinned, listed
from golem_core.settings import cache_folder

__all__ = ["PUBLISHED", "Published", "fetch"]

CLONES, OPEN = "kyutai/pocket-tts", "kyutai/pocket-tts-without-voice-cloning"
WEIGHTS = "model.safetensors"
VOICES_AT = "a7056f505a4a8ca72d8b5fb1440071d6f1a35739"


@dataclass(frozen=True)
class Published:
    """A model: the commits of its weights in both repositories, and of its vocabulary."""

    clones: str
    open: str
    vocabulary: str
    vocabulary_at: str


def _rows() -> dict[str, Published]:
    full = {commit[:8]: commit for commit in _COMMITS}
    found = {}
    for line in _TABLE.strip().splitlines():
        name, clones, open_, at, *other = line.split()
        path = (other[0] if other else "~/tokenizer.json").replace("~", f"languages/{name}")
        found[name] = Published(full[clones], full[open_], path, full[at])
    return found


_COMMITS = (
    "00eac05ed3d16bdc3f6b5d598874019c34a89214",
    "08ffc58775e62aad9409511b9591c9af626270f3",
    "19f95fe2df36e79fbd9f10008595cc4c977a0fcc",
    "1e08e6a23401048648a9fdcfde2f89348215c2a7",
    "2dd944b099d06bb9edbd221fef138685711d9bf0",
    "39592ff23c9ef80098bb74895d104c26275fe2c9",
    "3e82814a68665eec246ff649b14c71331f955c06",
    "492522650173a0653b7575cdc25ae09810e5d741",
    "4e1e0a3e611c51c0b4ed8174fc10f32a54644303",
    "575d14372df89a4534bcb989870a34e77544b09f",
    "75cfe24e3142233bb81887fed3482e9652bb4a6e",
    "7f364c05d1be3faf2b234cdbe4cbb68a026d4218",
    "8843db76457a91db32077edf8dfcd1c0e3e755fd",
    "983151f13aaeab1b13c1e5e3c2c383d49a9edf3f",
    "a5ce31f3eba7a3b0cb9c24ba2015b098f278eaae",
    "a7056f505a4a8ca72d8b5fb1440071d6f1a35739",
    "d29db7978e464fb90cb3359ee0c69a273b9142cc",
    "db04f0e653473e5c7333c69686ac92b7460b0c1d",
    "e7205b6ee50e654a5ea19f0e9df2b0813b05e921",
    "e81d79e8194ad4c7ce879c87a4258ef20cbf2487",
)

# Name; the beginnings of the commits of the weights that clone, of the open ones and of the
# vocabulary; where that lies, if it is not the tokenizer.json of the model's own folder (~).
_TABLE = """
dutch 3e82814a 1e08e6a2 4e1e0a3e
dutch_24l 2dd944b0 4e1e0a3e 4e1e0a3e
english db04f0e6 a7056f50 00eac05e
english_18m_2026-10 db04f0e6 a7056f50 08ffc587 ~/tokenizer.model
english_18m_refl_2026-10 db04f0e6 a7056f50 08ffc587 ~/tokenizer.model
english_2026-01 39592ff2 d29db797 00eac05e tokenizer.json
english_2026-04 19f95fe2 d29db797 00eac05e
english_2026-04_24l 49252265 e81d79e8 00eac05e
english_2026-09 983151f1 e7205b6e 00eac05e
english_2026-09_2 7f364c05 575d1437 00eac05e languages/english_2026-09/tokenizer.json
english_2026-09_24l 983151f1 e7205b6e 00eac05e
english_2026-10 db04f0e6 a7056f50 00eac05e languages/english_2026-09/tokenizer.json
english_2m_2026-10 db04f0e6 a7056f50 08ffc587 ~/tokenizer.model
english_2m_refl_2026-10 db04f0e6 a7056f50 08ffc587 ~/tokenizer.model
english_7m_2026-10 db04f0e6 a7056f50 08ffc587 ~/tokenizer.model
english_7m_refl_2026-10 db04f0e6 a7056f50 08ffc587 ~/tokenizer.model
english_drifting_26-09 75cfe24e a5ce31f3 00eac05e languages/english_2026-09/tokenizer.json
french 3e82814a 1e08e6a2 8843db76
french_24l 3e82814a 1e08e6a2 8843db76
german 3e82814a 1e08e6a2 4e1e0a3e
german_24l 2dd944b0 4e1e0a3e 4e1e0a3e
italian 3e82814a 1e08e6a2 4e1e0a3e
italian_24l 3e82814a 1e08e6a2 4e1e0a3e
portuguese 3e82814a 1e08e6a2 4e1e0a3e
portuguese_24l 2dd944b0 4e1e0a3e 4e1e0a3e
spanish 3e82814a 1e08e6a2 4e1e0a3e
spanish_24l 2dd944b0 4e1e0a3e 4e1e0a3e
"""
PUBLISHED = _rows()


def fetch(name: str, say: Callable[[str], None]) -> Path:
    """Fetches a model with its vocabulary and its voices; gives the folder.

    Without access to the weights that clone, which is said, the open ones are taken. Raises
    `NotFound`, listing the names where `name` is none of them, and `BadWeights` for what arrived
    damaged.
    """
    model = PUBLISHED.get(name)
    if model is None:
        raise NotFound(f"no model {name!r} was published; there are: {', '.join(PUBLISHED)}")
    path = f"languages/{name}/model.safetensors"
    # The folder's last name is the model's, by which its language is known.
    folder = cache_folder() / "pocket-tts" / model.clones[:8] / name
    try:
        fetch_pinned({WEIGHTS: Pinned(CLONES, path, model.clones)}, folder, say)
    except Denied:
        say(
            f"no access to {CLONES}, whose models clone voices: accept its terms there and log in "
            "(hf auth login); taking the weights without"
        )
        folder = cache_folder() / "pocket-tts" / f"{model.open[:8]}-open" / name
        fetch_pinned({WEIGHTS: Pinned(OPEN, path, model.open)}, folder, say)
    suffix = model.vocabulary.rpartition(".")[2]
    files = {f"tokenizer.{suffix}": Pinned(OPEN, model.vocabulary, model.vocabulary_at)}
    voices = f"languages/{name}/embeddings/"
    for path in listed(OPEN, VOICES_AT):
        if path.startswith(voices) and path.endswith(".safetensors"):
            files[f"embeddings/{path.removeprefix(voices)}"] = Pinned(OPEN, path, VOICES_AT)
    fetch_pinned(files, folder, say)
    return folder
