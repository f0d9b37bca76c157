"""The inner loops in C (`native/`): their build (`python -m streams.native_loops`), and how arrays are handed to it.

Numba would compile them for half a minute at their first use and takes a third of a second to import at each; a C
compiler takes one second, once, and a wheel made where there was one brings the build. Where there is neither, the
callers do the same in NumPy, bit for bit (`-ffp-contract=off`: a product and a sum stay two roundings).
"""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pacehound.instrument import native_build

if TYPE_CHECKING:  # a wheel is built where there is no NumPy
    import numpy.typing as npt

NAME = "libpacehound_loops.so"
SOURCES = Path(__file__).resolve().parent / "native"
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden")

logger = logging.getLogger(__name__)


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
def loaded() -> ctypes.CDLL | None:
    """The compiled loops, built now if they are not (a second); None where they cannot be, which is logged."""
    try:
        return ctypes.CDLL(str(native_build.made_once(path(), make)))
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        logger.info("the inner loops run in NumPy: %s", error)
        return None


def address(array: npt.NDArray[Any], kind: Any = None) -> ctypes.c_void_p:
    """Where an array's values lie, for a function in C.

    Parameters
    ----------
    array
        In C order.
    kind
        The type that its values must have; any where None.

    Raises
    ------
    ValueError
        It is not in C order, or of another type: C would read nonsense.

    """
    if not array.flags.c_contiguous or (kind is not None and array.dtype != kind):
        order = "C order" if array.flags.c_contiguous else "another order"
        raise ValueError(f"an array of {array.dtype} in {order}, where {kind or array.dtype} in C order is asked for")
    return array.ctypes.data_as(ctypes.c_void_p)  # holds the array, too


if __name__ == "__main__":
    print(native_build.made_once(path(), make))  # noqa: T201
