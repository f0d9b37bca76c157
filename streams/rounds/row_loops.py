"""The inner loops of stage one, compiled: what is done with every row of every batch.

A batch has a hundred rows or two, so that what it costs is the number of calls into NumPy, and not what they do.
Columns have shape `(n_rows,)`; those that come from a batch cannot be written to. Every loop keeps the rows' order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streams.compiled import compiled

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]


@compiled
def places_of(
    ranks: Int32Array, is_asked: BoolArray, ascending: Int64Array, order: Int64Array
) -> tuple[Int64Array, int]:
    """The place of each rank, where it is asked for; and the first row whose rank has none, or -1.

    `ascending` are the ranks that have a place, `order` where each of them stands.
    """
    places, outsider = np.zeros(len(ranks), np.int64), -1
    for i in range(len(ranks)):
        if is_asked[i]:
            at = np.searchsorted(ascending, ranks[i])
            is_known = at < len(ascending) and ascending[at] == ranks[i]
            places[i] = order[at] if is_known else -1
            if not is_known and outsider < 0:
                outsider = i
    return places, outsider


@compiled
def without_backward_times(
    launch: Int64Array, start: Int64Array, end: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, int]:
    """Times as they can be, and of how many rows they go backwards: their starts and ends are taken for unseen."""
    launched, started, ended, n_backward = launch.copy(), start.copy(), end.copy(), 0
    for i in range(len(launch)):
        is_negative = launch[i] < 0 or start[i] < 0 or end[i] < 0
        if is_negative or (end[i] > 0 and (end[i] < launch[i] or end[i] < start[i])):
            n_backward += 1
            started[i] = ended[i] = 0
            launched[i] = max(launch[i], 0)
    return launched, started, ended, n_backward


@compiled
def put_rows(
    base: int,
    column: Int64Array,
    seq: Int64Array,
    op: Int8Array,
    size_bytes: Int64Array,
    launch: Int64Array,
    start: Int64Array,
    end: Int64Array,
    signature: Int64Array,
    is_used: BoolArray,
    closed_lines: BoolArray,
    seen_at: BoolArray,
    op_of: Int8Array,
    size_of: Int64Array,
    launch_at: Int64Array,
    start_at: Int64Array,
    end_at: Int64Array,
    signature_at: Int64Array,
) -> tuple[int, int]:
    """Put rows into a grid whose first line is `base`; how many came late, and how many came twice.

    `is_used` tells which rows are in the grid now: not those of closed lines, and of two for one place the first.
    """
    n_late = n_twice = 0
    for i in range(len(seq)):
        line, place = seq[i] - base, column[i]
        is_used[i] = False
        if line < 0 or closed_lines[line]:
            n_late += 1
        elif seen_at[line, place]:
            n_twice += 1
        else:
            is_used[i] = seen_at[line, place] = True
            op_of[line] = op[i]
            size_of[line] = max(size_of[line], size_bytes[i])
            launch_at[line, place] = launch[i]
            start_at[line, place] = start[i]
            end_at[line, place] = end[i]
            signature_at[line, place] = signature[i]
    return n_late, n_twice
