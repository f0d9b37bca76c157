"""Whose delay it is: the critical path of one iteration over all communicators of a job, and every rank's own time.

Walk back from the iteration's last end. On a rank, the time since its last round ended is that rank's own: it is
charged to the rank. Inside a round, the time from the latest start to the end is charged to the transfer, and the
walk goes on at the rank that started last, for everybody else waited for it. The charges of one iteration add up
to its duration, so their growth over a quiet baseline says who made it longer (DESIGN section 6).

Clocks. In an operation that nobody leaves before the last one has entered (all_reduce, all_gather, reduce_scatter,
all_to_all, barrier) the last one to start is the one with the shortest duration, and that duration is the transfer:
each duration is on a clock of its own, and the walk goes on at the last starter's own start. Only point-to-point
and rooted operations need the hosts' offsets (clocks.py).

Overlap. A send is no reason to wait until its rank stands still for it: it counts on the path only where the
rank's next call follows at once on its end. A collective during which its rank begins and ends calls on another
communicator runs beside the work, as gradient buckets do: where most calls of a communicator are so, they neither
count as waiting nor lie on the path, but for those that contain nothing (the last bucket is waited for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OP_CODE, OPS, Sees
from pacehound.model.rounds import Rounds
from streams.rounds.clocks import ClockOffsets
from streams.rounds.round_loops import ENDS_FOR_ALL
from streams.slow import path_walk
from streams.slow.ordering import order_by
from streams.slow.thresholds import AT_ONCE_NS, AT_ONCE_SHARE, BESIDE_SHARE

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TransferKey = str | tuple[int, int]
"""A communicator, or sender and receiver of a point-to-point pair."""


_NEVER_NS = np.iinfo(np.int64).max
_WAITS_FOR_ALL = np.isin(np.arange(len(OPS)), [OP_CODE[name] for name in ENDS_FOR_ALL if name in OP_CODE])


@dataclass(frozen=True, slots=True)
class Charges:
    """What one iteration's time went to, in nanoseconds.

    `ranks` holds the ranks' own time on the path, `transfers` the time of the rounds on it.
    """

    ranks: dict[int, int]
    transfers: dict[TransferKey, int]

    @property
    def total_ns(self) -> int:
        """The length of the path."""
        return sum(self.ranks.values()) + sum(self.transfers.values())

    def shared_by(self, n_iterations: int) -> Charges:
        """What one of so many iterations went to."""
        return Charges(
            {rank: ns // n_iterations for rank, ns in self.ranks.items()},
            {key: ns // n_iterations for key, ns in self.transfers.items()},
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """One iteration: from when to when each rank worked in it, on the clock of its host."""

    ranks: Int64Array  # ascending
    # the same shape
    begins_ns: Int64Array
    ends_ns: Int64Array

    @classmethod
    def of(cls, begins_ns: Mapping[int, int], ends_ns: Mapping[int, int]) -> Stretch:
        """From times by rank; ranks without a begin are left out."""
        ranks = np.array(sorted(rank for rank in ends_ns if rank in begins_ns), np.int64)
        begins = np.array([begins_ns[rank] for rank in ranks.tolist()], np.int64)
        return cls(ranks, begins, np.array([ends_ns[rank] for rank in ranks.tolist()], np.int64))

    @classmethod
    def between(
        cls, before: tuple[Sequence[int], Sequence[int]], after: tuple[Sequence[int], Sequence[int]]
    ) -> Stretch:
        """From two lists of (ranks, times): when each rank ended the iteration before, and this one."""
        ranks, at, at_before = np.intersect1d(
            np.array(after[0], np.int64), np.array(before[0], np.int64), return_indices=True
        )
        return cls(ranks, np.array(before[1], np.int64)[at_before], np.array(after[1], np.int64)[at])


@dataclass(frozen=True, slots=True)
class OwnTime:
    """Per rank of a stretch, the part that it spent in no call, in nanoseconds.

    `least` takes every send for waiting, `most` only those that the rank stood still for. What is a rank's own
    grows in both; a victim's grows in one of them at most, when its sends are taken sooner or later than before.
    """

    least: Int64Array
    most: Int64Array


@dataclass(frozen=True, slots=True)
class Transfers:
    """How long the rounds of one iteration took to transfer, summed by communicator and by directed pair."""

    keys: tuple[TransferKey, ...]
    total_ns: Float64Array
    n_rounds: int
    size_bytes: int


@dataclass(slots=True)
class _Columns:
    """Entries (one per rank and round) or rounds, collected block by block."""

    parts: dict[str, list[npt.NDArray[np.generic]]] = field(default_factory=dict)

    def add(self, **columns: npt.NDArray[np.generic]) -> None:
        for name, values in columns.items():
            self.parts.setdefault(name, []).append(values)

    def take(self, name: str) -> Int64Array:
        return np.concatenate([np.zeros(0, np.int64), *self.parts.get(name, [])]).astype(np.int64, copy=False)


class RoundIndex:
    """The rounds of a stretch of time, arranged so that a walk can go back along any rank.

    Building is O(R log R) array work for R (round, rank) pairs; each step of a walk is one binary search.

    Rounds without a start or an end say nothing of waiting: they count as work and are used for nothing else. `offsets`
    tell how far the clocks are apart, for the operations that need it.
    """

    def __init__(self, blocks: Sequence[Rounds], offsets: ClockOffsets | None = None) -> None:
        self._offsets = offsets or ClockOffsets()
        self.keys: list[TransferKey] = []
        key_of: dict[TransferKey, int] = {}
        by_shape: dict[tuple[int, bool], list[tuple[Rounds, int]]] = {}
        for block in blocks:
            if len(block) == 0:
                continue
            key: TransferKey = (block.ranks[0], block.ranks[1]) if block.is_pair else block.communicator
            if key not in key_of:
                key_of[key] = len(self.keys)
                self.keys.append(key)
            sees_transfer = Sees.START in block.sees and Sees.END in block.sees
            by_shape.setdefault((len(block.ranks), sees_transfer), []).append((block, key_of[key]))
        entries, rounds = _Columns(), _Columns()
        n_rounds = 0
        for (_, sees_transfer), chosen in by_shape.items():
            n_rounds += self._add(chosen, sees_transfer, n_rounds, entries, rounds)
        self.sees_transfers = any(sees for _, sees in by_shape)
        self._round_key = rounds.take("key")
        self._last_rank, self._last_start = rounds.take("last_rank"), rounds.take("last_start")
        self._transfer_ns = rounds.take("transfer")
        self._anchor_rank, self._anchor_ns = rounds.take("anchor_rank"), rounds.take("anchor")
        self._sizes = rounds.take("size")
        self._launch_rank, self._launch_ns = entries.take("launch_rank"), entries.take("launch")
        self._lost_rank, self._lost_round = entries.take("lost_rank"), entries.take("lost_round")
        self._lost_start, self._lost_end = entries.take("lost_start"), entries.take("lost_end")
        rank, start, end = entries.take("rank"), entries.take("start"), entries.take("end")
        round_of, key_at = entries.take("round"), entries.take("key")
        is_send = entries.take("is_send") > 0
        order = order_by(rank, start, end)
        self._rank, self._start, self._end = rank[order], start[order], end[order]
        is_send, round_of, key_at = is_send[order], round_of[order], key_at[order]
        is_pair = np.array([isinstance(key, tuple) for key in self.keys], np.bool_)
        self._is_free_send = is_send & ~self._stands_still()
        self._is_beside = self._runs_beside(key_at, is_pair)
        on_path = np.flatnonzero(~self._is_free_send & ~self._is_beside)
        by_end = on_path[order_by(self._rank[on_path], self._end[on_path], round_of[on_path])]
        self._path_rank, self._path_end, self._path_round = self._rank[by_end], self._end[by_end], round_of[by_end]

    def _add(
        self, chosen: list[tuple[Rounds, int]], sees_transfer: bool, first: int, entries: _Columns, rounds: _Columns
    ) -> int:
        """All blocks of one shape at once; returns how many rounds they hold."""
        blocks = [block for block, _ in chosen]
        lengths = [len(block) for block in blocks]
        arrival = np.concatenate([block.arrival_ns for block in blocks])
        start = np.concatenate([block.start_ns for block in blocks])
        end = np.concatenate([block.end_ns for block in blocks])
        members = np.repeat(np.array([block.ranks for block in blocks], np.int64), lengths, axis=0)
        key = np.repeat(np.array([number for _, number in chosen], np.int64), lengths)
        is_pair = np.repeat(np.array([block.is_pair for block in blocks], np.bool_), lengths)
        op = np.concatenate([block.op for block in blocks])
        n_rounds, line = len(key), np.arange(len(key))
        ended = np.where(end > 0, end, arrival)
        anchor = ended.argmax(axis=1)
        rounds.add(
            key=key,
            size=np.concatenate([block.size_bytes for block in blocks]),
            anchor_rank=members[line, anchor],
            anchor=ended[line, anchor],
        )
        at, column = np.nonzero(arrival > 0)
        entries.add(launch_rank=members[at, column], launch=arrival[at, column])
        if not sees_transfer:
            nothing = np.zeros(n_rounds, np.int64)
            rounds.add(last_rank=members[:, 0], last_start=nothing, transfer=nothing)
            return n_rounds
        start = np.where(start > 0, start, arrival)
        seen = (end > 0) & (start > 0)
        last, transfer = self._last_starters(start, end, seen, members, is_pair, _WAITS_FOR_ALL[op] & ~is_pair)
        rounds.add(last_rank=members[line, last], last_start=start[line, last], transfer=transfer)
        at, column = np.nonzero(seen)
        entries.add(
            rank=members[at, column],
            start=start[at, column],
            end=end[at, column],
            round=at + first,
            key=key[at],
            is_send=is_pair[at] & (column == 0),
        )
        at, column = np.nonzero((end == 0) & (arrival == 0))
        # A lost call lasted as long as its transfer at least: so much of it is no time of the rank's own.
        lost = members[at, column]
        begun = start[at, last[at]] - self._offsets.of(members[at, last[at]]) + self._offsets.of(lost)
        entries.add(lost_rank=lost, lost_round=at + first, lost_start=begun, lost_end=begun + transfer[at])
        return n_rounds

    def _last_starters(
        self,
        start: Int64Array,
        end: Int64Array,
        seen: BoolArray,
        members: Int64Array,
        is_pair: BoolArray,
        all_wait: BoolArray,
    ) -> tuple[Int64Array, Int64Array]:
        """Per round the column of who started last, and how long the transfer took from there (0 where unknown)."""
        line = np.arange(len(start))
        durations = np.where(seen, end - start, _NEVER_NS)
        shortest = durations.argmin(axis=1)
        offset = self._offsets.of(members)
        on_one_clock = np.where(seen, start - offset, np.iinfo(np.int64).min)
        latest = on_one_clock.argmax(axis=1)
        # Of a pair the receiver's end counts: a sender may be through as soon as its data are in a buffer.
        ends = np.where(seen, end - offset, 0)
        last_end = np.where(is_pair & seen[:, -1], ends[:, -1], ends.max(axis=1))
        exact = last_end - on_one_clock[line, latest]
        # Two hosts whose clocks cannot be compared: the shorter of the durations is all that is known.
        needs_no_clock = all_wait | self._is_uncertain(members, is_pair)
        last = np.where(needs_no_clock, shortest, latest)
        transfer = np.where(needs_no_clock, durations[line, shortest], exact)
        is_known = seen[line, last] & (~is_pair | seen.all(axis=1))
        return last, np.where(is_known, np.maximum(transfer, 0), 0)

    def _is_uncertain(self, members: Int64Array, is_pair: BoolArray) -> BoolArray:
        """Pairs of two hosts of which one has no offset. Where no host is known at all, one clock is assumed."""
        uncertain = np.zeros(len(members), np.bool_)
        known = self._offsets
        if len(known.ranks) and is_pair.any():
            place = np.minimum(np.searchsorted(known.ranks, members), len(known.ranks) - 1)
            has_offset = np.isfinite(known.uncertainty_ns[place]).all(axis=1)
            uncertain = is_pair & ~has_offset & (known.host[place[:, 0]] != known.host[place[:, -1]])
        return uncertain

    def _stands_still(self) -> BoolArray:
        """Entries on whose end their rank's next call follows at once."""
        if not len(self._rank):
            return np.zeros(0, np.bool_)
        following = np.append(self._start[1:], _NEVER_NS)
        following[:-1][self._rank[1:] != self._rank[:-1]] = _NEVER_NS
        within = np.maximum(AT_ONCE_NS, AT_ONCE_SHARE * (self._end - self._start))
        apart = np.where(following == _NEVER_NS, np.inf, (following - self._end).astype(np.float64))
        still: BoolArray = np.abs(apart) <= within
        return still

    def _runs_beside(self, key: Int64Array, is_pair: BoolArray) -> BoolArray:
        """Entries of collectives that contain whole calls of other communicators, where most of theirs do."""
        beside = np.zeros(len(self._rank), np.bool_)
        mine = np.flatnonzero(~is_pair[key]) if len(key) else np.zeros(0, np.int64)
        if len(mine) < 2:
            return beside
        rank, start, end, kind = self._rank[mine], self._start[mine], self._end[mine], key[mine]
        is_last_of_run = np.append((rank[1:] != rank[:-1]) | (kind[1:] != kind[:-1]), True)
        run_ends = np.flatnonzero(is_last_of_run)
        following = run_ends[np.searchsorted(run_ends, np.arange(len(mine)))] + 1
        other = np.minimum(following, len(mine) - 1)
        contains = (following < len(mine)) & (rank[other] == rank) & (start[other] > start) & (end[other] < end)
        n_keys = len(is_pair)
        share = np.bincount(kind[contains], minlength=n_keys) / np.maximum(np.bincount(kind, minlength=n_keys), 1)
        beside[mine[contains & (share[kind] >= BESIDE_SHARE)]] = True
        return beside

    def walk(self, stretch: Stretch) -> Charges:
        """The charges of an iteration along its critical path."""
        if not len(stretch.ranks):
            return Charges({}, {})
        final = int((stretch.ends_ns - self._offsets.of(stretch.ranks)).argmax())
        ranks_ns, keys_ns = np.zeros(len(stretch.ranks), np.int64), np.zeros(len(self.keys), np.int64)
        path_walk.walk_back(
            stretch.ranks[final],
            stretch.ends_ns[final],
            self._path_rank,
            self._path_end,
            self._path_round,
            self._round_key,
            self._last_rank,
            self._last_start,
            self._transfer_ns,
            stretch.ranks,
            stretch.begins_ns,
            ranks_ns,
            keys_ns,
        )
        charged_ranks, charged_keys = np.flatnonzero(ranks_ns), np.flatnonzero(keys_ns)
        return Charges(
            dict(zip(stretch.ranks[charged_ranks].tolist(), ranks_ns[charged_ranks].tolist(), strict=True)),
            {self.keys[key]: int(keys_ns[key]) for key in charged_keys.tolist()},
        )

    def own_time(self, stretch: Stretch) -> OwnTime:
        """Per rank, the part of its iteration that it spent in no call: its own work, waiting left out.

        A rank that is only waited with keeps its own time when somebody else becomes slow, so its growth tells a
        culprit from a victim even where the path wanders.
        """
        least = self._outside(stretch, ~self._is_beside)
        has_free_sends = bool(self._is_free_send.any())
        most = self._outside(stretch, ~self._is_beside & ~self._is_free_send) if has_free_sends else least
        return OwnTime(least, most)

    def _outside(self, stretch: Stretch, counts: BoolArray) -> Int64Array:
        """Time of each rank that no counting entry covers: one pass over the entries, sorted by (rank, start)."""
        rank, start, end = self._rank, self._start, self._end
        if len(self._lost_rank):
            rank = np.concatenate([rank, self._lost_rank])
            start = np.concatenate([start, self._lost_start])
            end = np.concatenate([end, self._lost_end])
            order = np.lexsort((start, rank))
            rank, start, end = rank[order], start[order], end[order]
            counts = np.concatenate([counts, np.ones(len(self._lost_rank), np.bool_)])[order]
        own: Int64Array = stretch.ends_ns - stretch.begins_ns
        path_walk.subtract_calls(rank, start, end, counts, stretch.ranks, stretch.begins_ns, stretch.ends_ns, own)
        return own

    def transfers(self, stretch: Stretch) -> Transfers:
        """Transfer times of the rounds of an iteration, and how much there was to do in it."""
        inside = self._is_inside(stretch)
        keys = self._round_key[inside]
        total = np.bincount(keys, weights=self._transfer_ns[inside], minlength=len(self.keys))
        return Transfers(tuple(self.keys), total.astype(np.float64), int(inside.sum()), int(self._sizes[inside].sum()))

    def lost_share(self, stretch: Stretch) -> Float64Array:
        """Per rank, the share of its rows that are missing in rounds that others have reported."""
        in_round = self._is_inside(stretch)[self._lost_round] if len(self._lost_round) else np.zeros(0, np.bool_)
        lost = _count(stretch.ranks, self._lost_rank[in_round])
        if not lost.any():
            return np.zeros(len(stretch.ranks))
        place = np.minimum(np.searchsorted(stretch.ranks, self._rank), len(stretch.ranks) - 1)
        inside = (self._end > stretch.begins_ns[place]) & (self._end <= stretch.ends_ns[place])
        kept = _count(stretch.ranks, self._rank[inside])
        share: Float64Array = lost / np.maximum(lost + kept, 1)
        return share

    def first_launch_ns(self, stretch: Stretch) -> Int64Array:
        """Per rank, how long after its begin it launched its first call; 0 where it launched none."""
        first = np.full(len(stretch.ranks), _NEVER_NS)
        if len(self._launch_rank) and len(stretch.ranks):
            place = np.minimum(np.searchsorted(stretch.ranks, self._launch_rank), len(stretch.ranks) - 1)
            inside = stretch.ranks[place] == self._launch_rank
            inside &= (self._launch_ns > stretch.begins_ns[place]) & (self._launch_ns <= stretch.ends_ns[place])
            np.minimum.at(first, place[inside], self._launch_ns[inside])
        return np.where(first == _NEVER_NS, 0, first - stretch.begins_ns)

    def _is_inside(self, stretch: Stretch) -> BoolArray:
        """Rounds of which one rank that was seen in them says, on its own clock, that they ended in the stretch."""
        inside = np.zeros(len(self._anchor_rank), np.bool_)
        path_walk.find_inside(
            self._anchor_rank, self._anchor_ns, stretch.ranks, stretch.begins_ns, stretch.ends_ns, inside
        )
        return inside


def _count(ranks: Int64Array, of: Int64Array) -> Int64Array:
    """How often each of `ranks` (ascending) occurs in `of`."""
    if not len(ranks) or not len(of):
        return np.zeros(len(ranks), np.int64)
    place = np.minimum(np.searchsorted(ranks, of), len(ranks) - 1)
    return np.bincount(place[ranks[place] == of], minlength=len(ranks))
