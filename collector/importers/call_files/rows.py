"""Completed calls as the batches of our stream."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from pacehound.model.calls import DTYPE_CODE, NO_PEER, OP_CODE, UNKNOWN_COUNT, CallBatch, Sees

ROWS_PER_BATCH = 1450

_CODES = {"op": OP_CODE, "dtype": DTYPE_CODE}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One completed call of one rank; 0 stands for a time that is not known."""

    rank: int
    seq: int
    op: str
    dtype: str = "unknown"
    count: int = UNKNOWN_COUNT
    peer: int = NO_PEER
    algorithm: str = ""
    protocol: str = ""
    launch_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0
    stream: int = 0


def batches(
    rows: Sequence[CallRow],
    *,
    job: str,
    attempt: int,
    host: str,
    communicator: str,
    source: str,
    sees: Sees,
    dropped: int = 0,
) -> list[CallBatch]:
    """Rows of one communicator, in the order of their numbers, cut into batches; the first one carries `dropped`."""
    ordered = sorted(rows, key=lambda row: (row.seq, row.rank))
    made = []
    for ordinal, first in enumerate(range(0, len(ordered), ROWS_PER_BATCH)):
        cut = ordered[first : first + ROWS_PER_BATCH]
        columns = {field.name: _column(field.name, cut) for field in fields(CallRow)}
        made.append(
            CallBatch.from_columns(
                columns,
                job=job,
                attempt=attempt,
                host=host,
                communicator=communicator,
                source=source,
                ordinal=ordinal,
                sees=sees,
                dropped=dropped if ordinal == 0 else 0,
            )
        )
    return made


def once(rows: Sequence[CallRow]) -> tuple[list[CallRow], int]:
    """The first row of each (rank, number), and how many more there were."""
    first: dict[tuple[int, int], CallRow] = {}
    for row in rows:
        first.setdefault((row.rank, row.seq), row)
    return list(first.values()), len(rows) - len(first)


def _column(name: str, rows: Sequence[CallRow]) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    values = [getattr(row, name) for row in rows]
    codes = _CODES.get(name)
    return np.array(values if codes is None else [codes[value] for value in values])


def gaps(numbers: Sequence[int]) -> int:
    """How many numbers are missing between the first and the last.

    >>> gaps([5, 3, 4, 9])
    3
    """
    return sum(after - before - 1 for before, after in itertools.pairwise(sorted(set(numbers))))
