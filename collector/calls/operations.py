"""Operations of training steps on their way from the rings to the bus."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from collector.calls import rings
from collector.calls.pending_records import RingRecords
from pacehound.clock import ClockPair
from pacehound.model.columns import numbers
from pacehound.model.operations import LARGEST_NUMBER, OPERATION_SCHEMA, OPTYPES, Operations

_MONOTONIC_TIMES = ("start_ns", "end_ns")


def operations_of(records_by_ring: Sequence[RingRecords], *, job: str, host: str, clock: ClockPair) -> list[Operations]:
    """One event per attempt that has new operations; records that cannot be true are left out."""
    by_attempt: dict[int, list[rings.Records]] = {}
    for ring in records_by_ring:
        if not len(ring.records):
            continue
        bodies = ring.records[ring.records.view(rings.CALL)["kind"] == rings.OPERATION]
        if len(bodies):
            by_attempt.setdefault(ring.attempt, []).append(bodies)
    events = []
    for attempt, parts in sorted(by_attempt.items()):
        records = np.concatenate(parts).view(rings.OPERATION_BODY)
        is_possible = (records["end_ns"] >= records["start_ns"]) & (records["end_ns"] < np.uint64(1 << 62))
        is_possible &= (records["optype"] >= 0) & (records["optype"] < len(OPTYPES))
        is_possible &= (records["step"] >= 0) & (records["pipeline"] >= 0) & (records["rank"] < np.uint32(1 << 31))
        for name in ("stage", "chunk", "seq"):
            is_possible &= (records[name] >= 0) & (records[name] < LARGEST_NUMBER)
        is_possible &= (records["micro_batch"] >= -1) & (records["micro_batch"] < LARGEST_NUMBER)
        records = records[is_possible]
        if not len(records):
            continue
        offset_ns = clock.to_unix_ns(0)
        columns = {
            name: records[name].astype(np.int64) + (offset_ns if name in _MONOTONIC_TIMES else 0)
            for name in OPERATION_SCHEMA.names
        }
        rows = pa.RecordBatch.from_arrays(
            [numbers(columns[field.name], field.type) for field in OPERATION_SCHEMA], schema=OPERATION_SCHEMA
        )
        events.append(Operations(job=job, attempt=attempt, host=host, rows=rows))
    return events
