"""Rows to tensors. In C (`native/packing.c`): two passes, no sorting, no temporary arrays as long as the file; here in
NumPy, for where that is not built. Both give the same bits.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.native_loops import address
from streams.whatif.reader import NUMBERS, OpTable

FloatArray = npt.NDArray[np.floating[Any]]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

OF_UNKNOWN_TYPE, NEGATIVE, IMPOSSIBLE, TWICE = 0, 1, 2, 3
"""Why a row was not taken."""


def count_keys(table: OpTable, seen: Int64Array, refused: Int64Array) -> None:
    """Count the usable rows of each (optype, stage, seq_id) into `seen`, the others by reason into `refused`."""
    library = native_loops.loaded()
    if library is not None:
        getattr(library, f"count_keys_{table.start_s.dtype}")(
            ctypes.c_int64(len(table)),
            *(_column(table, name) for name in ("optype", "stage", "dp_rank", "seq_id", "duration_s", "start_s")),
            *(ctypes.c_int64(n) for n in seen.shape[1:]),
            address(seen, np.int64),
            address(refused, np.int64),
        )
        return
    is_known, is_possible, is_positive = _usable(table)
    refused[OF_UNKNOWN_TYPE] += (~is_known).sum()
    refused[IMPOSSIBLE] += (is_known & ~is_possible).sum()
    refused[NEGATIVE] += (is_known & is_possible & ~is_positive).sum()
    rows = is_known & is_possible & is_positive
    np.add.at(seen, (table.optype[rows], table.stage[rows], table.seq_id[rows]), 1)


def scatter(
    table: OpTable,
    steps: Int64Array,
    op_of_key: Int64Array,
    starts_s: FloatArray,
    durations_s: FloatArray,
    first_row: Int64Array,
    ranks: Int64Array,
    surplus: Int64Array,
    moved: Int64Array,
    refused: Int64Array,
) -> None:
    """Put every usable row where it belongs.

    `steps` are the distinct steps, ascending, shape `(n_steps,)`; `op_of_key`, shape `(n_types, n_stages, n_seq)`, is
    the row of the tensors, -1 for keys that most workers do not have.

    Written are `starts_s` and `durations_s`, shape `(n_ops, n_steps, n_dp)`, filled with NaN before; `first_row` and
    `ranks`, shapes `(n_ops,)` and `(n_dp, n_stages)`, filled with -1 before; and, counted per step, rows of keys that
    most do not have (`surplus`) and rows whose micro-batch is not that of the operation's first row (`moved`).
    """
    library = native_loops.loaded()
    if library is not None:
        kind = table.start_s.dtype
        getattr(library, f"scatter_{kind}")(
            ctypes.c_int64(len(table)),
            *(_column(table, name) for name in ("optype", "stage", "dp_rank", "seq_id", "step")),
            *(_column(table, name) for name in ("start_s", "duration_s", "mb_id", "rank")),
            address(steps, np.int64),
            ctypes.c_int64(len(steps)),
            address(op_of_key, np.int64),
            *(ctypes.c_int64(n) for n in (*op_of_key.shape[1:], starts_s.shape[2])),
            *(address(one, kind) for one in (starts_s, durations_s)),
            *(address(one, np.int64) for one in (first_row, ranks, surplus, moved, refused)),
        )
        return
    is_known, is_possible, is_positive = _usable(table)
    rows = np.flatnonzero(is_known & is_possible & is_positive)
    at = np.searchsorted(steps, table.step[rows])
    op = op_of_key[table.optype[rows], table.stage[rows], table.seq_id[rows]]
    surplus += np.bincount(at[op < 0], minlength=len(steps))
    rows, at, op = rows[op >= 0], at[op >= 0], op[op >= 0]
    # Of several values for one place the last stays: backwards it is that of the first row.
    ranks[table.dp_rank[rows], table.stage[rows]] = table.rank[rows]
    first_row[op[::-1]] = rows[::-1]
    moved += np.bincount(at[table.mb_id[rows] != table.mb_id[first_row[op]]], minlength=len(steps))
    cell = np.ravel_multi_index((op, at, table.dp_rank[rows]), starts_s.shape)
    order = np.lexsort((table.start_s[rows], cell))
    is_first = np.diff(cell[order], prepend=-1) > 0
    refused[TWICE] += len(cell) - is_first.sum()
    taken = order[is_first]
    starts_s.reshape(-1)[cell[taken]] = table.start_s[rows[taken]]
    durations_s.reshape(-1)[cell[taken]] = table.duration_s[rows[taken]]


def _usable(table: OpTable) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Whether a row's type is known, whether it can be placed, and whether its duration is one."""
    is_possible = (table.stage >= 0) & (table.dp_rank >= 0) & (table.seq_id >= 0) & np.isfinite(table.start_s)
    return table.optype >= 0, is_possible, (table.duration_s >= 0) & np.isfinite(table.duration_s)


def _column(table: OpTable, name: str) -> ctypes.c_void_p:
    kind = {**NUMBERS, "optype": np.int8}.get(name, table.start_s.dtype)
    return address(np.ascontiguousarray(getattr(table, name), kind))
