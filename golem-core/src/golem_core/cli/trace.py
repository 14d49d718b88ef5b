"""`golem trace`: what every operation of a prompt's pass computes."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click

from golem_core.cli.options import (
    as_json,
    effective,
    model_argument,
    note,
    print_json,
    setting_options,
    table,
)
from golem_core.errors import BadRequest, NotFound

FIRST = 4  # values shown of each waypoint

# The arrays of a recording beside the waypoints, which stand there by their names: the prompt, the
# rows that were kept of each, their names, and the largest magnitude of each over all rows.
IDS, ROWS, NAMES, PEAKS = "in/ids", "in/rows", "in/names", "in/peaks"


@click.command()
@model_argument
@click.option("-p", "--prompt", help="The text; it is read without a template.")
@click.option("--only", multiple=True, metavar="PATTERN", help="Waypoints to show: 'blk.0.*'.")
@click.option(
    "--against", metavar="FILE", help="A recording (.npz): reads its prompt, prints differences."
)
@click.option("--save", metavar="FILE", help="Write the values to a .npz as a recording.")
@click.option(
    "--kv",
    type=click.Choice(["f16", "f32"]),
    default="f16",
    help="The type that keys and values are kept in; answers are drawn with f16.",
)
@as_json
@setting_options("device", "threads")
def command(
    model: str,
    prompt: str | None,
    only: tuple[str, ...],
    against: str | None,
    save: str | None,
    kv: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Print what every operation of a prompt's pass computes.

    One line for each waypoint: its shape, least and greatest value, root mean square, and the
    first values of the last token. With --against also the largest difference to the recording,
    as a share of the largest magnitude of that waypoint; the prompt is then the recording's.
    """
    if (prompt is None) == (against is None):
        raise click.UsageError("give either -p TEXT or --against FILE, whose prompt is used")
    settings = effective(options)
    recording = _recording(against) if against is not None else None
    from golem_core import api, hub, threads, trace
    from golem_core.weights import open_weights

    with open_weights(hub.resolve(model, say=note)) as weights:
        opened = api.open_generator(weights)
        tokenizer = opened.tokenizer(weights)
        if recording is not None:
            ids = [int(i) for i in recording[IDS]]
        else:
            ids = tokenizer.encode(prompt or "", bos=True)
        names = _names(opened, weights, only, recording)
        values = trace.trace(
            opened,
            weights,
            ids,
            device=settings["device"],
            threads=threads.choose(settings["threads"]).count,
            names=names,
            every_logit=recording is not None or save is not None,
            kv=kv,
        )
    if save is not None:
        _write(save, ids, values)
        note(f"wrote {len(values)} waypoints to {save}")
    rows = [_row(name, value, recording) for name, value in values.items()]
    if as_json:
        print_json({"ids": ids, "waypoints": rows})
        return
    headings = ["WAYPOINT", "SHAPE", "MIN", "MAX", "RMS", "FIRST"]
    headings += ["DIFFERENCE"] if recording is not None else []
    table(headings, [_cells(row) for row in rows])
    if recording is not None:
        worst = max(rows, key=lambda row: row["difference"])
        note(f"the largest difference is {worst['difference']:.2e}, at {worst['name']}")


def _recording(path: str) -> dict[str, Any]:
    import numpy as np

    if not Path(path).is_file():
        raise NotFound(f"no file {path}")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = dict(file)
    except (ValueError, OSError) as error:
        raise BadRequest(f"{path} is not a recording: {error}") from None
    for key, kinds in ((IDS, "iu"), (ROWS, "iu"), (NAMES, "U"), (PEAKS, "f")):
        if key not in found or found[key].ndim != 1 or found[key].dtype.kind not in kinds:
            raise BadRequest(f"{path} is not a recording: it has no list {key}")
    if not len(found[IDS]) or not all(0 <= row < len(found[IDS]) for row in found[ROWS]):
        raise BadRequest(f"{path} is not a recording: its rows are none of its ids")
    return found


def _write(path: str, ids: list[int], values: dict[str, Any]) -> None:
    """A recording: the prompt's ids, which rows were kept, and each waypoint with its peak."""
    import numpy as np

    arrays: dict[str, Any] = {
        IDS: np.asarray(ids, np.int32),
        ROWS: np.arange(len(ids), dtype=np.int32),
        NAMES: np.array(list(values)),
        PEAKS: np.array([np.abs(value).max() for value in values.values()], np.float32),
        **values,
    }
    np.savez_compressed(path, **arrays)


def _names(
    model: Any, weights: Any, only: tuple[str, ...], recording: dict[str, Any] | None
) -> list[str] | None:
    """The waypoints that patterns and recording leave; None for all of them."""
    if not only and recording is None:
        return None
    from golem_core.graph import Graph

    graph = Graph(weights)
    graph.result = model.forward(graph)
    names = [
        name
        for name in graph.named()
        if (not only or any(fnmatch(name, pattern) for pattern in only))
        and (recording is None or name in set(recording[NAMES]))
    ]
    if not names:
        raise BadRequest(
            f"no waypoint of the model is {'wanted' if only else 'in the recording'}; "
            f"the first are {', '.join(list(graph.named())[:5])}"
        )
    return names


def _row(name: str, value: Any, recording: dict[str, Any] | None) -> dict[str, Any]:
    import numpy as np

    row: dict[str, Any] = {
        "name": name,
        "shape": list(value.shape),
        "min": float(value.min()),
        "max": float(value.max()),
        "rms": float(np.sqrt(np.mean(np.square(value, dtype=np.float64)))),
        "first": [float(x) for x in value[-1].reshape(-1)[:FIRST]],
    }
    if recording is not None:
        expected = np.asarray(recording[name], np.float32)
        kept = value[recording[ROWS]]
        if expected.size != kept.size:
            raise BadRequest(
                f"{name} is {list(expected.shape)} in the recording and {list(kept.shape)} here"
            )
        peak = float(recording[PEAKS][list(recording[NAMES]).index(name)]) or 1.0
        row["difference"] = float(np.abs(expected.reshape(kept.shape) - kept).max()) / peak
    return row


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [
        row["name"],
        "x".join(map(str, row["shape"])),
        *(f"{row[key]:.4g}" for key in ("min", "max", "rms")),
        " ".join(f"{x:.4g}" for x in row["first"]),
    ]
    return [*cells, f"{row['difference']:.2e}"] if "difference" in row else cells
