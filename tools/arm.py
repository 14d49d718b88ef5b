"""Holds the AArch64 kernels to those of this processor, bit for bit, by emulation.

    python tools/arm.py             compiles, runs and compares; 1 if a kernel differs
    python tools/arm.py --install   installs the Debian packages that this needs, as root or through
                                    sudo, and prints why the check cannot run here, if it cannot

The layers of kernels are compiled for AArch64 and for this machine, with the flags of
`golem-core/setup.py`, and linked with `tests/arm/driver.pyx`, which runs every kernel; for AArch64
it runs under qemu. Needs x86-64. Everything that it makes is in `build/arm`.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "golem-core"
KERNELS = CORE / "src" / "golem_core" / "cpu" / "kernels"
DRIVER = ROOT / "tests" / "arm" / "driver.pyx"
BUILD = ROOT / "build" / "arm"

COMPILERS = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}
RUNNERS = {"x86_64": [], "aarch64": ["qemu-aarch64", "-cpu", "max"]}
# What has to be there, and the Debian package that brings it.
PACKAGES = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
    "/usr/aarch64-linux-gnu/lib/libc.a": "libc6-dev-arm64-cross",
    "qemu-aarch64": "qemu-user",
}


def main(arguments: list[str]) -> int:
    """Compiles, runs and compares, or installs what that needs."""
    if arguments not in ([], ["--install"]):
        print(__doc__, file=sys.stderr)
        return 2
    reason = hindrance(install="--install" in arguments)
    if reason:
        print(f"arm: {reason}")
    if reason or arguments:
        return 0 if arguments else 1
    setup = settings()
    layers = {machine: list(flags) for machine, flags in setup["KERNELS"].items()}
    layers["x86_64"] = [n for n in layers["x86_64"] if runs(setup["KERNELS"]["x86_64"][n])]
    try:
        build(setup, layers)
    except subprocess.CalledProcessError as error:  # the compiler has said why
        print(f"arm: failed: {' '.join(error.cmd)}")
        return 1
    return compare(layers)


def hindrance(install: bool) -> str:
    """Why the check cannot run here, after having installed what may be; empty if it can."""
    if platform.machine() != "x86_64":
        return f"this machine is {platform.machine()}; the check compares with x86_64"
    said = apt(missing()) if install and missing() else ""
    if not missing():
        return ""
    return f"these Debian packages are missing: {' '.join(missing())}" + (said and f" ({said})")


def missing() -> list[str]:
    """The Debian packages that are not installed."""
    return [
        package
        for name, package in PACKAGES.items()
        if not (Path(name).exists() if name.startswith("/") else shutil.which(name))
    ]


def apt(packages: list[str]) -> str:
    """Has apt-get install packages; what it said last where it did not."""
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    for name in [*root[:1], "apt-get"]:
        if not shutil.which(name):
            return f"there is no {name} to install them"
    quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    subprocess.run([*root, *quiet, "update"], capture_output=True)
    command = [*root, *quiet, "install", "-y", "--no-install-recommends", *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def settings() -> dict[str, Any]:
    """The names of golem-core's setup.py: layers, flags and directives."""
    with mock.patch("setuptools.setup"), mock.patch("Cython.Build.cythonize", return_value=[]):
        return runpy.run_path(str(CORE / "setup.py"))


def runs(flags: list[str]) -> bool:
    """Whether this processor has what a compiler is told to use."""
    names = {"avxvnni": "avx_vnni", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16"}
    wanted = {names.get(flag[2:], flag[2:]) for flag in flags if "=" not in flag}
    return wanted <= set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())


def build(setup: dict[str, Any], layers: dict[str, list[str]]) -> None:
    """Makes a program of each machine's layers: `build/arm/MACHINE`."""
    BUILD.mkdir(parents=True, exist_ok=True)
    sources = {name: wrapped(name) for names in layers.values() for name in names}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        translated = {
            name: pool.submit(translate, path, setup["UNCHECKED"])
            for name, path in {**sources, "driver": DRIVER}.items()
        }
        objects = {
            machine: [
                pool.submit(
                    compiled,
                    machine,
                    translated[name].result(),
                    [*setup["COMMON"], *setup["KERNELS"][machine].get(name, [])],
                )
                for name in [*names, "driver"]
            ]
            for machine, names in layers.items()
        }
        for machine, made in objects.items():
            link(machine, layers[machine], [str(future.result()) for future in made])


def wrapped(layer: str) -> Path:
    """A layer's module, and a function that does what its initialisation would, without Python."""
    text = "".join(texts(KERNELS / f"{layer}.pyx"))
    lines = [f'include "{layer}.pyx"', f"cdef public void lay_{layer}(void* k) noexcept:"]
    for name in re.findall(r"^cdef [\w ]+\[\w+\] (\w+)", text, re.M):
        value = re.search(rf"^(?:cdef .*\] )?{name}(?:\[:\])? = (\[[^]]*\])", text, re.M)
        if value is None:
            raise SystemExit(f"arm: found no values of {name}, an array of the kernels of {layer}")
        lines.append(f"    {name}[:] = {value[1]}")
    for fill in re.findall(r"^(fill_\w+)\(&exported\)", text, re.M):
        lines.append(f"    {fill}(<Kernels*> k)")
    path = BUILD / f"layer_{layer}.pyx"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def texts(source: Path) -> Iterator[str]:
    """A source and everything that it includes."""
    text = source.read_text(encoding="utf-8")
    yield text
    for name in re.findall(r'^include "(.+)"', text, re.M):
        yield from texts(KERNELS / name)


def translate(source: Path, directives: dict[str, bool]) -> Path:
    """A .pyx as C."""
    target = BUILD / f"{source.stem}.c"
    options = [part for name, value in directives.items() for part in ("-X", f"{name}={value}")]
    folders = ["-I", str(KERNELS), "-I", str(CORE / "src")]
    command = [sys.executable, "-m", "cython", *options, *folders, "-o", str(target), str(source)]
    subprocess.run(command, check=True)
    return target


def compiled(machine: str, source: Path, flags: list[str]) -> Path:
    """An object file; Python's headers need not be those of its machine."""
    target = BUILD / f"{source.stem}.{machine}.o"
    folders = ["-I", str(headers()), "-I", sysconfig.get_path("include")]
    command = [COMPILERS[machine], *flags, "-fwrapv", "-w", "-ffunction-sections"]
    command += ["-fdata-sections", *folders, "-c", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def headers() -> Path:
    """A folder where Debian's pyconfig.h, which asks for that of its machine, finds ours."""
    folder = BUILD / "include"
    name = f"python{sysconfig.get_python_version()}"
    ours = Path("/usr/include") / str(sysconfig.get_config_var("MULTIARCH")) / name / "pyconfig.h"
    if ours.exists():
        theirs = folder / "aarch64-linux-gnu" / name
        theirs.mkdir(parents=True, exist_ok=True)
        (theirs / "pyconfig.h").write_text(f'#include "{ours}"\n', encoding="utf-8")
    return folder


def link(machine: str, layers: list[str], objects: list[str]) -> None:
    """A program without Python: of a module, only the kernels are kept."""
    table = BUILD / f"layers.{machine}.c"
    declared = "".join(f"void lay_{name}(void*);\n" for name in layers)
    listed = ", ".join(f"lay_{name}" for name in layers)
    table.write_text(f"{declared}void (*const lay[])(void*) = {{{listed}}};\n", encoding="utf-8")
    command = [COMPILERS[machine], "-static", "-Wl,--gc-sections", str(table), *objects]
    subprocess.run([*command, "-lm", "-o", str(BUILD / machine)], check=True)


def compare(layers: dict[str, list[str]]) -> int:
    """Runs every layer, and prints the kernels that differ from this machine's lowest."""
    reference: dict[str, str] = {}
    failed = 0
    for machine, names in layers.items():
        for count, layer in enumerate(names, 1):
            found = sums(machine, count)
            reference = reference or found
            differing = Counter(
                case.split()[0]
                for case in reference | found
                if found.get(case) != reference.get(case) or found[case] == "zeros"
            )
            failed += len(differing)
            for kernel, cases in differing.items():
                print(f"arm: {kernel} of {layer} ({machine}) differs in {cases} cases")
            if not differing:
                print(f"arm: {layer} ({machine}): {len(found)} results are the same")
    return 1 if failed else 0


def sums(machine: str, layers: int) -> dict[str, str]:
    """What the driver prints with a machine's lowest layers: the sum of each kernel's case."""
    command = [*RUNNERS[machine], str(BUILD / machine), str(layers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        last = done.stdout.strip().rpartition("\n")[2]
        raise SystemExit(f"arm: {' '.join(command)} ended with {done.returncode} after: {last}")
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
