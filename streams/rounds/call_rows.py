"""Calls as the join takes them: columns, worked out once for all rows that came together.

A host's flush holds a hundred rows or two of each of many communicators. What does not depend on the communicator (its
signature, its size, whether its times can be) is worked out here for all of them at once, and C is told once where the
columns lie; whoever joins the rows of a communicator says which ones they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import DIRECTIONS, CallBatch
from pacehound.model.codes import ALGORITHMS as CALL_ALGORITHMS
from pacehound.model.columns import values_of
from pacehound.model.flushes import Flush
from pacehound.model.rounds import ALGORITHMS
from streams.rounds.row_loops import RowsInC, columns_in_c, without_backward_times
from streams.rounds.signatures import flush_signatures, packed_signatures

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]

Transfers = tuple[Float64Array, Float64Array, Int8Array] | tuple[None, None, None]
"""Rates to send and to receive, and algorithms (those of rounds), where a row has any of them."""

NONE, SEND = (DIRECTIONS.index(name) for name in ("none", "send"))

_ALGORITHM_CODES = {name: number for number, name in enumerate(ALGORITHMS)}
_ROUND_ALGORITHM = np.array([_ALGORITHM_CODES.get(name, 0) for name in CALL_ALGORITHMS], np.int8)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CallRows:
    """Rows of one host; every array has shape `(n_rows,)`.

    Attributes
    ----------
    direction
        `None` where all of them are collectives.
    is_backward
        Rows whose times went backwards, and were taken for unseen; `None` where there are none.
    send_rate, recv_rate, algorithm
        `None` where no row has any of them; the algorithm is that of a round.
    place
        Where the rank of each row stands in its communicator: written by `row_loops.look_at`.
    in_c
        Where all of it lies.

    """

    rank: Int32Array
    peer: Int32Array
    direction: Int8Array | None
    seq: Int64Array
    op: Int8Array
    size_bytes: Int64Array
    arrival_ns: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    signature: Int64Array
    is_backward: BoolArray | None
    send_rate: Float64Array | None
    recv_rate: Float64Array | None
    algorithm: Int8Array | None
    place: Int64Array = field(init=False)
    in_c: RowsInC = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", np.empty(len(self.seq), np.int64))
        in_c, kept = columns_in_c([getattr(self, name) for name in _IN_C])
        for name, values in zip(_IN_C, kept, strict=True):
            object.__setattr__(self, name, values)
        object.__setattr__(self, "in_c", in_c)

    def __len__(self) -> int:
        return len(self.seq)

    def with_peers(self, where: slice, peers: Int32Array) -> CallRows:
        """The same with other peers of some rows."""
        changed = self.peer.copy()
        changed[where] = peers
        return replace(self, peer=changed)

    def has_transfers(self, where: slice) -> bool:
        """One of these rows has a rate, or an algorithm."""
        if self.send_rate is None or self.recv_rate is None or self.algorithm is None:
            return False
        return _has_transfers(self.send_rate[where], self.recv_rate[where], self.algorithm[where])


_IN_C = (
    "rank", "peer", "direction", "seq", "op", "size_bytes", "arrival_ns", "start_ns", "end_ns", "signature",
    "is_backward", "place", "send_rate", "recv_rate", "algorithm",
)  # fmt: skip


def rows_of_batch(batch: CallBatch) -> CallRows:
    """The rows of a batch."""
    names = batch.rows.column("algorithm").dictionary
    table = np.array([_ALGORITHM_CODES.get(str(name).lower(), 0) for name in names.to_pylist()] or [0], np.int8)
    algorithm = table[values_of(batch.rows.column("algorithm").indices)] if table.any() else None
    return _rows(
        batch.column,
        batch.codes,
        size_bytes=batch.size_bytes(),
        signature=packed_signatures(batch),
        transfers=_transfers(
            len(batch),
            batch.column("send_rate").astype(np.float64, copy=False),
            batch.column("recv_rate").astype(np.float64, copy=False),
            algorithm,
        ),
    )


def rows_of_flush(flush: Flush) -> CallRows:
    """The rows of a flush, of all its communicators."""
    return _rows(
        flush.column,
        flush.column,
        size_bytes=flush.size_bytes(),
        signature=flush_signatures(flush),
        transfers=transfers_of_flush(flush),
    )


def transfers_of_flush(flush: Flush) -> Transfers:
    """Rates and algorithms of the rows of a flush."""
    rates: list[Any] = [flush.columns.get(name) for name in ("send_rate", "recv_rate")]
    codes = flush.columns.get("algorithm")
    return _transfers(len(flush), rates[0], rates[1], None if codes is None else _ROUND_ALGORITHM[codes])


def _rows(
    column: Callable[[str], Any],
    codes: Callable[[str], Any],
    *,
    size_bytes: Int64Array,
    signature: Int64Array,
    transfers: Transfers,
) -> CallRows:
    times = [column(name).astype(np.int64, copy=False) for name in ("launch_ns", "start_ns", "end_ns")]
    launch, start, end, n_backward = without_backward_times(*times)
    direction = codes("direction")
    send_rate, recv_rate, algorithm = transfers
    return CallRows(
        rank=column("rank"),
        peer=column("peer"),
        direction=direction if direction.any() else None,
        seq=column("seq").astype(np.int64, copy=False),
        op=codes("op"),
        size_bytes=size_bytes,
        arrival_ns=launch,
        start_ns=start,
        end_ns=end,
        signature=signature,
        is_backward=_backward(*times) if n_backward else None,
        send_rate=send_rate,
        recv_rate=recv_rate,
        algorithm=algorithm,
    )


def _transfers(
    n_rows: int, send_rate: Float64Array | None, recv_rate: Float64Array | None, algorithm: Int8Array | None
) -> Transfers:
    if not _has_transfers(send_rate, recv_rate, algorithm):
        return None, None, None
    return (
        np.full(n_rows, np.nan) if send_rate is None else send_rate,
        np.full(n_rows, np.nan) if recv_rate is None else recv_rate,
        np.zeros(n_rows, np.int8) if algorithm is None else algorithm,
    )


def _has_transfers(send_rate: Float64Array | None, recv_rate: Float64Array | None, algorithm: Int8Array | None) -> bool:
    """A row has a rate, or an algorithm."""
    if algorithm is not None and algorithm.any():
        return True
    return any(rate is not None and bool(np.isfinite(rate).any()) for rate in (send_rate, recv_rate))


def _backward(launch: Int64Array, start: Int64Array, end: Int64Array) -> BoolArray:
    """Which rows `without_backward_times` has counted."""
    is_negative = (launch < 0) | (start < 0) | (end < 0)
    backward: BoolArray = is_negative | ((end > 0) & ((end < launch) | (end < start)))
    return backward
