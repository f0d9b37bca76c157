"""From ring records to the rows and batches of `calls`, column by column."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.calls import rings
from collector.calls.communicators import Communicator, sees
from collector.calls.representative_rank import Representatives
from collector.calls.rings import CALL, Int64Array, Records
from pacehound.clock import ClockPair
from pacehound.model.calls import DTYPES, OPS, REDOPS, SOURCES, CallBatch, Sees
from pacehound.model.codes import ALGORITHMS, PROTOCOLS
from pacehound.model.digests import digests_of, kept_of
from pacehound.model.representative import RepresentedRank

ROWS_PER_BATCH = 1450
"""Eight ranks with 125 calls each fit into one batch: 117 KB of message, 9 KB under zstd (docs/volume.md)."""

_PROFILER = SOURCES.index("profiler")


class ToldAs(enum.IntEnum):
    """What rows are. Added to a source where batches are counted: those of each have numbers of their own."""

    CALLS = 0
    DIGESTS = 1 << 8
    KEPT = 2 << 8
    """Calls behind digests."""


_NAMED: dict[ToldAs, Callable[[str], str]] = {
    ToldAs.CALLS: str,
    ToldAs.DIGESTS: digests_of,
    ToldAs.KEPT: kept_of,
}

_PEER_BITS, _RANK_BITS, _DIRECTION_BITS = 20, 20, 2
COMMUNICATOR_SHIFT = _PEER_BITS + _RANK_BITS + _DIRECTION_BITS
RANK_SHIFT = _PEER_BITS + _DIRECTION_BITS
MAX_PEER = (1 << _PEER_BITS) - 2

_KEY = np.dtype([("handle", "V16"), ("rank", "<u4"), ("peer", "<i4"), ("seq", "<i8"), ("direction", "u1")])
_KEY_BYTES = np.dtype(f"V{_KEY.itemsize}")


def join_keys(calls: Records) -> list[bytes]:
    """What joins a PH_COMPLETE with its PH_LAUNCH: (communicator, rank, peer, seq, direction), as bytes."""
    keys = np.empty(len(calls), _KEY)
    for name in _KEY.names or ():
        keys[name] = calls[name]
    listed: list[bytes] = keys.view(_KEY_BYTES).tolist()
    return listed


def sequence_keys(communicators: Int64Array, calls: Records) -> Int64Array:
    """The sequence of each call as one number: communicator, rank, and for point-to-point calls peer and direction."""
    is_pair = calls["direction"] != 0
    peer = np.where(is_pair, calls["peer"], -1).astype(np.int64) + 1
    rank = calls["rank"].astype(np.int64)
    return (
        (communicators << COMMUNICATOR_SHIFT)
        | (rank << RANK_SHIFT)
        | (peer << _DIRECTION_BITS)
        | calls["direction"].astype(np.int64)
    )


def collective_sequence(communicator: int, rank: int) -> int:
    """The sequence of a rank's collectives.

    >>> collective_sequence(0, 0), collective_sequence(0, 1) == 1 << RANK_SHIFT
    (0, True)
    """
    return communicator << COMMUNICATOR_SHIFT | rank << RANK_SHIFT


def sequence_parts(sequence: int) -> tuple[int, int, int, int]:
    """(communicator, rank, peer, direction) of a sequence; the direction of a rank's collectives is 0 and the peer -1.

    >>> sequence_parts(collective_sequence(3, 7))
    (3, 7, -1, 0)
    """
    return (
        sequence >> COMMUNICATOR_SHIFT,
        sequence >> RANK_SHIFT & (1 << _RANK_BITS) - 1,
        (sequence >> _DIRECTION_BITS & (1 << _PEER_BITS) - 1) - 1,
        sequence & (1 << _DIRECTION_BITS) - 1,
    )


def completed_rows(launches: Records, completes: Records) -> Records:
    """Launches with what their completions say, shape `(n_calls,)`; both viewed as `CALL`."""
    rows = launches.copy()
    rows["end_ns"] = completes["end_ns"]
    rows["start_ns"] = np.where(completes["start_ns"] > 0, completes["start_ns"], launches["start_ns"])
    rows["flags"] |= completes["flags"]
    for name in ("send_count", "recv_count"):
        rows[name] = np.where(completes[name] >= 0, completes[name], launches[name])
    rows["channels"] = np.maximum(launches["channels"], completes["channels"])
    for name in ("send_rate", "recv_rate"):
        rows[name] = completes[name]
    return rows


def gloo_starts(sequences: Int64Array, rows: Records, last_ends_ns: dict[int, int]) -> None:
    """Fill in `start_ns`, and note each sequence's last end.

    `start = min(end, max(launch, previous end in its sequence))`: the host is the device, and what queues behind a
    call begins when that one ends. A sequence is a rank's collectives on a communicator; point-to-point calls do not
    queue behind those, so each (peer, direction) has a sequence of its own. A start that the record brings stays.
    """
    if len(rows) == 0:
        return
    order = np.lexsort((rows["seq"], rows["end_ns"], sequences))
    sequence, ends = sequences[order], rows["end_ns"][order]
    is_first = np.concatenate(([True], sequence[1:] != sequence[:-1]))
    firsts = np.flatnonzero(is_first)
    earlier = np.array([last_ends_ns.get(int(number), 0) for number in sequence[firsts]], np.uint64)
    before = np.concatenate((np.zeros(1, np.uint64), ends[:-1]))
    before[is_first] = 0
    before = np.maximum(before, np.repeat(earlier, np.diff(np.append(firsts, len(sequence)))))
    starts = rows["start_ns"][order]
    derived = np.minimum(np.maximum(rows["launch_ns"][order], before), ends)
    rows["start_ns"][order] = np.where(starts > 0, starts, derived)
    lasts = np.append(firsts[1:], len(sequence)) - 1
    for number, end, start in zip(sequence[firsts].tolist(), ends[lasts].tolist(), earlier.tolist(), strict=True):
        last_ends_ns[number] = max(end, start)


def batches(
    rows: Records,
    communicators: Int64Array,
    known: list[Communicator],
    *,
    job: str,
    host: str,
    clock: ClockPair,
    representatives: Representatives | None = None,
    told_as: ToldAs = ToldAs.CALLS,
) -> Iterator[CallBatch]:
    """Cut rows into batches of one communicator and source, in order of time, of up to `ROWS_PER_BATCH` rows.

    Calls that were timed on the device, of a source that otherwise sees launches only, have batches of their own, and
    so have the rows of representatives. The communicators' ordinals move on, and the calls they had lost
    go out with the next batch that is judged. Digests, and calls behind them, have batches and ordinals of their own;
    digests are in order of step, rank and peer, in which those of one iteration stand as those of any other: whoever
    reads them has places for them by then.
    """
    if len(rows) == 0:
        return
    if told_as is ToldAs.DIGESTS:
        in_batch = [rows[name] for name in ("direction", "peer", "rank", "seq")]
    else:
        in_batch = [rows["seq"], rows["rank"], np.maximum(rows["end_ns"], rows["launch_ns"])]
    is_timed = rings.is_timed(rows)
    is_representative = (
        representatives.is_representative if representatives is not None else np.zeros(len(rows), np.bool_)
    )
    order = np.lexsort((*in_batch, is_representative, is_timed, rows["source"], communicators))
    if representatives is not None:
        order = order[~representatives.is_represented[order]]
    rows, communicators, is_timed, is_representative = (
        rows[order],
        communicators[order],
        is_timed[order],
        is_representative[order],
    )
    sources = rows["source"]
    is_edge = (communicators[1:] != communicators[:-1]) | (sources[1:] != sources[:-1])
    is_edge |= (is_timed[1:] != is_timed[:-1]) | (is_representative[1:] != is_representative[:-1])
    edges = [0, *(np.flatnonzero(is_edge) + 1).tolist(), len(rows)]
    offset_ns = clock.to_unix_ns(0)
    for begin, end in itertools.pairwise(edges):
        communicator = known[int(communicators[begin])]
        source = int(sources[begin])
        represented: tuple[RepresentedRank, ...] = ()
        within_ns = 0
        if representatives is not None and is_representative[begin]:
            represented, within_ns = representatives.ranks[int(communicators[begin]), source, bool(is_timed[begin])]
        for first in range(begin, end, ROWS_PER_BATCH):
            part = rows[first : min(first + ROWS_PER_BATCH, end)]
            counted = source + told_as
            ordinal = communicator.ordinals.get(counted, communicator.first_ordinal)
            communicator.ordinals[counted] = ordinal + 1
            dropped = 0
            if told_as is not ToldAs.KEPT:
                dropped, communicator.dropped_unsaid = communicator.dropped_unsaid, 0
            yield CallBatch.from_columns(
                {**_columns(part, offset_ns), "peer": communicator.all_named(part["peer"])},
                job=job,
                attempt=communicator.attempt,
                host=host,
                communicator=communicator.id,
                source=_NAMED[told_as](SOURCES[source]),
                ordinal=ordinal,
                sees=Sees.ALL if is_timed[begin] else sees(source, communicator.backend),
                dropped=dropped,
                within_ns=within_ns,
                represented=represented,
            )


def _columns(rows: Records, offset_ns: int) -> dict[str, npt.NDArray[Any]]:
    columns: dict[str, npt.NDArray[Any]] = {
        name: rows[name] for name in ("rank", "seq", "count", "channels", "send_count", "recv_count")
    }
    columns["direction"] = rows["direction"]
    for name, names in (("op", OPS), ("dtype", DTYPES), ("redop", REDOPS)):
        columns[name] = np.where(rows[name] < len(names), rows[name], 0)  # a code of a newer writer: unknown
    for name in ("launch_ns", "start_ns", "end_ns"):
        values = rows[name].astype(np.int64)
        columns[name] = np.where(values > 0, values + offset_ns, 0)
    for name in ("stream", "group"):
        columns[name] = rows[name].astype(np.int64)  # a pointer above 2**63 keeps its bits
    columns["captured"] = (rows["flags"] & rings.CAPTURED) != 0
    if len(rows) and int(rows["source"][0]) == _PROFILER:  # others leave these bytes as they were
        for name, texts in (("algorithm", np.array(ALGORITHMS)), ("protocol", np.array(PROTOCOLS))):
            columns[name] = texts[np.where(rows[name] < len(texts), rows[name], 0)]
        for name in ("send_rate", "recv_rate"):
            rate = rows[name].astype(np.float64)
            columns[name] = np.where(np.isfinite(rate) & (rate >= 0), rate, np.nan)
    return columns


def no_rows() -> Records:
    """No rows, of the right dtype."""
    return np.empty(0, CALL)
