"""Calls as the join takes them: columns, worked out once for all rows that came together.

A host's flush holds a hundred rows or two of each of many communicators. What does not depend on the communicator (its
signature, its size, whether its times can be) is worked out here for all of them at once, and C is told once where the
columns lie; whoever joins the rows of a communicator says which ones they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import DIRECTIONS, CallBatch
from pacehound.model.codes import ALGORITHMS, PROTOCOLS
from pacehound.model.columns import values_of
from pacehound.model.flushes import Flush
from pacehound.model.relayed import Relayed
from streams.rounds.call_loops import ReadyCalls, ready
from streams.rounds.row_loops import RowsInC, columns_in_c

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
Int8Array = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]
Float64Array = npt.NDArray[np.float64]

NONE, SEND = (DIRECTIONS.index(name) for name in ("none", "send"))

_CODED = ("op", "dtype", "redop", "direction")
_OF_WORDS = {
    name: {word: code for code, word in enumerate(words)}
    for name, words in (("algorithm", ALGORITHMS), ("protocol", PROTOCOLS))
}
"""Of a batch these are words."""

_NUMBERS = ("rank", "seq", "count", "peer", "launch_ns", "start_ns", "end_ns", "send_rate", "recv_rate")


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


_IN_C = (
    "rank", "peer", "direction", "seq", "op", "size_bytes", "arrival_ns", "start_ns", "end_ns", "signature",
    "is_backward", "place", "send_rate", "recv_rate", "algorithm",
)  # fmt: skip


def rows_of_batch(batch: CallBatch) -> CallRows:
    """The rows of a batch."""
    columns = {name: batch.column(name) for name in _NUMBERS} | {name: batch.codes(name) for name in _CODED}
    for name, codes in _OF_WORDS.items():
        words = batch.rows.column(name)
        table = np.array([codes.get(str(word).lower(), 0) for word in words.dictionary.to_pylist()], np.int8)
        if table.any():  # most sources do not know
            columns[name] = table[values_of(words.indices)]
    return _rows(columns, ready(len(batch), columns))


def rows_of_flush(flush: Flush | Relayed) -> CallRows:
    """The rows of a flush, or of what was relayed, of all their communicators."""
    columns = {"peer": flush.column("peer"), **flush.known_columns}
    return _rows(columns, ready(len(flush), columns))


def _rows(columns: Mapping[str, npt.NDArray[Any]], made: ReadyCalls) -> CallRows:
    return CallRows(
        rank=columns["rank"],
        peer=columns["peer"],
        direction=columns["direction"] if made.n_pairs else None,
        signature=made.signature,
        is_backward=made.is_backward if made.n_backward else None,
        **columns_of_rounds(columns, made),
    )


def columns_of_rounds(columns: Mapping[str, npt.NDArray[Any]], made: ReadyCalls) -> dict[str, Any]:
    """Of calls what rounds and digests keep: `pacehound.model.rounds.COLUMNS`."""
    kept = {
        "seq": columns["seq"],
        "op": columns["op"],
        "size_bytes": made.size_bytes,
        "arrival_ns": made.launch_ns,
        "start_ns": made.start_ns,
        "end_ns": made.end_ns,
    }
    if not made.n_transfers:
        return {**kept, "send_rate": None, "recv_rate": None, "algorithm": None}
    rates = {
        name: columns[name] if name in columns else np.full(len(made.algorithm), np.nan)
        for name in ("send_rate", "recv_rate")
    }
    return {**kept, **rates, "algorithm": made.algorithm}
