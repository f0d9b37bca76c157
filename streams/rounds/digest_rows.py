"""Digests as they are joined: columns of one flush, and where each row goes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.model.flushes import Flush
from pacehound.model.rounds import Lines, columns_at
from streams.rounds.call_loops import ready
from streams.rounds.call_rows import CallRows, columns_of_rounds

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
Int8Array = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRows:
    """What is kept of digests (`pacehound.model.digests`); every array has shape `(n_rows,)`.

    Rates and algorithms (those of rounds) are `None`, all of them, where no row has any.
    """

    seq: Int64Array
    op: Int8Array
    size_bytes: Int64Array
    arrival_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    send_rate: Float64Array | None = None
    recv_rate: Float64Array | None = None
    algorithm: Int8Array | None = None

    def __len__(self) -> int:
        return len(self.seq)

    def chosen(self, where: Lines) -> DigestRows:
        """Some of the rows."""
        return DigestRows(**columns_at(self, where))


def digests_of_calls(rows: CallRows, where: slice) -> DigestRows:
    """Some rows that were made ready as calls are."""
    return DigestRows(**columns_at(rows, where))


def digests_of_flush(flush: Flush) -> DigestRows | None:
    """All rows of a flush, which are digests; `None` where some of their times go backwards, which is to be counted."""
    columns = flush.known_columns
    made = ready(len(flush), columns)
    if made.n_backward:
        return None
    return DigestRows(**columns_of_rounds(columns, made))
