"""How arrays are handed to functions in C: where their values lie, if they lie as C reads them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def address(array: npt.NDArray[Any], kind: Any = None) -> ctypes.c_void_p:
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
    kept = _Kept(pointer(array, kind))
    kept.array = array
    return kept


def pointer(array: npt.NDArray[Any], kind: Any = None) -> int:
    """The same for a field of a structure, which does not keep the array: the caller does."""
    flags = array.flags
    if (kind is None or array.dtype == kind) and flags.c_contiguous and flags.aligned:
        # A quarter of the time in which NumPy says it, and a batch has thirty arrays.
        where: int = pa.py_buffer(array).address
        return where
    order = "C order" if flags.c_contiguous else "another order"
    raise ValueError(f"an array of {array.dtype} in {order}, where {kind or array.dtype} in C order is asked for")


def pointers(*names: str) -> tuple[tuple[str, type[ctypes.c_void_p]], ...]:
    """Fields of a structure that say where arrays lie."""
    return tuple((name, ctypes.c_void_p) for name in names)


def column(array: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """The array as `address` takes it: itself, or a copy."""
    flags = array.flags
    if array.dtype == kind and flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, kind, ["C", "A"]) if not flags.aligned else np.ascontiguousarray(array, kind)


class _Kept(ctypes.c_void_p):
    """Where an array lies that is kept as long as this is."""

    array: npt.NDArray[Any]
