"""How the state of a series lies in memory: NumPy types made from what the loops in C tell (`native/records.h`)."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from streams import native_loops


class _Field(ctypes.Structure):
    """`struct field` of native/records.c."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("of", ctypes.c_char_p),
        ("count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
    )


@cache
def record(name: str) -> np.dtype[np.void]:
    """The type of a record: `measure`, `posterior`, `drift`, `pattern` or `series`."""
    first = ctypes.cast(getattr(native_loops.loaded(), f"{name}_fields"), ctypes.POINTER(_Field))
    names: list[str] = []
    types: list[Any] = []
    offsets: list[int] = []
    while (told := first[len(names)]).name:
        of = told.of.decode()
        one = np.dtype(of) if of in ("f8", "i8") else record(of)
        names.append(told.name.decode())
        types.append((one, (told.count,)) if told.count else one)
        offsets.append(told.offset)
    return np.dtype({"names": names, "formats": types, "offsets": offsets})
