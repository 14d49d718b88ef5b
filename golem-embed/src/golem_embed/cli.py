"""`golem embed`: vectors of texts on the command line, to JSON lines, text or a numpy file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from golem_core.cli.options import as_json, effective, note, print_json, setting_options
from golem_core.errors import BadRequest, NotFound
from golem_embed.precision import PRECISIONS

if TYPE_CHECKING:
    from golem_core.embedding import Embedding

PIECE = 1024  # texts that are read before any is written, so that input may be endless


class Named(click.Group):
    """`golem embed MODEL TEXT...`, and the commands below it by their names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """What is no command's name is a model."""
        if args and args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "texts", self.commands["texts"], args

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options before a command's name are those of `texts`."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["texts", *args]
        return super().parse_args(ctx, args)


@click.group(cls=Named)
def embed() -> None:
    """Turn texts into vectors: golem embed MODEL TEXT...

    What is no command's name is a model, and its texts follow, or lines of standard input come:
    `golem embed texts --help` has the options of that.
    """


def _common(command: Any) -> Any:
    for option in reversed(
        (
            click.option("--precision", type=click.Choice(PRECISIONS), default="f32",
                         show_default=True, help="How matrices are kept and multiplied."),
            click.option("--max-length", type=int, metavar="N",
                         help="Most tokens of a text. [default: as the files say]"),
            click.option("--pooling", type=click.Choice(("mean", "cls", "last")),
                         help="How tokens become a vector, where the files do not say."),
            setting_options("device", "threads"),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def _load(model: str, options: dict[str, Any]) -> Embedding:
    precision, length = options.pop("precision"), options.pop("max_length")
    pooling = options.pop("pooling")
    settings = effective(options)
    from golem_core.api import load_embedder

    return load_embedder(
        model,
        device=settings["device"],
        threads=settings["threads"],
        precision=precision,
        length=length,
        pooling=pooling,
        say=note,
    )


@embed.command()
@click.argument("model")
@click.argument("texts", nargs=-1)
@click.option("--file", "files", multiple=True, type=click.Path(), metavar="FILE",
              help="Also a text for each line of a file.")  # fmt: skip
@click.option("--jsonl", is_flag=True, help="Lines of input are JSON objects; each gets a vector.")
@click.option("--field", default="text", show_default=True, help="Of these, the text.")
@click.option("--prompt", help="The name of a prompt of the model that stands before each text.")
@click.option("--dimensions", type=int, metavar="N", help="The first N of each vector.")
@click.option("--no-truncate", is_flag=True, help="Refuse a text that is too long.")
@click.option("--tokens", is_flag=True, help="Vectors of every token, not of the text.")
@click.option("--out", type=click.Path(), metavar="FILE.npy",
              help="Write the vectors to a numpy file.")  # fmt: skip
@click.option("--full", is_flag=True, help="Print all numbers of a vector to a terminal.")
@_common
def texts(
    model: str,
    texts: tuple[str, ...],
    files: tuple[str, ...],
    jsonl: bool,
    field: str,
    prompt: str | None,
    dimensions: int | None,
    no_truncate: bool,
    tokens: bool,
    out: str | None,
    full: bool,
    **options: Any,
) -> None:
    """Vectors of texts, of lines of files, or of standard input.

    Each text gives a line: JSON with the vector; to a terminal its first eight numbers.
    """
    if out is not None and not out.endswith(".npy"):
        raise BadRequest(f"--out {out} is no .npy file", "out")
    if tokens and out is not None:
        raise BadRequest("vectors of tokens go to standard output, not to --out", "out")
    with _load(model, options) as loaded:
        made: list[np.ndarray] = []
        done = 0
        bar = sys.stderr.isatty()
        for piece in _pieces(_entries(texts, files, jsonl, field)):
            written = [text for text, _ in piece]
            if tokens:
                found = loaded.token_vectors(written, prompt=prompt, truncate=not no_truncate)
                for each in found:
                    _print({"ids": list(each.ids), "vectors": each.vectors.tolist()})
                continue
            begun = done

            def progress(count: int, begun: int = begun) -> None:
                if bar:
                    click.echo(f"\r{begun + count} texts", nl=False, err=True)

            result = loaded.embed(
                written,
                prompt=prompt,
                dimensions=dimensions,
                truncate=not no_truncate,
                progress=progress,
            )
            for place in result.cut:
                note(f"text {done + place + 1} was cut to {loaded.length} tokens")
            if out is not None:
                made.append(result.vectors)
            else:
                for (_, line), vector in zip(piece, result.vectors, strict=True):
                    _show(line, vector, full)
            done += len(piece)
        if bar:
            click.echo("\r\033[K", nl=False, err=True)
        if out is not None:
            wide = dimensions or loaded.dimensions
            whole = np.concatenate(made) if made else np.zeros((0, wide), np.float32)
            np.save(out, whole)
            note(f"{len(whole)} vectors of {whole.shape[1]} in {out} ({loaded.precision})")


def _show(line: dict[str, Any], vector: np.ndarray, full: bool) -> None:
    if sys.stdout.isatty() and not full:
        begin = " ".join(f"{x:9.6f}" for x in vector[:8])
        click.echo(f"{begin}{' ...' if len(vector) > 8 else ''}  {line.get('text', '')!s:.40}")
    else:
        _print({**line, "embedding": vector.tolist()})


def _print(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def _entries(
    texts: tuple[str, ...], files: tuple[str, ...], jsonl: bool, field: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each text, and the object that its vector is added to."""
    for text in texts:
        yield text, {"text": text}
    for name in files:
        path = Path(name)
        if not path.is_file():
            raise NotFound(f"no file {name}")
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                yield _entry(line, jsonl, field, f"{name}:{number}")
    if not texts and not files:
        for number, line in enumerate(sys.stdin, 1):
            yield _entry(line, jsonl, field, f"line {number}")


def _entry(line: str, jsonl: bool, field: str, where: str) -> tuple[str, dict[str, Any]]:
    line = line.rstrip("\r\n")
    if not jsonl:
        return line, {"text": line}
    try:
        found = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"{where} is no JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get(field), str):
        raise BadRequest(f"{where} has no text under {field!r}; --field says where it is")
    return found[field], found


def _pieces(
    entries: Iterator[tuple[str, dict[str, Any]]],
) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    piece = []
    for entry in entries:
        piece.append(entry)
        if len(piece) == PIECE:
            yield piece
            piece = []
    if piece:
        yield piece


@embed.command()
@click.argument("model")
@click.argument("query")
@click.argument("documents", nargs=-1)
@click.option("--no-truncate", is_flag=True, help="Refuse a pair that is too long.")
@as_json
@_common
def rank(
    model: str,
    query: str,
    documents: tuple[str, ...],
    no_truncate: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Score documents, or lines of standard input, for a query; best first."""
    with _load(model, options) as loaded:
        found = list(documents) or [line.rstrip("\r\n") for line in sys.stdin]
        ranked = loaded.rank(query, found, truncate=not no_truncate)
        order = np.argsort(-ranked.scores, kind="stable")
        rows = [
            {"index": int(i), "score": float(ranked.scores[i]), "text": found[i]} for i in order
        ]
        if as_json:
            print_json(rows)
        else:
            for row in rows:
                click.echo(f"{row['score']:9.6f}  {row['text']}")


@embed.command()
@click.argument("model")
@click.argument("golden", type=click.Path())
@click.option("--tolerance", type=float, default=1e-4, show_default=True,
              help="Largest difference of a number of a vector.")  # fmt: skip
@as_json
@_common
def validate(model: str, golden: str, tolerance: float, as_json: bool, **options: Any) -> None:
    """Compare ids and vectors with those of a file.

    The file is JSON: a list, or an object with a list under "cases", of objects with "text", the
    recorded "embedding" and, if they are to be compared, "ids". A wrong id is an error whatever
    the vectors are.
    """
    from golem_embed.golden import compare, read

    cases = read(Path(golden))
    with _load(model, options) as loaded:
        found = compare(loaded, cases)
    worst = max(each["difference"] for each in found)
    ids = all(each["ids"] is not False for each in found)
    right = ids and worst <= tolerance
    summary = {
        "model": loaded.name,
        "precision": loaded.precision,
        "cases": len(found),
        "ids_equal": ids,
        "largest_difference": worst,
        "least_cosine": min(each["cosine"] for each in found),
        "tolerance": tolerance,
        "right": right,
    }
    if as_json:
        print_json({**summary, "each": found})
    else:
        for each in found:
            told = {True: "ids equal", False: "IDS DIFFER", None: "no ids"}[each["ids"]]
            click.echo(
                f"{each['difference']:.2e}  cosine {each['cosine']:.8f}  {told}  "
                f"{each['text']!s:.40}"
            )
        click.echo(
            f"{len(found)} texts, largest difference {worst:.2e}, "
            f"{'within' if right else 'NOT within'} {tolerance:g} ({loaded.precision})"
        )
    if not right:
        raise SystemExit(1)


@embed.command()
@click.argument("model")
@as_json
@_common
def info(model: str, as_json: bool, **options: Any) -> None:
    """Say what a model is and how it runs: its dimensions, pooling, prompts, precision."""
    with _load(model, options) as loaded:
        found = {
            "model": loaded.name,
            "architecture": loaded.architecture,
            "dimensions": loaded.dimensions or None,
            "scores": loaded.scores or None,
            "max_length": loaded.length,
            "pooling": loaded.pooling or None,
            "normalises": loaded.normalises,
            "prompts": dict(loaded.prompts),
            "prompt": loaded.prompt,
            "precision": loaded.precision,
        }
    if as_json:
        print_json(found)
    else:
        for key, value in found.items():
            if value not in (None, {}):
                click.echo(f"{key:14}{value}")


@embed.command()
@click.argument("model")
@click.option("--tokens", default=128, show_default=True, help="Of each text.")
@click.option("--batch", default=1, show_default=True, help="Texts that are asked at once.")
@click.option("--repeat", default=20, show_default=True, help="Times that it is measured.")
@as_json
@_common
def bench(model: str, tokens: int, batch: int, repeat: int, as_json: bool, **options: Any) -> None:
    """Measure how fast texts become vectors, or pairs scores: the median of several times.

    Of vectors the tokenizer is left out.
    """
    from golem_core.cli.bench_embedder import measure, show

    with _load(model, options) as loaded:
        found = measure(loaded, tokens, batch, repeat)
    if as_json:
        print_json(found)
    else:
        show(found)
