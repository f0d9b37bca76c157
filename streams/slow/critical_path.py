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
rank's next call follows at once on its end, and hides its rank's own time only behind the last call that it contains.
A collective during which its rank begins and ends calls on another communicator runs beside the work, as gradient
buckets do: where most calls of a communicator are so, they neither count as waiting nor lie on the path, but for those
that contain nothing (the last bucket is waited for).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streams.rounds.clocks import ClockOffsets
from streams.rounds.round_columns import RoundColumns, TransferKey
from streams.rounds.round_table import digested_transfers_ns
from streams.slow import index_loops, path_walk
from streams.slow.ordering import in_order, order_by

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_Name = TypeVar("_Name", int, TransferKey)
_NEVER_NS = np.iinfo(np.int64).max
_NOBODY: Int64Array = np.zeros(0, np.int64)


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

    @classmethod
    def together(cls, of: Iterable[Charges]) -> Charges:
        """What several iterations went to."""
        ranks: Counter[int] = Counter()
        transfers: Counter[TransferKey] = Counter()
        for charges in of:
            ranks.update(charges.ranks)
            transfers.update(charges.transfers)
        return cls(dict(ranks), dict(transfers))


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
    def following(cls, ranks: Sequence[int], ends_ns: Sequence[Sequence[int]]) -> list[Stretch]:
        """Iterations that follow each other on the same ranks: each ends where the next one begins.

        >>> [one.begins_ns.tolist() for one in Stretch.following((0, 1), [(5, 6), (15, 16), (25, 27)])]
        [[5, 6], [15, 16]]
        """
        of_ranks, times_ns = np.array(ranks, np.int64), np.array(ends_ns, np.int64)
        if not (of_ranks[1:] > of_ranks[:-1]).all():
            order = of_ranks.argsort()
            of_ranks, times_ns = of_ranks[order], times_ns[:, order]
        return [cls(of_ranks, begins, ends) for begins, ends in pairwise(times_ns)]

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
class Measured:
    """All that rounds say of iterations of the same ranks, a line of each, in nanoseconds.

    Attributes
    ----------
    own_ns, most_own_ns
        The part of its iteration that each rank spent in no call, shape `(n_iterations, n_ranks)`: `own_ns` takes every
        send for waiting, `most_own_ns` only those that the rank stood still for (the same array where that is the
        same). What is a rank's own grows in both; a victim's grows in one of them at most, when its sends are taken
        sooner or later than before.
    transfers_ns
        How long rounds took to transfer, summed by communicator and by directed pair, shape `(n_iterations, n_keys)`.
    n_rounds, size_bytes
        How many rounds they were, and what they have moved.
    charges
        What lies on the critical path.
    """

    own_ns: Int64Array
    most_own_ns: Int64Array
    transfers_ns: Float64Array
    n_rounds: list[int]
    size_bytes: list[int]
    charges: list[Charges]


def _calls(
    rank: Int64Array,
    start: Int64Array,
    end: Int64Array,
    counts: BoolArray,
    is_waited: BoolArray,
    waits_from: Int64Array | None,
    lost: Mapping[str, Int64Array],
) -> path_walk.Calls:
    """Calls that `counts` or does not, whether and since when their rank stood still for them, and those lost."""
    waited = None if is_waited.all() else counts & is_waited
    n_lost = len(lost["lost_rank"])
    if waits_from is not None and not n_lost:
        order = order_by(rank, waits_from, end)  # ranks ascend already
        start, end, counts = waits_from[order], end[order], counts[order]
        waited = None if waited is None else waited[order]
    elif waits_from is not None:
        start = waits_from
    if not n_lost:
        return path_walk.Calls(rank, start, end, counts, waited)
    rank = np.concatenate([rank, lost["lost_rank"]])
    start = np.concatenate([start, lost["lost_start"]])
    order = np.lexsort((start, rank))
    counts = np.concatenate([counts, np.ones(n_lost, np.bool_)])[order]
    if waited is not None:
        waited = np.concatenate([waited, np.ones(n_lost, np.bool_)])[order]
    end = np.concatenate([end, lost["lost_end"]])
    return path_walk.Calls(rank[order], start[order], end[order], counts, waited)


class RoundIndex:
    """The rounds of a stretch of time, arranged so that a walk can go back along any rank.

    Building is O(R log R) array work for R (round, rank) pairs; each step of a walk is one binary search.

    Rounds without a start or an end say nothing of waiting: they count as work and are used for nothing else. `offsets`
    tell how far the clocks are apart, for the operations that need it.
    """

    def __init__(self, rounds: RoundColumns, offsets: ClockOffsets | None = None) -> None:
        self._offsets = offsets or ClockOffsets()
        self._ranks, self._ahead_ns = np.zeros((2, 0), np.int64)  # of the last stretch, and their clocks
        self.keys = rounds.keys
        self.sees_transfers = bool(rounds.sees_transfer.any())
        self._rounds = rounds
        found = self._arranged()
        self._anchor_rank, self._anchor_ns = found.rounds["anchor_rank"], found.rounds["anchor"]
        self._lost_rank, self._lost_round = found.lost["lost_rank"], found.lost["lost_round"]
        self._rank, self._start, self._end, round_of = found.entries.values()
        is_pair = np.array([isinstance(key, tuple) for key in self.keys], np.bool_)
        is_send = found.is_send
        is_free_send = index_loops.free_sends(self._rank, self._start, self._end, is_send)
        self._is_beside = index_loops.beside(
            self._rank, self._start, self._end, round_of, found.rounds["round_key"], is_pair
        )
        waits_from = index_loops.waits_from(self._rank, self._start, self._end, is_send)
        calls = _calls(self._rank, self._start, self._end, ~self._is_beside, ~is_free_send, waits_from, found.lost)
        on_path = np.flatnonzero(~is_free_send & ~self._is_beside)
        path = in_order(self._rank[on_path], self._end[on_path], round_of[on_path])
        of_round = [*(found.rounds[name] for name in index_loops.OF_ROUND), rounds.size_bytes]
        self._path = path_walk.Path(calls, *path, of_round, len(self.keys))

    @property
    def ranks(self) -> Int64Array:
        """Who has made calls of which a start and an end are known, ascending."""
        is_first = np.ones(len(self._rank), np.bool_)
        is_first[1:] = self._rank[1:] != self._rank[:-1]
        ranks: Int64Array = self._rank[is_first]
        return ranks

    def _arranged(self) -> index_loops.Arranged:
        rounds = self._rounds
        cells = (rounds.arrival_ns, rounds.start_ns, rounds.end_ns)
        arranged = index_loops.arrange(
            rounds.lengths,
            rounds.widths,
            rounds.key,
            rounds.is_pair,
            rounds.sees_transfer,
            self._is_uncertain(rounds.members, rounds.widths, rounds.is_pair) | rounds.is_digest,
            rounds.members,
            self._offsets.of(rounds.members),
            rounds.op,
            cells,
        )
        of_digests = np.repeat(rounds.is_digest, rounds.lengths)
        if of_digests.any():
            widths = np.repeat(rounds.widths, rounds.lengths)
            transfer_ns = digested_transfers_ns(widths, rounds.arrival_ns, rounds.end_ns)
            arranged.rounds["transfer"][of_digests] = transfer_ns[of_digests]
        return arranged

    def _is_uncertain(self, members: Int64Array, widths: Int64Array, is_pair: BoolArray) -> BoolArray:
        """Pairs of two hosts of which one has no offset. Where no host is known at all, one clock is assumed.

        Two hosts whose clocks cannot be compared: the shorter of the durations is all that is known.
        """
        known = self._offsets
        if not len(known.ranks) or not is_pair.any() or not widths.all():
            return np.zeros(len(widths), np.bool_)
        place = np.minimum(np.searchsorted(known.ranks, members), len(known.ranks) - 1)
        ends = np.cumsum(widths)
        first, last = ends - widths, ends - 1
        has_offset = np.logical_and.reduceat(np.isfinite(known.uncertainty_ns[place]), first)
        uncertain: BoolArray = is_pair & ~has_offset & (known.host[place[first]] != known.host[place[last]])
        return uncertain

    def over_at(self, rank: int, times_ns: Int64Array) -> Int64Array:
        """When the call was over that a rank was in at each of some times; the time itself where it was in none."""
        begin, end = np.searchsorted(self._rank, (rank, rank + 1))
        if begin == end:
            return times_ns
        at = np.searchsorted(self._start[begin:end], times_ns) - 1
        over_ns = np.where(at >= 0, self._end[begin:end][at], times_ns)
        return np.maximum(over_ns, times_ns)

    def measured(self, stretches: Sequence[Stretch], others: Int64Array = _NOBODY) -> Measured:
        """What its rounds say of iterations, one or more, all of the same ranks; `others` of them end none.

        In one go, for a small job has hundreds a second.

        Charges lie along an iteration's critical path. The part of its iteration that a rank spent in no call is its
        own work, waiting left out: a rank that is only waited with keeps it when somebody else becomes slow, so that
        its growth tells a culprit from a victim even where the path wanders. Transfers are those of all rounds that
        were over in it, and say how much there was to do.
        """
        ranks, n = stretches[0].ranks, len(stretches)
        if not np.array_equal(ranks, self._ranks):  # they are the same in nearly all iterations
            self._ranks, self._ahead_ns = ranks, self._offsets.of(ranks)
        begins_ns = np.concatenate([one.begins_ns for one in stretches]).reshape(n, len(ranks))
        ends_ns = np.concatenate([one.ends_ns for one in stretches]).reshape(n, len(ranks))
        last_ranks, last_ns = np.full(n, -1), np.zeros(n, np.int64)
        if len(ranks):
            ended_ns = ends_ns - self._ahead_ns
            if len(others):
                ended_ns[:, np.isin(ranks, others)] = -1
            last = ended_ns.argmax(axis=1)
            last_ranks, last_ns = ranks[last], ends_ns[np.arange(n), last]
        found = self._path.measure(ranks, begins_ns, ends_ns, last_ranks, last_ns)
        of_ranks, of_keys = _charged(found.charged_ranks_ns, ranks.tolist()), _charged(found.charged_keys_ns, self.keys)
        return Measured(
            own_ns=found.own_ns,
            most_own_ns=found.own_ns if found.most_own_ns is None else found.most_own_ns,
            transfers_ns=found.transfers_ns,
            n_rounds=found.n_rounds,
            size_bytes=found.size_bytes,
            charges=[Charges(*charged) for charged in zip(of_ranks, of_keys, strict=True)],
        )

    def lost_share(self, stretch: Stretch) -> Float64Array | None:
        """Per rank, the share of its rows that are missing in rounds that others have reported; `None`: none is."""
        if not len(self._lost_round):
            return None
        inside = path_walk.find_inside(
            self._anchor_rank, self._anchor_ns, stretch.ranks, stretch.begins_ns, stretch.ends_ns
        )
        lost = _count(stretch.ranks, self._lost_rank[inside[self._lost_round]])
        if not lost.any():
            return None
        place = np.minimum(np.searchsorted(stretch.ranks, self._rank), len(stretch.ranks) - 1)
        inside = (self._end > stretch.begins_ns[place]) & (self._end <= stretch.ends_ns[place])
        kept = _count(stretch.ranks, self._rank[inside])
        share: Float64Array = lost / np.maximum(lost + kept, 1)
        return share

    def first_launch_ns(self, stretch: Stretch) -> Int64Array:
        """Per rank, how long after its begin it launched its first call; 0 where it launched none."""
        first = np.full(len(stretch.ranks), _NEVER_NS)
        rank, launch_ns = self._launches
        if len(rank) and len(stretch.ranks):
            place = np.minimum(np.searchsorted(stretch.ranks, rank), len(stretch.ranks) - 1)
            inside = stretch.ranks[place] == rank
            inside &= (launch_ns > stretch.begins_ns[place]) & (launch_ns <= stretch.ends_ns[place])
            np.minimum.at(first, place[inside], launch_ns[inside])
        return np.where(first == _NEVER_NS, 0, first - stretch.begins_ns)

    @cached_property
    def _launches(self) -> tuple[Int64Array, Int64Array]:
        """Who has launched a call, and when: asked only where no transfers are seen."""
        rounds = self._rounds
        first_member = np.cumsum(rounds.widths) - rounds.widths
        widths = np.repeat(rounds.widths, rounds.lengths)
        in_round = np.arange(widths.sum()) - np.repeat(np.cumsum(widths) - widths, widths)
        rank = rounds.members[np.repeat(np.repeat(first_member, rounds.lengths), widths) + in_round]
        launch_ns = rounds.arrival_ns
        return rank[launch_ns > 0], launch_ns[launch_ns > 0]


def _charged(charged_ns: Int64Array, names: Sequence[_Name]) -> list[dict[_Name, int]]:
    """What is charged to whom: a line of each iteration, a column of each name."""
    charged: list[dict[_Name, int]] = [{} for _ in charged_ns]
    lines, columns = charged_ns.nonzero()
    of_lines = zip(lines.tolist(), columns.tolist(), charged_ns[lines, columns].tolist(), strict=True)
    for line, column, ns in of_lines:
        charged[line][names[column]] = ns
    return charged


def _count(ranks: Int64Array, of: Int64Array) -> Int64Array:
    """How often each of `ranks` (ascending) occurs in `of`."""
    if not len(ranks) or not len(of):
        return np.zeros(len(ranks), np.int64)
    place = np.minimum(np.searchsorted(ranks, of), len(ranks) - 1)
    return np.bincount(place[ranks[place] == of], minlength=len(ranks))
