"""Digests of iterations, made of the calls of a host's ranks (pacehound/model/digests.py says what they are).

A collective belongs to the iteration in which it was launched, by its rank's own order, so that all members of a
communicator tell of the same calls. A send or a receive belongs to the one in which it ends: a receive may be posted an
iteration before its data are sent. The iteration of a rank is over when its optimizer step is marked and no collective
that it launched before is open; until then its calls wait here.

What is told then ended before, when a promise had perhaps covered it: rounds that come late count from that promise on
(`streams.rounds.merge`), which is before the iteration's own end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import numpy as np

from collector.calls import rings
from collector.calls import rows as call_rows
from collector.calls.rings import CALL, BoolArray, Int64Array, Records
from pacehound.clock import ClockPair
from pacehound.model.calls import DTYPE_CODE
from pacehound.model.events import OPTIMIZER_STEP, Markers

FIRST_STEP = 2
"""The iteration that this optimizer step ends is the last one whose calls are told: before, all ranks have made their
groups, and markers and calls of rings that are read one after the other have come."""

MAX_WAITING = 1 << 16
"""Calls of iterations that are not over, 8 MB that are saved with each flush: beyond it they are told as they are."""

Rank = tuple[int, int]
"""Attempt and rank."""

_UINT8 = DTYPE_CODE["uint8"]


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """An optimizer step of a rank; monotonic time."""

    attempt: int
    rank: int
    step: int
    time_ns: int


def marks_of(markers: Markers, clock: ClockPair) -> list[Mark]:
    """The optimizer steps among some markers."""
    offset_ns = clock.to_unix_ns(0)
    columns = (markers.ranks, markers.names, markers.steps, markers.times_ns)
    return [
        Mark(markers.attempt, rank, step, time_ns - offset_ns)
        for rank, name, step, time_ns in zip(*columns, strict=True)
        if name == OPTIMIZER_STEP
    ]


class DigestState(msgspec.Struct, kw_only=True):
    """What waits, as it is saved: calls and the number of each one's communicator, and marks that are still of use."""

    rows: bytes = b""
    numbers: list[int] = []
    marks: list[Mark] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is to be said of calls: those that are told one by one, digests, and which calls stand behind these.

    Each with the numbers of their communicators.
    """

    calls: Records
    of_calls: Int64Array
    digests: Records
    of_digests: Int64Array
    behind: Records
    of_behind: Int64Array

    @classmethod
    def one_by_one(cls, calls: Records, numbers: Int64Array) -> Told:
        """All calls, and no digests."""
        nothing, of_nothing = call_rows.no_rows(), np.empty(0, np.int64)
        return cls(
            calls=calls,
            of_calls=numbers,
            digests=nothing,
            of_digests=of_nothing,
            behind=nothing,
            of_behind=of_nothing,
        )


class IterationDigests:
    """The calls of a host's ranks in iterations that are not over.

    Parameters
    ----------
    state
        What an earlier agent of the same run had saved.

    """

    def __init__(self, state: DigestState) -> None:
        self._rows = np.frombuffer(state.rows, CALL)
        self._numbers = np.array(state.numbers, np.int64)
        self._marks: dict[Rank, list[Mark]] = {}
        for mark in state.marks:
            self._marks.setdefault((mark.attempt, mark.rank), []).append(mark)

    @property
    def have_begun(self) -> bool:
        """Whether iterations are told of, and not calls."""
        return bool(self._marks)

    def state(self) -> DigestState:
        """What must be saved together with what was told so far."""
        return DigestState(
            rows=self._rows.tobytes(),
            numbers=self._numbers.tolist(),
            marks=[mark for marks in self._marks.values() for mark in marks],
        )

    def take(
        self,
        rows: Records,
        numbers: Int64Array,
        attempts: Int64Array,
        marks: Iterable[Mark],
        oldest_open_ns: Mapping[int, int],
        over: Collection[Rank] = (),
    ) -> Told:
        """Take in calls that are final, and tell what is over.

        Parameters
        ----------
        rows, numbers, attempts
            Calls viewed as `CALL`, the number of each one's communicator, and by that number its attempt.
        marks
            Optimizer steps that were read since the last time.
        oldest_open_ns
            By rank, when its oldest collective that is open was launched.
        over
            Ranks that have left: what they have called is all there will be.

        """
        for mark in marks:
            if mark.step >= FIRST_STEP:
                self._marks.setdefault((mark.attempt, mark.rank), []).append(mark)
        waits = self._can_wait(rows, attempts[numbers])
        self._rows = np.concatenate((self._rows, rows[waits]))
        self._numbers = np.concatenate((self._numbers, numbers[waits]))
        is_over = np.zeros(len(self._rows), np.bool_)
        made = [(call_rows.no_rows(), np.empty(0, np.int64))]
        for rank, mine in self._by_rank(attempts):
            for begin_ns, mark, of_it in self._ended(rank, mine, oldest_open_ns, has_left=rank in over):
                is_over[of_it] = True
                made.append(_digests(self._rows[of_it], self._numbers[of_it], mark, begin_ns))
        self._forget_marks(oldest_open_ns)
        too_many = len(is_over) - int(is_over.sum()) > MAX_WAITING
        leaves, told = np.full(len(is_over), too_many) & ~is_over, ~waits
        calls = np.concatenate((rows[told], self._rows[leaves]))
        of_calls = np.concatenate((numbers[told], self._numbers[leaves]))
        behind, of_behind = self._rows[is_over], self._numbers[is_over]
        self._rows, self._numbers = self._rows[~is_over & ~leaves], self._numbers[~is_over & ~leaves]
        return Told(
            calls=calls,
            of_calls=of_calls,
            digests=np.concatenate([digests for digests, _ in made]),
            of_digests=np.concatenate([of_digests for _, of_digests in made]),
            behind=behind,
            of_behind=of_behind,
        )

    def _ended(
        self, rank: Rank, mine: Int64Array, oldest_open_ns: Mapping[int, int], *, has_left: bool
    ) -> Iterator[tuple[int, Mark, Int64Array]]:
        """When each iteration of a rank that is over began, the mark of its end, and which calls are of it."""
        marks = self._marks[rank][: self._n_ready(rank, oldest_open_ns)]
        if has_left:
            last = self._marks[rank][-1]
            marks = [*self._marks[rank], Mark(last.attempt, last.rank, last.step + 1, np.iinfo(np.int64).max)]
        ends_ns = np.array([mark.time_ns for mark in marks[1:]], np.int64)
        turn = np.searchsorted(ends_ns, _counts_from_ns(self._rows[mine]))
        for place, (begins, ends) in enumerate(pairwise(marks)):
            if len(of_it := mine[turn == place]):
                yield begins.time_ns, ends, of_it

    def _n_ready(self, rank: Rank, oldest_open_ns: Mapping[int, int]) -> int:
        """How many marks of a rank have nothing open before them."""
        oldest_ns = oldest_open_ns.get(rank[1], np.iinfo(np.int64).max)
        return sum(mark.time_ns < oldest_ns for mark in self._marks[rank])

    def _forget_marks(self, oldest_open_ns: Mapping[int, int]) -> None:
        """All before the last one that is ready: there the next iteration begins."""
        for rank, marks in self._marks.items():
            self._marks[rank] = marks[max(self._n_ready(rank, oldest_open_ns) - 1, 0) :]

    def _can_wait(self, rows: Records, attempts: Int64Array) -> BoolArray:
        """Which calls are of an iteration of which there will be digests, and say when they began and ended."""
        waits = (rows["start_ns"] > 0) & (rows["end_ns"] > 0)
        counts_from_ns, begun = _counts_from_ns(rows), np.zeros(len(rows), np.bool_)
        for (attempt, rank), marks in self._marks.items():
            begun |= (attempts == attempt) & (rows["rank"] == rank) & (counts_from_ns > marks[0].time_ns)
        return waits & begun

    def _by_rank(self, attempts: Int64Array) -> Iterator[tuple[Rank, Int64Array]]:
        """Where the calls of each rank are."""
        of_rows = attempts[self._numbers]
        for attempt, rank in sorted(set(zip(of_rows.tolist(), self._rows["rank"].tolist(), strict=True))):
            yield (attempt, rank), np.flatnonzero((of_rows == attempt) & (self._rows["rank"] == rank))


def _counts_from_ns(rows: Records) -> Int64Array:
    """By when it is decided in which iteration calls are."""
    times_ns: Int64Array = np.where(rows["direction"] == 0, rows["launch_ns"], rows["end_ns"]).astype(np.int64)
    return times_ns


def _digests(rows: Records, numbers: Int64Array, mark: Mark, begin_ns: int) -> tuple[Records, Int64Array]:
    """The calls of one rank in one iteration, by communicator, peer and source."""
    keys = np.stack((call_rows.sequence_keys(numbers, rows), rows["source"].astype(np.int64)), axis=1)
    kinds, kind_of = np.unique(keys, axis=0, return_inverse=True)
    kind_of = kind_of.reshape(-1)
    start_ns, end_ns = np.maximum(rows["start_ns"].astype(np.int64), begin_ns), rows["end_ns"].astype(np.int64)
    took_ns = np.maximum(end_ns - start_ns, 0)
    size_bytes = rings.size_bytes(rows)
    largest = [_largest(np.flatnonzero(kind_of == kind), rows, size_bytes) for kind in range(len(kinds))]
    made = rows[largest]
    made["seq"] = mark.step
    made["count"] = np.bincount(kind_of, size_bytes, len(kinds)).astype(np.int64)
    made["dtype"] = _UINT8
    for name in ("send_rate", "recv_rate"):
        made[name] = _means(rows[name], kind_of, len(kinds))
    busy_ns = np.bincount(kind_of, took_ns, len(kinds))
    busy_ns *= min(1.0, _covered_ns(start_ns, end_ns) / max(busy_ns.sum(), 1))  # calls that overlap are covered once
    least_ns = np.minimum(_least_ns(took_ns, kind_of, rows["op"], size_bytes, len(kinds)), busy_ns)
    last_ns = np.zeros(len(kinds), np.int64)
    np.maximum.at(last_ns, kind_of, end_ns)
    before_ns = int(last_ns.max())
    for kind in np.argsort(-last_ns, kind="stable").tolist():
        end = min(int(last_ns[kind]), before_ns)
        before_ns = end - max(int(busy_ns[kind]), 1)
        made["end_ns"][kind] = end
        made["start_ns"][kind] = before_ns
        made["launch_ns"][kind] = end - max(int(least_ns[kind]), 1)
    return made, numbers[largest]


def _largest(at: Int64Array, rows: Records, size_bytes: Int64Array) -> int:
    """The call that moves most, of several the last one: it is the same one on all ranks."""
    order = np.lexsort((rows["seq"][at], size_bytes[at]))
    return int(at[order[-1]])


def _least_ns(
    took_ns: Int64Array, kind_of: Int64Array, op: np.ndarray, size_bytes: Int64Array, n_kinds: int
) -> np.ndarray:
    """How long all calls of a kind take, each as long as the shortest of its operation and size: without waiting."""
    alike, which = np.unique(np.stack((kind_of, op.astype(np.int64), size_bytes), axis=1), axis=0, return_inverse=True)
    which = which.reshape(-1)
    shortest_ns = np.full(len(alike), np.iinfo(np.int64).max)
    np.minimum.at(shortest_ns, which, took_ns)
    return np.bincount(kind_of, shortest_ns[which], n_kinds)


def _means(rates: np.ndarray, kind_of: Int64Array, n_kinds: int) -> np.ndarray:
    """Of those that are known; negative, which is unknown, where none is."""
    is_known = np.isfinite(rates) & (rates >= 0)
    number = np.bincount(kind_of[is_known], minlength=n_kinds)
    total = np.bincount(kind_of[is_known], rates[is_known].astype(np.float64), n_kinds)
    return np.where(number > 0, total / np.maximum(number, 1), -1.0)


def _covered_ns(start_ns: Int64Array, end_ns: Int64Array) -> int:
    """For how long one of them at least was under way."""
    order = np.argsort(start_ns, kind="stable")
    start_ns, end_ns = start_ns[order], end_ns[order]
    before_ns = np.maximum.accumulate(np.concatenate((start_ns[:1], end_ns[:-1])))
    return int(np.maximum(end_ns - np.maximum(start_ns, before_ns), 0).sum())
