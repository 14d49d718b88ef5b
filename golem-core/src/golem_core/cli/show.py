"""`golem show`: what a file of weights holds, and what running it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from golem_core.cli.options import (
    as_json,
    effective,
    human,
    model_argument,
    note,
    print_json,
    table,
)
from golem_core.errors import GolemError

if TYPE_CHECKING:
    from golem_core.model import Generator
    from golem_core.weights import Weights

CONTEXTS = (4096, 8192, 32768)  # positions that the memory is shown for, up to the trained
MEMORY = ("weights", "pages", "states", "passes", "process", "total")
# Of the process besides, measured with CPython 3.11 on x86-64: the interpreter and the libraries,
# and the tokenizer, by how many tokens and merges it has, with the model of all of them.
PROCESS = 50_000_000
TOKENIZER = {"tokens": 200, "merges": 200, "scores": 110}


@click.command()
@model_argument
@click.option("--all", "everything", is_flag=True, help="Every tensor and all metadata, too.")
@as_json
def command(model: str, everything: bool, as_json: bool) -> None:
    """Describe a model: geometry, formats, template, memory needed."""
    effective({})
    from golem_core import hub
    from golem_core.weights import open_weights

    with open_weights(hub.resolve(model, say=note)) as weights:
        found = describe(weights)
        if everything:
            found["tensors"] = [
                {"name": t.name, "format": t.format.name, "shape": list(t.shape), "bytes": t.nbytes}
                for t in weights.tensors.values()
            ]
            found["metadata"] = {key: _plain(value) for key, value in weights.metadata.items()}
        if as_json:
            print_json(found)
        else:
            _print(found)


def describe(weights: Weights) -> dict[str, Any]:
    """All that is known of a file without computing with it."""
    from golem_core import plugins

    architecture = plugins.architecture(weights)
    formats: dict[str, dict[str, int]] = {}
    for tensor in weights.tensors.values():
        row = formats.setdefault(tensor.format.name, {"tensors": 0, "bytes": 0})
        row["tensors"] += 1
        row["bytes"] += tensor.nbytes
    prefix = f"{architecture}." if weights.container == "gguf" else ""
    geometry = {
        key.removeprefix(prefix): _plain(value)
        for key, value in weights.metadata.items()
        if key.startswith(prefix) and _is_short(value)
    }
    template = weights.metadata.get("tokenizer.chat_template")
    return {
        "path": str(weights.path),
        "container": weights.container,
        "architecture": architecture,
        "name": weights.metadata.get("general.name"),
        "license": weights.metadata.get("general.license"),
        "parameters": sum(t.elements for t in weights.tensors.values()),
        "bytes": weights.nbytes,
        "geometry": geometry,
        "formats": dict(sorted(formats.items(), key=lambda item: -item[1]["bytes"])),
        "tokenizer": weights.metadata.get("tokenizer.ggml.model"),
        "template": template if isinstance(template, str) else None,
        **_model(weights),
    }


def _model(weights: Weights) -> dict[str, Any]:
    """What the plugin says: who runs it, its context and vocabulary, the memory that it needs.

    A file that nothing here runs is described all the same, with the reason.
    """
    from golem_core.api import open_generator

    try:
        model = open_generator(weights)
        contexts = sorted({*(c for c in CONTEXTS if c < model.context), model.context})
        needs = [_memory(weights, model, context) for context in contexts]
    except GolemError as error:
        return {"runs": False, "reason": str(error), "context": None, "memory": None}
    return {
        "runs": True,
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "context": model.context,
        "vocabulary": model.vocab,
        "memory": needs,
    }


def _memory(weights: Weights, model: Generator, context: int) -> dict[str, int]:
    """Bytes that `golem run` takes on the processor once a conversation has filled its context."""
    from golem_core.cpu.measure import measure
    from golem_core.engine.start import WIDTH, choose_plan
    from golem_core.threads import choose

    plan = choose_plan(model, weights, context, 1, WIDTH, 2**63, "auto")
    needs = measure(
        plan.graph,
        width=WIDTH,
        outputs=plan.outputs,
        pages=plan.room.pages,
        states=plan.room.states,
        guesses=plan.guesses,
        workers=choose().count,
    )
    needs["process"] = PROCESS + sum(
        count * len(listed)
        for key, count in TOKENIZER.items()
        if (listed := weights.metadata.get(f"tokenizer.ggml.{key}")) is not None
        and hasattr(listed, "__len__")
    )
    return {"context": context, **needs, "total": sum(needs.values())}


def _is_short(value: object) -> bool:
    return isinstance(value, (int, float, str)) or 0 < len(_listed(value)) <= 64


def _listed(value: object) -> list[Any]:
    if hasattr(value, "tolist"):
        return list(value.tolist())
    return list(value) if isinstance(value, list) else []


def _plain(value: object) -> object:
    """A metadata value as JSON has it; long arrays by their length."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    listed = _listed(value)
    if listed and len(listed) <= 64:
        return listed
    return f"{len(value)} values" if hasattr(value, "__len__") else str(value)


def _print(found: dict[str, Any]) -> None:
    rows = [("file", found["path"])]
    rows += [(key, str(found[key])) for key in ("name", "license") if found[key]]
    rows.append(("architecture", found["architecture"]))
    rows.append(("parameters", f"{found['parameters'] / 1e6:,.1f} million"))
    rows.append(("weights", human(found["bytes"])))
    rows.append(("runs", found["class"] if found["runs"] else f"no: {found['reason']}"))
    rows.append(("chat template", "yes" if found["template"] else "none: it continues text"))
    rows.append(("tokenizer", found["tokenizer"] or "none"))
    rows += [(key, _short(value)) for key, value in found["geometry"].items()]
    width = max(len(key) for key, _ in rows)
    for key, value in rows:
        click.echo(f"{key.ljust(width)}  {value}")
    click.echo()
    table(
        ("FORMAT", "TENSORS", "BYTES"),
        [(k, str(v["tensors"]), human(v["bytes"])) for k, v in found["formats"].items()],
    )
    if found["memory"]:
        click.echo()
        table(
            ("CONTEXT", *(name.upper() for name in MEMORY)),
            [(str(m["context"]), *(human(m[name]) for name in MEMORY)) for m in found["memory"]],
        )
    for tensor in found.get("tensors", ()):
        shape = "x".join(map(str, tensor["shape"]))
        click.echo(f"{tensor['name']}  {tensor['format']}  {shape}  {human(tensor['bytes'])}")
    for key, value in found.get("metadata", {}).items():
        click.echo(f"{key} = {_short(value)}")


def _short(value: object) -> str:
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= 100 else text[:97] + "..."
