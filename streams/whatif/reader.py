"""A trace file as columns: one row per operation, as NDTimeline records them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pacehound.errors import InvalidInput
from pacehound.model.columns import fits
from streams.whatif import optypes

IntArray = npt.NDArray[np.signedinteger[Any]]
FloatArray = npt.NDArray[np.floating[Any]]

NUMBERS: Final[Mapping[str, type[np.signedinteger[Any]]]] = {
    "dp_rank": np.int32,
    "stage": np.int16,
    "rank": np.int32,
    "step": np.int64,
    "seq_id": np.int32,
    "mc": np.int16,
    "gmc": np.int32,
    "mb_id": np.int32,
}
"""Columns of whole numbers, with the one type that each has inside: what is compiled is compiled for these types."""
TIMES = ("start_ts", "duration")
COLUMNS = (*NUMBERS, *TIMES, "optype")

UNKNOWN = -1
"""The code of an operation type that the model does not know, and of a number that is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTable:
    """One row per operation."""

    # shape `(n_rows,)`, integers; -1 where a row has none. `mc` is the virtual stage within the stage, `gmc` within
    # the model, `mb_id` the micro-batch, `seq_id` numbers the operations of one type, worker and step
    dp_rank: IntArray
    stage: IntArray
    rank: IntArray
    step: IntArray
    seq_id: IntArray
    mc: IntArray
    gmc: IntArray
    mb_id: IntArray
    optype: npt.NDArray[np.int8]  # codes of `optypes`, shape `(n_rows,)`; UNKNOWN where the name is none of them
    # seconds, in the precision of the file; NaN where a row has none
    start_s: FloatArray
    duration_s: FloatArray
    unknown_optypes: Mapping[str, int]  # rows of each name that the model does not know

    def __len__(self) -> int:
        return len(self.optype)


def read_trace(path: Path) -> OpTable:
    """The columns of a parquet file.

    Raises
    ------
    InvalidInput
        It cannot be read, lacks a column, or a column is not of numbers.
    """
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            _refuse_without_columns(file.schema_arrow.names, str(path))
            table = file.read(columns=list(COLUMNS))
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(f"{path} is no parquet file that can be read: {error}") from error
    return table_of(table, str(path))


def _refuse_without_columns(names: list[str], name: str) -> None:
    missing = [column for column in COLUMNS if column not in names]
    if missing:
        raise InvalidInput(
            f"{name} is no trace of operations: it has no column {', '.join(missing)}; needed are {', '.join(COLUMNS)}"
        )


def table_of(table: pa.Table, name: str) -> OpTable:
    """The columns of an Arrow table (the `ops` topic and other sources come in here).

    Raises
    ------
    InvalidInput
        A column is missing or not of numbers.
    """
    _refuse_without_columns(table.column_names, name)
    if not table.num_rows:
        raise InvalidInput(f"{name} holds no operation")
    optype, unknown = _codes(table["optype"], name)
    columns = {column: _numbers(table[column], column, kind, name) for column, kind in NUMBERS.items()}
    return OpTable(
        **columns,
        optype=optype,
        start_s=_times(table["start_ts"], "start_ts", name),
        duration_s=_times(table["duration"], "duration", name),
        unknown_optypes=unknown,
    )


def _numbers(column: pa.ChunkedArray, label: str, kind: type[np.signedinteger[Any]], name: str) -> IntArray:
    if pa.types.is_floating(column.type):  # integers with gaps, as pandas writes them
        values = _values(column.fill_null(UNKNOWN))
        return _fitting(np.where(np.isfinite(values), values, UNKNOWN).astype(np.int64), label, kind, name)
    if not pa.types.is_integer(column.type):
        raise InvalidInput(f"column {label} of {name} is of {column.type}, not of whole numbers")
    if pa.types.is_unsigned_integer(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(UNKNOWN)
    return _fitting(_values(column), label, kind, name)


def _fitting(values: IntArray, label: str, kind: type[np.signedinteger[Any]], name: str) -> IntArray:
    if not fits(values, kind):
        raise InvalidInput(
            f"column {label} of {name} goes from {values.min()} to {values.max()}; that is no number of this kind"
        )
    return values.astype(kind, copy=False)


def _times(column: pa.ChunkedArray, label: str, name: str) -> FloatArray:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InvalidInput(f"column {label} of {name} is of {column.type}, not of seconds")
    if column.type not in (pa.float32(), pa.float64()):
        column = column.cast(pa.float64())  # loads all of Arrow's functions, which takes as long as a job's prices
    found: FloatArray = _values(column.fill_null(np.nan) if column.null_count else column)
    return found


def _values(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of numbers without nulls; Arrow's own conversion imports pandas, which takes longer than we do."""
    chunks = [np.from_dlpack(chunk) for chunk in column.chunks]
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _codes(column: pa.ChunkedArray, name: str) -> tuple[npt.NDArray[np.int8], dict[str, int]]:
    if not pa.types.is_dictionary(column.type):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise InvalidInput(f"column optype of {name} is of {column.type}, not of names")
        column = column.dictionary_encode()
    unified = column.unify_dictionaries()
    chunks: list[npt.NDArray[np.int8]] = []
    unknown: dict[str, int] = {}
    for chunk in unified.chunks:
        names = chunk.dictionary.to_pylist()
        # One more entry at the end: a null reads as index -1.
        codes = np.array([*(optypes.CODE.get(one, UNKNOWN) for one in names), UNKNOWN], dtype=np.int8)
        indices = np.from_dlpack(chunk.indices.fill_null(-1) if chunk.null_count else chunk.indices)
        chunks.append(codes[indices])
        if UNKNOWN in codes[:-1] or chunk.null_count:
            counts = np.bincount(np.where(indices < 0, len(names), indices), minlength=len(names) + 1)
            for one, count in zip([*names, "(none)"], counts.tolist(), strict=True):
                if count and one not in optypes.CODE:
                    unknown[str(one)] = unknown.get(str(one), 0) + count
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks), unknown
