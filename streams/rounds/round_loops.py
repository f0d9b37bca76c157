"""What is asked of the cells of many blocks of rounds, in C (`native/rounds.c`).

A block has `lengths[b]` rounds, each with a cell for each of its `widths[b]` ranks. Columns of rounds hold those of all
blocks one behind the other, and so do columns of cells.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OPS
from streams import native_loops
from streams.arrays_in_c import address

Int64Array = npt.NDArray[np.int64]
Int8Array = npt.NDArray[np.int8]

_COUNT = ctypes.c_int64

ENDS_FOR_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
"""Operations that nobody can leave before the last one has come."""

_ENDS_FOR_ALL = np.array([op in ENDS_FOR_ALL for op in OPS], np.bool_)


def times_of(lengths: Int64Array, widths: Int64Array, arrival_ns: Int64Array, end_ns: Int64Array) -> Int64Array:
    """The event time of each round: its last end, else its last arrival, 0 where nothing is known.

    Raises
    ------
    ValueError
        The blocks have other numbers of cells than the columns.

    """
    times_ns = np.empty(int(lengths.sum()), np.int64)
    failed = native_loops.loaded().rounds_times(
        _COUNT(len(lengths)),
        *(address(one, np.int64) for one in (lengths, widths)),
        _COUNT(len(times_ns)),
        _COUNT(_n_cells(arrival_ns, end_ns)),
        *(address(one, np.int64) for one in (arrival_ns, end_ns, times_ns)),
    )
    if failed:
        raise ValueError(f"{len(lengths)} blocks of rounds do not have the {len(end_ns)} cells that are given")
    return times_ns


def in_order_of_blocks(
    order: Int64Array, n_of_block: Int64Array, columns: Sequence[npt.NDArray[Any]]
) -> list[npt.NDArray[Any]]:
    """Columns that hold values of blocks, `n_of_block` of each, with the blocks in another order.

    >>> in_order_of_blocks(np.array([1, 0]), np.array([1, 2]), [np.array([5, 6, 7])])[0].tolist()
    [6, 7, 5]

    Raises
    ------
    ValueError
        The blocks have other numbers of values than the columns.

    """
    ends = np.cumsum(n_of_block)
    begins, n = ends - n_of_block, int(n_of_block.sum())
    if any(len(values) != n for values in columns):
        raise ValueError(f"{len(order)} blocks do not have as many values as columns of {list(map(len, columns))}")
    found = [np.empty_like(values) for values in columns]
    for values, into in zip(columns, found, strict=True):
        native_loops.loaded().rounds_in_order_of_blocks(
            _COUNT(len(order)),
            *(address(one, np.int64) for one in (order, begins, ends)),
            _COUNT(values.itemsize),
            address(values),
            address(into),
        )
    return found


def measured(
    lengths: Int64Array,
    widths: Int64Array,
    arrival_ns: Int64Array,
    start_ns: Int64Array,
    end_ns: Int64Array,
    op: Int8Array,
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """Of each round what many ask: the columns of `RoundTable` from `times_ns` on, in their order.

    Raises
    ------
    ValueError
        The blocks have other numbers of rounds or cells than the columns, or there is no such operation.

    """
    found = np.empty((5, len(op)), np.int64)
    failed = native_loops.loaded().rounds_measure(
        _COUNT(len(lengths)),
        *(address(one, np.int64) for one in (lengths, widths)),
        _COUNT(len(op)),
        _COUNT(_n_cells(arrival_ns, start_ns, end_ns)),
        *(address(one, np.int64) for one in (arrival_ns, start_ns, end_ns)),
        address(op, np.int8),
        address(_ENDS_FOR_ALL, np.bool_),
        _COUNT(len(_ENDS_FOR_ALL)),
        *(address(one, np.int64) for one in found),
    )
    if failed:
        raise ValueError(
            f"{len(lengths)} blocks of rounds do not have the {len(op)} rounds and {len(end_ns)} cells that are given, "
            f"or an operation is outside 0..{len(OPS) - 1}"
        )
    times_ns, n_seen, longest_ns, shortest_ns, transfer_ns = found
    return times_ns, n_seen, longest_ns, shortest_ns, transfer_ns


def _n_cells(*columns: Int64Array) -> int:
    """How many cells all of them have."""
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"columns of cells have the lengths {[len(column) for column in columns]}")
    return len(columns[0])
