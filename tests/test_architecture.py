"""Imports point one way: weights, graph, backends, engine, command line; plugins know core only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(ROOT.glob("golem-*/src/*/"))
CORE = ROOT / "golem-core" / "src" / "golem_core"

# What a part of core may import: itself and what stands in a line above it.
LINES = [
    {"errors", "closing"},
    {"threads", "weights", "settings", "media"},
    {"graph", "text"},
    {"sampling", "embedding", "speech"},
    {"reference", "cpu", "vulkan", "memory", "model"},
    {"plugins"},
    {"engine", "trace", "hub", "hub_fetch"},
    {"api"},
    {"cli", "testing"},
]
# Parts of one line know each other only where this says so.
BESIDE = {
    ("hub", "hub_fetch"),
    ("hub_fetch", "hub"),
}
# Packages that only one part of core may know.
KEPT = {
    "kp": "vulkan",
    "click": "cli",
    "prompt_toolkit": "cli",
    "huggingface_hub": "hub_fetch",
    "llguidance": "sampling",
    "soundfile": "media",
    "pydub": "media",
    "PIL": "media",
    "aiohttp": "no part",
    "prometheus_client": "no part",
}


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, wherever in it, with the line; relative ones resolved."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: write the whole name"
            yield node.lineno, node.module or ""
            if node.module == "golem_core":
                yield from ((node.lineno, f"golem_core.{alias.name}") for alias in node.names)


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@pytest.mark.parametrize("package", SOURCES, ids=lambda path: path.name)
def test_a_distribution_knows_itself_and_core(package: Path) -> None:
    allowed = {package.name, "golem_core"}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in files(package)
        for line, name in imported(path)
        if name.split(".")[0].startswith("golem_") and name.split(".")[0] not in allowed
    ]
    assert wrong == []


def test_core_points_one_way() -> None:
    rank = {part: i for i, line in enumerate(LINES) for part in line}
    parts = {path.relative_to(CORE).parts[0].removesuffix(".py") for path in files(CORE)}
    assert parts - {"__init__"} == set(rank), "LINES must name every part of core"
    wrong = []
    for path in files(CORE):
        part = path.relative_to(CORE).parts[0].removesuffix(".py")
        if part == "__init__":
            continue
        for line, name in imported(path):
            names = name.split(".")
            if names[0] != "golem_core" or len(names) == 1 or names[1] not in rank:
                continue
            other = names[1]
            beside = rank[other] == rank[part] and (part, other) not in BESIDE and other != part
            if rank[other] > rank[part] or beside:
                wrong.append(f"{path.relative_to(ROOT)}:{line} ({part}) imports {name}")
    assert wrong == []


def test_what_only_one_part_may_know() -> None:
    wrong = []
    for path in files(CORE):
        part = path.relative_to(CORE).parts[0].removesuffix(".py")
        for line, name in imported(path):
            keeper = KEPT.get(name.split(".")[0])
            if keeper is not None and keeper != part:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def test_nothing_shipped_knows_the_tests() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for package in SOURCES
        for path in files(package)
        for line, name in imported(path)
        if name.split(".")[0] in {"tests", "ref", "bench", "tools"}
        or (name.split(".")[0] in {"pytest", "hypothesis"} and "testing" not in path.parts)
    ]
    assert wrong == []


@pytest.mark.parametrize("package", SOURCES, ids=lambda path: path.name)
def test_every_file_says_what_it_is(package: Path) -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in files(package)
        if path.read_text(encoding="utf-8").strip()
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []
