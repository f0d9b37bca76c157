"""Rows to tensors, in C (`native/packing.c`): two passes, no sorting, no temporary arrays as long as the file."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from streams import native_loops
from streams.arrays_in_c import address
from streams.whatif.reader import NUMBERS, OpTable

FloatArray = npt.NDArray[np.floating[Any]]
Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

OF_UNKNOWN_TYPE, NEGATIVE, IMPOSSIBLE, TWICE = 0, 1, 2, 3
"""Why a row was not taken."""


def count_keys(table: OpTable, seen: Int64Array, refused: Int64Array) -> None:
    """Count the usable rows of each (optype, stage, seq_id) into `seen`, the others by reason into `refused`."""
    getattr(native_loops.loaded(), f"count_keys_{table.start_s.dtype}")(
        ctypes.c_int64(len(table)),
        *(_column(table, name) for name in ("optype", "stage", "dp_rank", "seq_id", "duration_s", "start_s")),
        *(ctypes.c_int64(n) for n in seen.shape[1:]),
        address(seen, np.int64),
        address(refused, np.int64),
    )


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
    kind = table.start_s.dtype
    getattr(native_loops.loaded(), f"scatter_{kind}")(
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


def _column(table: OpTable, name: str) -> Any:
    kind = {**NUMBERS, "optype": np.int8}.get(name, table.start_s.dtype)
    return address(np.ascontiguousarray(getattr(table, name), kind))
