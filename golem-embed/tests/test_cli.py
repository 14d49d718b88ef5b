"""`golem embed` as it is typed: lines in, lines or a numpy file out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import golem_core
from golem_core.errors import BadRequest, ContextFull, NotFound, Unsupported
from golem_embed.cli import embed

CHECKPOINTS = Path(__file__).parent / "checkpoints"
MODEL = str(CHECKPOINTS / "bert-cls")
TEXTS = ["the fox", "über 東京 \U0001f600", ""]


def typed(*words: str, given: str = "", error: type[Exception] | None = None) -> Result:
    """What a command printed; `error` is what it must raise, which `golem` turns into a message."""
    result = CliRunner().invoke(embed, words, input=given)
    if error is None:
        assert result.exception is None, result.exception
    else:
        assert isinstance(result.exception, error), result.exception
    return result


def vectors(**options) -> np.ndarray:
    with golem_core.load_embedder(MODEL, threads=1) as model:
        return model.embed(TEXTS, **options).vectors


def objects(result: Result) -> list[dict]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_texts_lines_and_files_give_the_same_lines(tmp_path: Path) -> None:
    lines = "".join(f"{text}\n" for text in TEXTS)
    (tmp_path / "texts.txt").write_text(lines, encoding="utf-8")
    typed_in = objects(typed(MODEL, *TEXTS, "--threads", "1"))
    assert [line["text"] for line in typed_in] == TEXTS
    assert np.array_equal(np.float32([line["embedding"] for line in typed_in]), vectors())
    assert objects(typed(MODEL, given=lines)) == typed_in
    assert objects(typed(MODEL, "--file", str(tmp_path / "texts.txt"))) == typed_in
    assert objects(typed("texts", MODEL, *TEXTS)) == typed_in


def test_objects_keep_what_they_hold() -> None:
    given = "".join(json.dumps({"id": i, "body": text}) + "\n" for i, text in enumerate(TEXTS))
    found = objects(typed(MODEL, "--jsonl", "--field", "body", "--dimensions", "8", given=given))
    assert [(line["id"], line["body"]) for line in found] == list(enumerate(TEXTS))
    made = np.float32([line["embedding"] for line in found])
    assert np.array_equal(made, vectors(dimensions=8))


@pytest.mark.parametrize("line", ["no json", "[1]", '{"text": 1}'])
def test_an_object_without_a_text_is_refused(line: str) -> None:
    found = typed(MODEL, "--jsonl", given=f'{{"text": "a"}}\n{line}\n', error=BadRequest)
    assert "line 2" in str(found.exception)


def test_a_numpy_file(tmp_path: Path) -> None:
    out = tmp_path / "vectors.npy"
    typed(MODEL, *TEXTS, "--out", str(out), "--prompt", "query")
    assert np.array_equal(np.load(out), vectors(prompt="query"))
    typed(MODEL, "--out", str(out), given="")
    assert np.load(out).shape == (0, 32)
    typed(MODEL, "a", "--out", str(tmp_path / "vectors.txt"), error=BadRequest)
    typed(MODEL, "--file", str(tmp_path / "absent"), error=NotFound)


def test_what_is_too_long_is_said_or_refused() -> None:
    long = "the lazy dog " * 60
    assert "text 2 was cut to 96 tokens" in typed(MODEL, "fox", long).stderr
    typed(MODEL, "fox", long, "--no-truncate", error=ContextFull)


def test_vectors_of_tokens() -> None:
    (found,) = objects(typed(MODEL, "the fox", "--tokens"))
    assert np.shape(found["vectors"]) == (len(found["ids"]), 32)


def test_validate_finds_what_differs(tmp_path: Path) -> None:
    golden = json.loads((CHECKPOINTS / "bert-cls" / "golden.json").read_text(encoding="utf-8"))
    path = tmp_path / "golden.json"
    path.write_text(json.dumps(golden), encoding="utf-8")
    assert "within 0.0001" in typed("validate", MODEL, str(path)).stdout
    golden["cases"][1]["embedding"][3] += 0.01
    path.write_text(json.dumps(golden), encoding="utf-8")
    assert CliRunner().invoke(embed, ["validate", MODEL, str(path)]).exit_code == 1
    path.write_text("[]", encoding="utf-8")
    typed("validate", MODEL, str(path), error=BadRequest)


def test_rank_puts_the_best_first() -> None:
    cross = str(CHECKPOINTS / "cross-bert")
    found = json.loads(typed("rank", cross, "the fox", "a dog", "the fox", "--json").stdout)
    scores = [row["score"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert {row["text"] for row in found} == {"a dog", "the fox"}
    typed("rank", MODEL, "the fox", "a dog", error=Unsupported)


def test_bench_prints_a_time() -> None:
    found = json.loads(typed("bench", MODEL, "--tokens", "12", "--repeat", "2", "--json").stdout)
    assert found["tokens"] == 12
    assert found["milliseconds"] > 0
    pairs = str(CHECKPOINTS / "cross-bert")
    found = json.loads(typed("bench", pairs, "--tokens", "30", "--repeat", "1", "--json").stdout)
    assert found["tokens_per_second"] > found["texts_per_second"] > 0
    typed("bench", MODEL, "--tokens", "97", error=BadRequest)


def test_info_says_how_a_model_runs() -> None:
    found = json.loads(typed("info", MODEL, "--precision", "bf16", "--json").stdout)
    assert found["precision"] == "bf16"
    assert (found["dimensions"], found["max_length"], found["pooling"]) == (32, 96, "cls")
    assert found["prompts"] == {"query": "search: ", "document": ""}
    lines = typed("info", MODEL).stdout.splitlines()
    assert "precision     f32" in lines
    assert (
        json.loads(typed("info", str(CHECKPOINTS / "cross-bert"), "--json").stdout)["scores"] == 1
    )
