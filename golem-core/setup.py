"""golem-core's compiled parts: one extension module per instruction set, and the rest."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sysconfig
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup

DEBUG = bool(os.environ.get("GOLEM_DEBUG"))  # bounds checks, no optimisation
SANITIZE = os.environ.get("GOLEM_SANITIZE", "")  # e.g. address,undefined

AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVXVNNI = [*AVX2, "-mavxvnni"]
AVX512VNNI = [
    *AVX2,
    *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"),
    "-mprefer-vector-width=512",
]
AVX512BF16 = [*AVX512VNNI, "-mavx512bf16"]
AMX = [*AVX512VNNI, "-mamx-tile", "-mamx-int8"]
DOTPROD = ["-march=armv8.2-a+dotprod+fp16"]

# Every instruction set that a machine may have, and what its compiler must be told.
KERNELS = {
    "x86_64": {
        "generic": [],
        "avx2": AVX2,
        "avxvnni": AVXVNNI,
        "avx512vnni": AVX512VNNI,
        "avx512bf16": AVX512BF16,
        "amx": AMX,
    },
    "aarch64": {"generic": [], "neon": [], "neon_dotprod": DOTPROD},
}
# What not every compiler knows: where it does not, `dispatch` finds no such module.
YOUNG = ("avxvnni", "avx512bf16", "amx")
MACHINE = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
MACHINE = os.environ.get("GOLEM_TARGET", MACHINE)  # when the compiler is a cross-compiler

Options.warning_errors = True  # a Cython warning is a build failure

# Only the kernels, which hold no Python object, give up Cython's checks.
UNCHECKED = {
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}

# No contraction but where a kernel says fma: every instruction set rounds alike.
COMMON = ["-O0", "-g"] if DEBUG else ["-O3", "-fno-math-errno", "-ffp-contract=off"]
COMMON += [f"-fsanitize={SANITIZE}"] if SANITIZE else []
LINK = [f"-fsanitize={SANITIZE}"] if SANITIZE else []

CPU = Path("src/golem_core/cpu")


def extension(source: Path, flags: list[str]) -> Extension:
    """The extension module that a .pyx under src/ becomes."""
    name = ".".join(source.with_suffix("").parts[1:])
    folder = source.parent if source.parent.name == "kernels" else CPU
    depends = [str(p) for p in [*folder.rglob("*.pxi"), *folder.rglob("*.pxd")]]
    return Extension(
        name,
        [str(source)],
        extra_compile_args=COMMON + flags,
        extra_link_args=LINK,
        depends=depends,
        libraries=["m", "pthread"],
    )


def known(flags: list[str]) -> bool:
    """Whether the compiler knows the flags."""
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), *flags, "-fsyntax-only", "-x", "c", os.devnull]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


kernels = []
for isa, flags in KERNELS.get(MACHINE, {"generic": []}).items():
    if isa in YOUNG and not known(flags):
        print(f"the kernels for {isa} are left out: this compiler does not know {' '.join(flags)}")
        continue
    kernels.append(extension(CPU / "kernels" / f"{isa}.pyx", flags))
OTHERS = [Path("src/golem_core", part) for part in ("sampling", "weights")]
rest = [extension(s, []) for part in (CPU, *OTHERS) for s in sorted(part.glob("*.pyx"))]

setup(
    ext_modules=cythonize(kernels, compiler_directives=UNCHECKED, build_dir="build")
    + cythonize(rest, build_dir="build"),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
