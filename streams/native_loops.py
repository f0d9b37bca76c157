"""The inner loops in C (`native/`): their build (`python -m streams.native_loops`), and how arrays are handed to it.

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
from typing import TYPE_CHECKING, Any

from pacehound.errors import Unavailable
from pacehound.instrument import native_build

if TYPE_CHECKING:  # a wheel is built where there is no NumPy
    import numpy.typing as npt

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


def address(array: npt.NDArray[Any], kind: Any = None) -> Any:
    """Where an array's values lie, for a function in C; what is returned keeps the array.

    Parameters
    ----------
    array
        Aligned, in C order.
    kind
        The type that its values must have; any where None.

    Raises
    ------
    ValueError
        It is not in C order, or of another type: C would read nonsense.

    """
    if kind is None or array.dtype == kind:
        try:
            # A quarter of the time that the other way takes, and a batch has thirty arrays. Of records, NumPy would
            # first write down the type in words, so they are handed over as bytes.
            return _Memory.from_buffer((array if array.dtype.names is None else array.view("u1")).data)
        except TypeError:  # it cannot be written to, or is not in C order
            if array.flags.c_contiguous and array.flags.aligned:
                return array.ctypes.data_as(ctypes.c_void_p)
    order = "C order" if array.flags.c_contiguous else "another order"
    raise ValueError(f"an array of {array.dtype} in {order}, where {kind or array.dtype} in C order is asked for")


def pointer(array: npt.NDArray[Any], kind: Any = None) -> int:
    """The same for a field of a structure, which does not keep the array: the caller does."""
    memory = address(array, kind)
    return ctypes.addressof(memory) if isinstance(memory, _Memory) else memory.value


def column(array: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """The array as `address` takes it: itself, or a copy."""
    import numpy as np

    return np.require(array, kind, ["C", "A"]) if not array.flags.aligned else np.ascontiguousarray(array, kind)


_Memory = ctypes.c_char * 0
"""Memory of any length: what is passed is where it begins."""


if __name__ == "__main__":
    print(native_build.made_once(path(), make))  # noqa: T201
