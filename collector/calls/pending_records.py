"""Records that cannot be placed yet: a call whose group, or a completion whose launch, is still to be read.

Rings are read one after the other while their threads write on, so what was written later may be read earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from collector.calls.rings import RAW, BoolArray, Int64Array, Records

MAX_WAITING = 1 << 17
FOR_A_LAUNCH_NS = 2_000_000_000
"""The launch was written first and comes with the next look."""
FOR_A_GROUP_NS = 30_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRecords:
    """What was read from one ring: by which attempt and rank, and how many records were lost before the first."""

    attempt: int
    rank: int
    records: Records
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Records of several rings as columns: dtype `RAW`, the attempt of each, and since when it has been waiting."""

    records: Records
    attempts: Int64Array
    since_ns: Int64Array

    def __getitem__(self, at: Int64Array | BoolArray) -> RecordColumns:
        return RecordColumns(records=self.records[at], attempts=self.attempts[at], since_ns=self.since_ns[at])


class PendingState(msgspec.Struct, kw_only=True):
    """What waits, as it is saved."""

    records: bytes = b""
    attempts: list[int] = []
    since_ns: list[int] = []


class PendingRecords:
    """Records that are looked at again with the next ones."""

    def __init__(self, state: PendingState) -> None:
        self._held = RecordColumns(
            records=np.frombuffer(state.records, RAW),
            attempts=np.array(state.attempts, np.int64),
            since_ns=np.array(state.since_ns, np.int64),
        )

    def state(self) -> PendingState:
        """What must be saved."""
        return PendingState(
            records=self._held.records.tobytes(),
            attempts=self._held.attempts.tolist(),
            since_ns=self._held.since_ns.tolist(),
        )

    def with_new(self, records_by_ring: Sequence[RingRecords], now_ns: int) -> RecordColumns:
        """What waited, and behind it what was read now."""
        read = [ring for ring in records_by_ring if len(ring.records)]
        count = sum(len(ring.records) for ring in read)
        return RecordColumns(
            records=np.concatenate([self._held.records, *(ring.records for ring in read)]),
            attempts=np.concatenate(
                [self._held.attempts, *(np.full(len(i.records), i.attempt, np.int64) for i in read)]
            ),
            since_ns=np.concatenate([self._held.since_ns, np.full(count, now_ns, np.int64)]),
        )

    def hold(self, batch: RecordColumns, for_a_launch: BoolArray, now_ns: int) -> tuple[RecordColumns, BoolArray]:
        """Keep these for the next look.

        Returns
        -------
        tuple
            Those that have waited too long or are too many, and which of them had waited for a launch.

        """
        deadline_ns = batch.since_ns + np.where(for_a_launch, FOR_A_LAUNCH_NS, FOR_A_GROUP_NS)
        is_over = deadline_ns <= now_ns
        is_over |= np.arange(len(is_over)) < len(is_over) - MAX_WAITING
        self._held = batch[~is_over]
        return batch[is_over], for_a_launch[is_over]
