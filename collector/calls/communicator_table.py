"""The communicators of a host, and the tables that sort whole columns of records by them."""

from __future__ import annotations

import numpy as np

from collector.calls import rings
from collector.calls import rows as call_rows
from collector.calls.communicators import Communicator, sees
from collector.calls.rings import BoolArray, Int64Array, Records
from pacehound.errors import InvalidEvent
from pacehound.model.calls import SOURCES, Sees


class CommunicatorTable:
    """Communicators by number, in the order in which they were first seen.

    Parameters
    ----------
    known
        Those that an earlier agent knew.

    """

    def __init__(self, known: list[Communicator]) -> None:
        self.known = known
        self.index()

    def join(self, communicator: Communicator, rank: int) -> bool:
        """A rank says that it joined; whether that is new. Call `index` before anything is looked up.

        Raises
        ------
        InvalidEvent
            Other ranks say otherwise about the same communicator.

        """
        for known in self.known:
            if known.handle[:8] != communicator.handle[:8]:
                continue
            if known.handle != communicator.handle:
                raise InvalidEvent(f"rank {rank} joins {communicator.id}, whose first half is also {known.id}'s")
            known.admit(rank, communicator.members)
            if rank in known.host_ranks:
                return False
            known.host_ranks.append(rank)
            known.closed = False
            return True
        communicator.host_ranks.append(rank)
        self.known.append(communicator)
        return True

    def index(self) -> None:
        """Bring the tables up to date."""
        # `join` sees to it that the first half of a handle tells communicators apart.
        handles = np.frombuffer(b"".join(c.handle for c in self.known), np.uint64).reshape(-1, 2)
        order = np.argsort(handles[:, 0], kind="stable")
        self._high, self._low = handles[order, 0], handles[order, 1]
        self._number_at = order.astype(np.int64)
        self._sees_end = np.array(
            [[bool(sees(source, c.backend) & Sees.END) for source in range(len(SOURCES))] for c in self.known], np.bool_
        ).reshape(-1, len(SOURCES))
        self._joined = self._pairs([known.host_ranks for known in self.known])

    def numbers(self, records: Records) -> Int64Array:
        """The number of each record's communicator, -1 where it is not known."""
        if not self.known:
            return np.full(len(records), -1, np.int64)
        at = np.minimum(np.searchsorted(self._high, records["handle_high"]), len(self._high) - 1)
        is_known = (self._high[at] == records["handle_high"]) & (self._low[at] == records["handle_low"])
        numbers: Int64Array = np.where(is_known, self._number_at[at], -1)
        return numbers

    def has_joined(self, numbers: Int64Array, records: Records) -> BoolArray:
        """Which records are of a rank that has joined their communicator."""
        return (numbers >= 0) & _is_in(_pairs_of(numbers, records), self._joined)

    def has_left(self, numbers: Int64Array, records: Records) -> BoolArray:
        """Which records are of a rank that has left their communicator."""
        return _is_in(_pairs_of(numbers, records), self._pairs([known.left for known in self.known]))

    def name_peers(self, numbers: Int64Array, records: Records) -> BoolArray:
        """Turn peers that are places into world ranks, in place, where the communicator counts in ranks; elsewhere they
        stay places until they are told (`Communicator.named`). Which of the records name a place that there is not.

        `records` are viewed as `CALL` and all of known communicators.
        """
        is_wrong = np.zeros(len(records), np.bool_)
        is_place = (records["flags"] & rings.LOCAL_PEER) != 0
        for number in np.unique(numbers[is_place]).tolist():
            known = self.known[number]
            at = np.flatnonzero(is_place & (numbers == number))
            peers = records["peer"][at]
            has_place = (peers >= 0) & (peers < len(known.members))
            is_wrong[at[~has_place]] = True
            if not known.counts_places:
                records["peer"][at[has_place]] = np.array(known.members, np.int32)[peers[has_place]]
        records["flags"][is_place] &= np.uint8(~rings.LOCAL_PEER & 0xFF)
        return is_wrong

    def sees_end(self, numbers: Int64Array, records: Records) -> BoolArray:
        """Which records are of a source that sees when a call ends."""
        seen: BoolArray = self._sees_end[numbers, records["source"]]
        return seen

    def world(self, attempt: int, rank: int | None = None) -> int | None:
        """The number of an attempt's latest world communicator (that `rank` has joined)."""
        worlds = [
            (known.generation, number)
            for number, known in enumerate(self.known)
            if known.is_world and known.attempt == attempt and (rank is None or rank in known.host_ranks)
        ]
        return max(worlds)[1] if worlds else None

    def ids(self, attempt: int) -> tuple[str, ...]:
        """The ids of all communicators of an attempt."""
        return tuple(sorted(known.id for known in self.known if known.attempt == attempt))

    def _pairs(self, ranks: list[list[int]]) -> Int64Array:
        pairs = [call_rows.collective_sequence(number, rank) for number, some in enumerate(ranks) for rank in some]
        return np.array(sorted(pairs), np.int64)


def _pairs_of(numbers: Int64Array, records: Records) -> Int64Array:
    pairs: Int64Array = (numbers << call_rows.COMMUNICATOR_SHIFT) | (
        records["rank"].astype(np.int64) << call_rows.RANK_SHIFT
    )
    return pairs


def _is_in(values: Int64Array, known: Int64Array) -> BoolArray:
    if len(known) == 0:
        return np.zeros(len(values), np.bool_)
    found: BoolArray = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found
