"""The commands of this repository; `nox` alone is what CI runs (through bin/test).

Every session installs what it needs. Golem's own distributions are installed from wheels that
`tools/wheels.py` builds once for all sessions, so what is tested is what would be shipped.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "types", "tests", "kernels", "arm", "whole", "wheels"]

ROOT = Path(__file__).parent
DISTRIBUTIONS = sorted(p.parent.name for p in ROOT.glob("golem-*/pyproject.toml"))
PYPROJECT = nox.project.load_toml("pyproject.toml")

# Plugins whose conformance is also shown on a card, or on the driver that stands for one.
ON_VULKAN = ("golem-llama",)
# What chooses its layer by GOLEM_ISA; the tests of single kernels walk all layers by themselves.
PROGRAMS = [
    "golem-core/tests/test_limits.py",
    "golem-core/tests/test_program.py",
    *sorted(str(p) for p in Path().glob("golem-*/tests/test_conformance.py")),
]


def group(name: str) -> tuple[str, ...]:
    """The requirements of a dependency group of pyproject.toml."""
    return nox.project.dependency_groups(PYPROJECT, name)


def install(session: nox.Session, *distributions: str, groups: tuple[str, ...] = ("test",)) -> None:
    """Installs golem-core and the given distributions from this checkout, and what tests need."""
    wanted = list(dict.fromkeys(["golem-core", *distributions]))
    command = [sys.executable, "tools/wheels.py", *wanted]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    wheels = done.stdout.split()
    session.install(*wheels, *(req for name in groups for req in group(name)))
    # In an environment that is used again: the version does not tell one build from another.
    session.install("--force-reinstall", "--no-deps", *wheels)
    # Where nox's own environment can use a card, so shall the session: bin/setup --vulkan decides.
    if find_spec("kp") is not None:
        python = str(Path(session.bin) / "python")
        session.run("bin/install-vulkan", external=True, env={"PYTHON": python}, silent=True)


def run_tests(session: nox.Session, *tests: str, **environment: str) -> None:
    """Pytest in a temporary folder of its own: other runs clear the one that they share."""
    place = f"--basetemp={session.create_tmp()}/pytest"
    session.run("pytest", place, *tests, *session.posargs, env=environment)


@nox.session
@nox.parametrize("distribution", DISTRIBUTIONS, ids=DISTRIBUTIONS)
def tests(session: nox.Session, distribution: str) -> None:
    """One distribution's tests, with only it and core installed; the server's with all models."""
    core, server = distribution == "golem-core", distribution == "golem-server"
    groups = ("test", "oracle") if core else ("test", "server") if server else ("test",)
    install(session, *(DISTRIBUTIONS if server else (distribution,)), groups=groups)
    devices = "cpu,vulkan" if distribution in ON_VULKAN and find_spec("kp") else "cpu"
    run_tests(session, f"{distribution}/tests", GOLEM_TEST_DEVICES=devices)


@nox.session
def whole(session: nox.Session) -> None:
    """What crosses distributions: architecture, documents, end to end on real weights."""
    install(session, *DISTRIBUTIONS, groups=("test", "oracle"))
    run_tests(session, "tests")


@nox.session
def kernels(session: nox.Session) -> None:
    """What runs on kernels, with each layer of instruction sets but the last as the last one.

    `nox -s kernels -- avx2` runs one; the last layer is what all other sessions run on.
    """
    install(session, *DISTRIBUTIONS)
    probe = "from golem_core.cpu import dispatch; print(*dispatch.LAYERS)"
    present = str(session.run("python", "-c", probe, silent=True)).split()
    asked = [argument for argument in session.posargs if argument in present]
    session.posargs[:] = [argument for argument in session.posargs if argument not in present]
    for layer in asked or present[:-1]:
        run_tests(session, *PROGRAMS, GOLEM_ISA=layer)


@nox.session
def arm(session: nox.Session) -> None:
    """The AArch64 kernels, emulated: they compute what this processor's do, bit for bit."""
    core = nox.project.load_toml("golem-core/pyproject.toml")
    session.install(*core["build-system"]["requires"])
    reason = session.run("python", "tools/arm.py", "--install", silent=True)
    if str(reason).strip():
        session.skip(str(reason).strip())
    session.run("python", "tools/arm.py")


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: rules and format."""
    session.install(*group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy: strict over what is public and what is not, and over what tests call."""
    install(session, *DISTRIBUTIONS, groups=("types",))
    for distribution in DISTRIBUTIONS:
        session.run("mypy", f"{distribution}/src")
    for distribution in DISTRIBUTIONS:
        with session.chdir(distribution):  # their tests are packages of one name
            session.run("mypy", "--config-file=../tests/mypy.ini", "-p", "tests")


@nox.session
def wheels(session: nox.Session) -> None:
    """Every wheel has what an index wants, installs alone from its file, and is imported."""
    session.install(*group("wheels"))
    built = subprocess.run(
        [sys.executable, "tools/wheels.py"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.split()
    session.run("twine", "check", "--strict", *built)
    for path in sorted(built, key=lambda path: "golem_core-" not in path):  # core first
        session.install(path)
        session.run("python", "-I", "-c", f"import {Path(path).name.split('-')[0]}")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """The numbers that the READMEs quote: one file of bench/ each."""
    install(session, *DISTRIBUTIONS)
    for program in sorted(Path("bench").glob("*.py")):
        session.run("python", str(program), *session.posargs)


@nox.session(default=False)
def sanitize(session: nox.Session) -> None:
    """The kernels' tests under the address and undefined-behaviour sanitizers."""
    session.install(*group("test"))
    session.install("./golem-core", env={"GOLEM_SANITIZE": "address,undefined"})
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    session.run(
        "pytest",
        *(f"golem-core/tests/test_{name}.py" for name in ("floats", "attend", "products")),
        *session.posargs,
        env={"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"},
    )  # fmt: skip
