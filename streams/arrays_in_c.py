"""How arrays are handed to functions in C: where their values lie, if they lie as C reads them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


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
    flags = array.flags
    if (kind is None or array.dtype == kind) and flags.c_contiguous and flags.writeable:
        # Of records, NumPy would first write down the type in words, so they are handed over as bytes.
        return _Memory.from_buffer((array if array.dtype.names is None else array.view("u1")).data)
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


def column(array: npt.NDArray[Any], kind: Any) -> npt.NDArray[Any]:
    """The array as `address` takes it: itself, or a copy."""
    flags = array.flags
    if array.dtype == kind and flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, kind, ["C", "A"]) if not flags.aligned else np.ascontiguousarray(array, kind)


_Memory = ctypes.c_char * 0
"""Memory of any length: what is passed is where it begins."""


class _Kept(ctypes.c_void_p):
    """Where an array lies that is kept as long as this is."""

    array: npt.NDArray[Any]
