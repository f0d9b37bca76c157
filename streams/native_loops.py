"""The inner loops in C (`native/`), and their build (`python -m streams.native_loops`).

A wheel made where there was a C compiler brings the build; elsewhere it is made at the first use, in seconds. There is
no second implementation: where there is neither build nor compiler, the streams cannot run, and say so. Values are the
same on every processor: a product and a sum stay two roundings (`-ffp-contract=off`), and no order is left to chance.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from functools import cache
from pathlib import Path

from pacehound.errors import Unavailable
from pacehound.instrument import native_build

NAME = "libpacehound_loops.so"
SOURCES = Path(__file__).resolve().parent / "native"
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
)


def folder() -> str:
    """The name of the folder of the build of these sources."""
    return f"loops-{native_build.digest(sorted([*SOURCES.glob('*.c'), *SOURCES.glob('*.h')]), FLAGS)}"


def path() -> Path:
    """Where the build of these sources is, or belongs."""
    return native_build.packaged(folder(), NAME) or native_build.place(folder(), NAME)


def make(target: Path) -> None:
    """Compile the loops at `target`.

    Raises
    ------
    RuntimeError
        There is no compiler, it failed, or the sources are not installed.

    """
    compiler = native_build.program(os.environ.get("CC"), "cc", "gcc", "clang")
    sources = sorted(SOURCES.glob("*.c"))
    if compiler is None or not sources:
        raise RuntimeError("no C compiler (set CC, or install gcc)" if sources else f"no C files in {SOURCES}")
    native_build.run([compiler, *FLAGS, *map(str, sources), "-o", str(target), "-lm"], "compiling the inner loops")


@cache
def loaded() -> ctypes.CDLL:
    """The compiled loops, built now if they are not (some seconds).

    Raises
    ------
    Unavailable
        There is no build, and none can be made here; says what to do.

    """
    try:
        return ctypes.CDLL(str(native_build.made_once(path(), make)))
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        raise Unavailable(
            f"the inner loops of the streams are not built, and cannot be built here: {error}. "
            "Install a C compiler (gcc or clang), or a wheel of Pacehound that was built for this platform"
        ) from error


if __name__ == "__main__":
    print(native_build.made_once(path(), make))  # noqa: T201
