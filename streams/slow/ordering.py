"""The order of many times of many ranks: what `numpy.lexsort` says, several times as fast (`native/ordering.c`)."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.arrays_in_c import address, column

Int64Array = npt.NDArray[np.int64]

_NUMBER = ctypes.c_int64
MAX_ABSENT = 1 << 16
"""Ranks between the lowest and the highest that have no time: each takes some bytes."""


def order_by(rank: Int64Array, time_ns: Int64Array, then: Int64Array) -> Int64Array:
    """Indices that sort by rank, then time, then `then`, then place; all arrays have shape `(n,)`.

    What ascends already, as the calls of a communicator do, is merged. Ranks that lie far apart for their number are
    sorted in the ordinary way.

    >>> order_by(np.array([1, 0, 0, 0]), np.array([5, 9, 7, 7]), np.array([0, 0, 2, 1])).tolist()
    [3, 2, 1, 0]
    """
    n = len(rank)
    if not n:
        return np.zeros(0, np.int64)
    lowest = int(rank.min())
    n_ranks = int(rank.max()) - lowest + 1
    if n_ranks > n + MAX_ABSENT:
        return np.lexsort((then, time_ns, rank))
    order, ends = np.empty(n, np.int64), np.empty(n_ranks, np.int64)
    failed = native_loops.loaded().order_by(
        _NUMBER(n),
        *(address(column(one, np.int64)) for one in (rank, time_ns, then)),
        _NUMBER(lowest),
        _NUMBER(n_ranks),
        *(address(one) for one in (ends, order)),
    )
    if failed:
        raise MemoryError(f"no memory to put the calls of {n_ranks} ranks into order")
    return order


def in_order(rank: Int64Array, time_ns: Int64Array, then: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The columns in the order of `order_by`: themselves where they ascend, as they nearly always do.

    >>> [values.tolist() for values in in_order(np.array([1, 0]), np.array([5, 9]), np.array([0, 3]))]
    [[0, 1], [9, 5], [3, 0]]
    """
    ascends = native_loops.loaded().order_ascends
    ascends.restype = ctypes.c_bool
    if ascends(_NUMBER(len(rank)), *(address(column(one, np.int64)) for one in (rank, time_ns, then))):
        return rank, time_ns, then
    order = order_by(rank, time_ns, then)
    return rank[order], time_ns[order], then[order]
