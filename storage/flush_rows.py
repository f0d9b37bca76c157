"""The rows of flushes as columns, all their parts together.

A flush of a digested job has a part for each communicator of its host, of a few rows each. To make a batch of each
part, and a table of all batches, took most of the writer's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.model.calls import Sees
from pacehound.model.columns import numbers, numpy_type, places_of, words_at
from pacehound.model.flushes import CODED, Flush, unknown_column
from storage import schemas
from storage.rows import column_of, sees_names


def batches_table(flushes: Sequence[Flush]) -> pa.Table:
    """What the parts of flushes could see and what was dropped before them, as `rows_of` says it of batches.

    Raises
    ------
    InvalidEvent
        A value does not fit its column.

    """
    of_parts = [(flush, part) for flush in flushes for part in flush.parts]
    lengths = [part.n_rows for _, part in of_parts]
    seqs = np.concatenate([flush.column("seq") for flush in flushes])
    times_ns = [np.maximum(flush.column("end_ns"), flush.column("launch_ns")) for flush in flushes]
    values: dict[str, list[Any]] = {
        **{name: [getattr(flush, name) for flush, _ in of_parts] for name in ("job", "attempt", "host")},
        **{
            name: [getattr(part, name) for _, part in of_parts]
            for name in ("communicator", "source", "ordinal", "dropped", "within_ns")
        },
        "sees": [sees_names(Sees(part.sees)) for _, part in of_parts],
        "rows": lengths,
        "first_seq": _of_parts(np.minimum, seqs, lengths, none=-1),
        "last_seq": _of_parts(np.maximum, seqs, lengths, none=-1),
        "time_ns": [max(time_ns, 0) for time_ns in _of_parts(np.maximum, np.concatenate(times_ns), lengths, none=0)],
    }
    schema = schemas.ROW_TABLES[schemas.BATCHES]
    return pa.Table.from_arrays(
        [column_of(schemas.BATCHES, name, values[name]) for name in schema.names], schema=schema
    )


def flushes_table(flushes: Sequence[Flush]) -> pa.Table:
    """The calls of many flushes as one table, in their order."""
    counts = [len(flush.parts) for flush in flushes]
    parts = [part for flush in flushes for part in flush.parts]
    lengths = np.array([part.n_rows for part in parts], np.int64)
    of_flush = {name: [getattr(flush, name) for flush in flushes] for name in ("job", "attempt", "host")}
    of_part = {name: [getattr(part, name) for part in parts] for name in ("communicator", "source", "ordinal")}
    arrays = []
    for field in schemas.CALL_TABLE:
        if field.name in of_flush:
            values = np.repeat(_coded(of_flush[field.name], field.type), counts)
            arrays.append(_column(np.repeat(values, lengths), field.type, of_flush[field.name]))
        elif field.name in of_part:
            values = _coded(of_part[field.name], field.type)
            arrays.append(_column(np.repeat(values, lengths), field.type, of_part[field.name]))
        else:
            values = _joined(flushes, field.name, int(lengths.sum()))
            arrays.append(_column(values, field.type, CODED.get(field.name, ())))
    return pa.Table.from_arrays(arrays, schema=schemas.CALL_TABLE)


def _joined(flushes: Sequence[Flush], name: str, n_rows: int) -> npt.NDArray[Any]:
    if any(name in flush.columns for flush in flushes):
        return np.concatenate([flush.column(name) for flush in flushes])
    return unknown_column(name, n_rows)


def _of_parts(least_or_most: np.ufunc, column: npt.NDArray[Any], lengths: Sequence[int], none: int) -> list[int]:
    """The least or the greatest value of each part; `none` where it has no rows."""
    found = np.full(len(lengths), none, np.int64)
    has_rows = np.array(lengths, np.int64) > 0
    if has_rows.any():
        firsts = np.cumsum([0, *lengths[:-1]])[has_rows]
        found[has_rows] = least_or_most.reduceat(column, firsts)
    values: list[int] = found.tolist()
    return values


def _coded(values: Sequence[Any], kind: pa.DataType) -> npt.NDArray[Any]:
    """Numbers as they are; of names, which one each is of the different ones."""
    if not pa.types.is_dictionary(kind):
        return np.array(values, numpy_type(kind))
    return places_of(values)


def _column(values: npt.NDArray[Any], kind: pa.DataType, names: Sequence[str]) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return numbers(values, kind)
    return words_at(values.astype(np.int32), names)
