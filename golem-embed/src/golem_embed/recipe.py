"""How the tokens of a text become its vector, as the files beside the weights say.

modules.json lists the steps of sentence-transformers: the encoder, the pooling, dense layers and
the norm; each has a folder with its settings. What is not run is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from golem_core.errors import BadWeights, NotFound, Unsupported

POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
# What a dense layer may end with: torch's name to golem's activation, "" for none.
ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": "",
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.GELU": "gelu_erf",
    "torch.nn.modules.activation.SiLU": "silu",
    "torch.nn.modules.activation.Sigmoid": "sigmoid",
}


@dataclass(frozen=True)
class Dense:
    """A matrix that a pooled vector is multiplied with: its folder, sizes and activation."""

    folder: Path
    inputs: int
    outputs: int
    bias: bool
    act: str


@dataclass(frozen=True)
class Recipe:
    """From tokens to a vector.

    pooling     mean, cls or last; "" for a cross-encoder, which has scores instead
    dense       matrices after the pooling
    normalises  whether vectors have length 1
    length      most tokens of a text, or None where only the encoder has a limit
    lowers      whether texts are put in lower case before all else
    prompts     texts that stand before a text, by what it is for
    prompt      the name of the one that is taken where nobody says, or None
    """

    pooling: str
    dense: tuple[Dense, ...] = ()
    normalises: bool = False
    length: int | None = None
    lowers: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt: str | None = None


def from_folder(folder: Path, pooling: str | None = None) -> Recipe:
    """Reads the files of sentence-transformers in `folder`.

    Raises `Unsupported` for what golem does not run and where nothing says how to pool and the
    caller does not either.
    """
    settings = _read(folder / "config_sentence_transformers.json") or {}
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise BadWeights(f"prompts is {prompts!r}, not texts by name ({folder})")
    chosen = settings.get("default_prompt_name")
    if chosen is not None and (not isinstance(chosen, str) or chosen not in prompts):
        raise BadWeights(f"default_prompt_name is {chosen!r}, which is no prompt ({folder})")
    said = _modules(folder)
    if said is None and pooling is None:
        raise Unsupported(
            f"{folder} has no modules.json, so nothing says how its tokens become a vector; "
            f"say it: pooling is one of {', '.join(POOLINGS.values())}"
        )
    dense, normalises = [], False
    length, lowers = _limits(folder)
    for kind, path in said or ():
        if kind == "Pooling":
            pooling = pooling or _pooling(path)
        elif kind == "Dense":
            dense.append(_dense(path))
        elif kind == "Normalize":
            normalises = True
        elif kind == "Transformer":
            length, lowers = _limits(path) if path != folder else (length, lowers)
        else:
            raise Unsupported(
                f"modules.json has a {kind}; golem runs Transformer, Pooling, Dense and Normalize "
                f"({folder})"
            )
    if pooling is None:
        raise Unsupported(f"modules.json has no Pooling ({folder})")
    return Recipe(pooling, tuple(dense), normalises, length, lowers, prompts, chosen)


def limits(folder: Path) -> Recipe:
    """What the files say where there is no pooling: a cross-encoder's length."""
    length, lowers = _limits(folder)
    return Recipe("", length=length, lowers=lowers)


def _read(path: Path) -> dict[str, object] | None:
    """A small JSON object; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadWeights(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise BadWeights(f"{path} is {type(found).__name__}, not an object")
    return found


def _modules(folder: Path) -> list[tuple[str, Path]] | None:
    """Kind and folder of each step."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        steps = [(str(m["type"]).rpartition(".")[2], str(m["path"])) for m in found]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadWeights(f"{path} is no list of modules: {error}") from None
    made = []
    for kind, name in steps:
        place = (folder / name).resolve()
        if place != folder.resolve() and folder.resolve() not in place.parents:
            raise BadWeights(f"{path} names {name!r}, which is outside the folder")
        made.append((kind, folder if place == folder.resolve() else place))
    return made


def _limits(folder: Path) -> tuple[int | None, bool]:
    """max_seq_length and do_lower_case."""
    for name in ("sentence_bert_config.json", "sentence_transformers_config.json"):
        found = _read(folder / name)
        if found is None:
            continue
        length = found.get("max_seq_length")
        if length is not None and (not isinstance(length, int) or length < 3):
            raise BadWeights(f"max_seq_length is {length!r} ({folder / name})")
        return length, bool(found.get("do_lower_case", False))
    return None, False


def _pooling(folder: Path) -> str:
    """mean, cls or last."""
    found = _read(folder / "config.json")
    if found is None:
        raise NotFound(f"{folder / 'config.json'}, which says how tokens are pooled, is missing")
    wanted = [key for key, value in found.items() if key.startswith("pooling_mode_") and value]
    if isinstance(found.get("pooling_mode"), str):  # newer files
        short = {"mean": "mean_tokens", "cls": "cls_token"}
        mode = str(found["pooling_mode"])
        wanted = [f"pooling_mode_{short.get(mode, mode)}"]
    if len(wanted) != 1 or wanted[0] not in POOLINGS:
        raise Unsupported(
            f"{', '.join(wanted) or 'no pooling_mode'} is asked for; golem runs one of "
            f"{', '.join(POOLINGS)} ({folder / 'config.json'})"
        )
    if not found.get("include_prompt", True):
        raise Unsupported(
            f"include_prompt is false, which golem does not run: a prompt's tokens count as the "
            f"text's ({folder / 'config.json'})"
        )
    return POOLINGS[wanted[0]]


def _dense(folder: Path) -> Dense:
    """A dense layer's settings."""
    found = _read(folder / "config.json")
    if found is None:
        raise NotFound(f"{folder / 'config.json'} is missing")
    sizes = [found.get(key) for key in ("in_features", "out_features")]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise BadWeights(f"in_features and out_features are {sizes} ({folder / 'config.json'})")
    act = str(found.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if act not in ACTIVATIONS:
        raise Unsupported(
            f"activation_function is {act!r}; golem runs {', '.join(ACTIVATIONS)} "
            f"({folder / 'config.json'})"
        )
    bias = bool(found.get("bias", True))
    return Dense(folder, int(str(sizes[0])), int(str(sizes[1])), bias, ACTIVATIONS[act])
