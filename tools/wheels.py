"""Builds the wheels of this checkout, each once: `build/wheels/DISTRIBUTION/SUM/*.whl`.

    python tools/wheels.py [DISTRIBUTION...]      prints the paths, all distributions by default

SUM is taken over the distribution's sources and the interpreter, so an unchanged distribution is
not built again, in whichever environment its wheel is wanted. Needs only pip: the build itself
runs in pip's own isolated environment.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = sorted(path.parent.name for path in ROOT.glob("golem-*/pyproject.toml"))
# What a wheel is made of; tests and documents do not change it.
SOURCES = ("pyproject.toml", "setup.py", "README.md", "src/**/*")
MADE = {".so", ".c", ".pyc"}


def main(names: list[str]) -> int:
    """Builds what is missing and prints every wheel's path."""
    for name in names or DISTRIBUTIONS:
        if name not in DISTRIBUTIONS:
            print(f"no distribution {name}; there are {', '.join(DISTRIBUTIONS)}", file=sys.stderr)
            return 2
        try:
            print(wheel(name))
        except subprocess.CalledProcessError as error:  # pip has said why
            print(f"wheels: {name} could not be built", file=sys.stderr)
            return error.returncode
    return 0


def wheel(name: str) -> Path:
    """The wheel of one distribution, built if its sources have changed since the last."""
    home = ROOT / "build" / "wheels" / name
    made = home / _sum(ROOT / name)
    if not list(made.glob("*.whl")):
        print(f"building {name}", file=sys.stderr)
        _leave_only_extensions(ROOT / name)
        work = home / "work"
        shutil.rmtree(work, ignore_errors=True)
        command = [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--wheel-dir", str(work), str(ROOT / name)),
        ]
        subprocess.run(command, check=True, stdout=sys.stderr)
        for old in home.iterdir():
            if old != work:
                shutil.rmtree(old)
        work.rename(made)
    return next(made.glob("*.whl"))


def _sum(folder: Path) -> str:
    total = hashlib.sha256(f"{sysconfig.get_platform()} {sys.implementation.cache_tag}".encode())
    for pattern in SOURCES:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and path.suffix not in MADE and ".egg-info" not in str(path):
                total.update(f"\0{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]


def _leave_only_extensions(folder: Path) -> None:
    """Empties setuptools' `build/lib*` but for extensions that still have a source.

    An extension that is up to date is not compiled again; everything else that an older build
    left there would be packed into the wheel, deleted modules too.
    """
    for lib in folder.glob("build/lib*"):
        for path in [p for p in lib.rglob("*") if p.is_file()]:
            source = (
                folder / "src" / path.relative_to(lib).parent / (path.name.split(".")[0] + ".pyx")
            )
            if path.suffix != ".so" or not source.exists():
                path.unlink()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
