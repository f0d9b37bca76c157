"""What is done with every row of every batch, in C (`native/rows.c`).

Columns have shape `(n_rows,)`; those that come from a batch cannot be written to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.native_loops import address, column, pointer

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

_COUNT = ctypes.c_int64


def places_of(
    ranks: Int32Array, is_asked: BoolArray, ascending: Int64Array, order: Int64Array
) -> tuple[Int64Array, int]:
    """The place of each rank, where it is asked for; and the first row whose rank has none, or -1.

    `ascending` are the ranks that have a place, `order` where each of them stands.
    """
    places = np.empty(len(ranks), np.int64)
    find = native_loops.loaded().rows_places_of
    find.restype = _COUNT
    outsider = find(
        _COUNT(len(ranks)),
        address(column(ranks, np.int32)),
        address(is_asked, np.bool_),
        _COUNT(len(ascending)),
        address(ascending, np.int64),
        address(order, np.int64),
        address(places),
    )
    return places, outsider


def without_backward_times(
    launch: Int64Array, start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, int]:
    """Times as they can be, and of how many rows they go backwards: their starts and ends are taken for unseen."""
    launched, started, ended = np.empty((3, len(launch)), np.int64)
    take = native_loops.loaded().rows_without_backward_times
    take.restype = _COUNT
    n_backward = take(
        _COUNT(len(launch)),
        *(address(column(one, np.int64)) for one in (launch, start, end)),
        *(address(one) for one in (launched, started, ended)),
    )
    return launched, started, ended, n_backward


def _pointers(*names: str) -> tuple[tuple[str, type[ctypes.c_void_p]], ...]:
    return tuple((name, ctypes.c_void_p) for name in names)


class _Rows(ctypes.Structure):
    """`struct rows` of native/rows.c."""

    _fields_ = _pointers("column", "seq", "op", "size_bytes", "launch", "start", "end", "signature", "is_used")


class _Grid(ctypes.Structure):
    """`struct grid` of native/rows.c."""

    _fields_ = (
        ("width", _COUNT),
        *_pointers("closed_lines", "seen", "op", "size_bytes", "launch", "start", "end", "signature"),
    )


_INT64, _INT8, _BOOL = np.dtype(np.int64), np.dtype(np.int8), np.dtype(np.bool_)
_OF_ROWS = (_INT64, _INT64, _INT8, *(_INT64,) * 5, _BOOL)
_OF_GRID = (_BOOL, _BOOL, _INT8, *(_INT64,) * 5)


def put_rows(
    base: int, rows: Sequence[npt.NDArray[np.generic]], is_used: BoolArray, grid: Sequence[npt.NDArray[np.generic]]
) -> tuple[int, int]:
    """Put rows into a grid whose first line is `base`; how many came late, and how many came twice.

    Parameters
    ----------
    base
        The sequence number of the first line.
    rows
        Their columns: place, sequence number, operation, bytes, launch, start, end, signature.
    is_used
        Written: which rows are in the grid now. Not those of closed lines, and of two for one place the first.
    grid
        Which lines are closed; which places have been seen, shape `(n_lines, width)`; operation and bytes of each line;
        launch, start, end and signature of each place. Written.

    """
    columns = [*(column(one, kind) for one, kind in zip(rows, _OF_ROWS, strict=False)), is_used]
    of_rows = _Rows(*map(pointer, columns, _OF_ROWS))
    of_grid = _Grid(grid[1].shape[1], *map(pointer, grid, _OF_GRID))
    n_late, n_twice = _COUNT(0), _COUNT(0)
    native_loops.loaded().rows_put(
        _COUNT(len(is_used)),
        ctypes.byref(of_rows),
        _COUNT(base),
        ctypes.byref(of_grid),
        ctypes.byref(n_late),
        ctypes.byref(n_twice),
    )
    return n_late.value, n_twice.value
