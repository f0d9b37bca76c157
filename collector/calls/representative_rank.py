"""Which small calls one rank of a host may represent, when the agent takes more than its budget.

Where every rank of the host made the same small call, and their launches, starts and ends lie within half a
millisecond, the row of the rank that started last, the representative, stands for all of them. The batch says for whom,
and how far each was from that rank on average; whoever reads it gives every rank its row back
(pacehound/model/representative.py).

Why not every n-th round, as sampling usually goes: a round that is left out as a whole looks like one that was lost or
that nobody entered, takes away the tokens by which iterations are known where no optimizer is seen, and hides for whom
the others waited, for the first small call behind slow work is where they wait. And hosts back off on their own: a
round that half of the ranks leave out is worse than none. Here every call keeps its row, its round and its size, and
each host decides for its own ranks alone. What is lost is how the times of a rank varied around its average, by less
than half a millisecond. What holds all the same:

- Per rank, launches, starts and ends add up to what they were: so does the time that a rank spent in calls, and who
  came late on the whole is as late as before.
- On no rank does the order of launches, of starts or of ends change among the rows of one look, and no call ends
  before it starts. A round for which that would not hold is sent in full.
- Whoever waited for longer, or called something else, has its own row. So has every rank in calls that were launched
  after one that is still open, were given up, went into a graph, or have counts of transfers: what hangs are judged by.

It saves making, keeping and sending rows. Rings are read and launches joined with completions as ever, for progress
counts every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from collector.calls import rings
from collector.calls.communicators import Communicator, sees
from collector.calls.rings import BoolArray, Int64Array, Records
from pacehound.model.calls import Sees
from pacehound.model.representative import RepresentedRank

SMALL_BYTES = 65_536
"""Every rank sends its own row of larger messages: groups are compared by how long those take."""

MAX_SPREAD_NS = 500_000
"""Instants of ranks may be so far apart and still be sent as an average."""

MIN_SAVED_ROWS = 256
"""A batch of its own takes as long as so many rows."""

MAX_ATTEMPTS = 8

BatchKey = tuple[int, int, bool]
"""Rows of one batch: communicator, source, and whether they were timed on the device."""

_INSTANTS = ("launch_ns", "start_ns", "end_ns")
_LAUNCH, _START, _END = range(3)
_EQUAL_FIELDS = ("op", "dtype", "redop", "count", "peer", "channels")


@dataclass(frozen=True, slots=True)
class Representatives:
    """Rows that stand for their host's ranks, and rows that need not be sent for that reason; shape `(n_rows,)`.

    `ranks` has, by batch, for whom its rows stand, and how far an instant may be off.
    """

    is_representative: BoolArray
    is_represented: BoolArray
    ranks: dict[BatchKey, tuple[tuple[RepresentedRank, ...], int]]


@dataclass(frozen=True, slots=True)
class _Block:
    """Rounds of one batch: where their rows stand, shape `(n_rounds, n_ranks)`, and each representative's column."""

    key: BatchKey
    at: Int64Array
    representative: Int64Array

    @property
    def is_other(self) -> BoolArray:
        others: BoolArray = self.representative[:, None] != np.arange(self.at.shape[1])[None, :]
        return others

    def mean_offsets(self, times_ns: Int64Array) -> Int64Array:
        """How much later each rank was than the representative, on average, shape `(n_ranks, 3)`."""
        own = times_ns[self.at]
        later = (own - own[np.arange(len(own)), self.representative][:, None, :]) * self.is_other[:, :, None]
        mean: Int64Array = np.rint(later.sum(axis=0) / np.maximum(self.is_other.sum(axis=0), 1)[:, None]).astype(
            np.int64
        )
        return mean

    def reported(self, times_ns: Int64Array) -> Int64Array:
        """What a reader will take the times of its rows for, shape `(n_rounds, n_ranks, 3)`."""
        own = times_ns[self.at]
        told = own[np.arange(len(own)), self.representative][:, None, :] + self.mean_offsets(times_ns)[None, :, :]
        reported: Int64Array = np.where(self.is_other[:, :, None] & (own > 0), told, own)
        return reported


def choose_representatives(
    rows: Records, communicators: Int64Array, known: Sequence[Communicator], before_ns: int
) -> Representatives:
    """Choose among final rows; all who make a round must be there.

    Parameters
    ----------
    rows
        Viewed as `CALL`, of one look at the rings. A call without an end, where ends are seen, was given up.
    communicators, known
        The number of each row's communicator, and the communicators.
    before_ns
        When the oldest call that is still open was launched: what came after it is sent in full.

    """
    times_ns = np.stack([rows[name].astype(np.int64) for name in _INSTANTS], axis=1)
    blocks = _similar_rounds(rows, communicators, times_ns, known, before_ns)
    for _ in range(MAX_ATTEMPTS):
        reported_ns, is_covered = times_ns.copy(), np.zeros(len(rows), np.bool_)
        for block in blocks:
            reported_ns[block.at], is_covered[block.at] = block.reported(times_ns), True
        misplaced: BoolArray = is_covered & _is_misplaced(rows["rank"], times_ns, reported_ns)
        if not misplaced.any():
            return _representatives(len(rows), blocks, times_ns, reported_ns, rows["rank"])
        blocks = [_without(misplaced, block) for block in blocks]
        blocks = [block for block in blocks if _saves(block)]
    return _representatives(len(rows), [], times_ns, times_ns, rows["rank"])


def _similar_rounds(
    rows: Records, communicators: Int64Array, times_ns: Int64Array, known: Sequence[Communicator], before_ns: int
) -> list[_Block]:
    n_here = np.array([len(communicator.host_ranks) for communicator in known], np.int64)[communicators]
    is_small = (rows["direction"] == 0) & (rings.size_bytes(rows) <= SMALL_BYTES)
    is_plain = ((rows["flags"] & (rings.CAPTURED | rings.FAILED)) == 0) & (rows["send_count"] < 0)
    is_plain &= (rows["recv_count"] < 0) & ((times_ns[:, _START] > 0) == (times_ns[:, _END] > 0))
    launches = times_ns[:, _LAUNCH]
    chosen = np.flatnonzero(is_small & is_plain & (launches > 0) & (launches < before_ns) & (n_here > 1))
    is_timed = rings.is_timed(rows)
    columns = (rows["rank"], rows["seq"], is_timed, rows["source"], communicators)
    chosen = chosen[np.lexsort([column[chosen] for column in columns])]
    keys = np.stack([communicators[chosen], rows["source"][chosen], is_timed[chosen]])
    cuts = [0, *(np.flatnonzero((np.diff(keys) != 0).any(axis=0)) + 1).tolist(), len(chosen)]
    blocks = []
    for begin, after in pairwise(cuts if len(chosen) else []):
        number, source, was_timed = keys[:, begin].tolist()
        at = _whole_rounds(chosen[begin:after], rows, known[number])
        has_ends = bool(was_timed) or Sees.END in sees(source, known[number].backend)
        at = at[_is_similar(at, rows, times_ns) & ((times_ns[at][:, :, _END] > 0) == has_ends).all(axis=1)]
        begun = times_ns[at][:, :, _START]
        latest = np.where(begun > 0, begun, times_ns[at][:, :, _LAUNCH]).argmax(axis=1)
        blocks.append(_Block((number, source, bool(was_timed)), at, latest))
    return [block for block in blocks if _saves(block)]


def _whole_rounds(at: Int64Array, rows: Records, communicator: Communicator) -> Int64Array:
    """Of rows sorted by (seq, rank), the rounds with all the ranks of this host, shape `(n_rounds, n_ranks)`."""
    here = np.array(sorted(communicator.host_ranks), np.int64)
    seq = rows["seq"][at]
    firsts = np.flatnonzero(np.concatenate(([True], seq[1:] != seq[:-1])))
    whole = at[(firsts[np.diff(np.append(firsts, len(at))) == len(here)])[:, None] + np.arange(len(here))[None, :]]
    rounds: Int64Array = whole[(rows["rank"][whole] == here[None, :]).all(axis=1)]
    return rounds


def _is_similar(at: Int64Array, rows: Records, times_ns: Int64Array) -> BoolArray:
    is_similar: BoolArray = (np.ptp(times_ns[at], axis=1) <= MAX_SPREAD_NS).all(axis=1)
    for name in _EQUAL_FIELDS:
        values = rows[name][at]
        is_similar &= (values == values[:, :1]).all(axis=1)
    return is_similar


def _is_misplaced(ranks: npt.NDArray[np.uint32], times_ns: Int64Array, reported_ns: Int64Array) -> BoolArray:
    """Rows that would be off by too much, end before they start, or change places with another row of their rank."""
    misplaced: BoolArray = (np.abs(reported_ns - times_ns) > MAX_SPREAD_NS).any(axis=1)
    misplaced |= (reported_ns[:, _END] > 0) & (np.diff(reported_ns, axis=1) < 0).any(axis=1)
    for instant in range(len(_INSTANTS)):
        seen = np.flatnonzero(times_ns[:, instant] > 0)
        order = seen[np.lexsort((times_ns[seen, instant], ranks[seen]))]
        step_ns, reported_step_ns = np.diff(times_ns[order, instant]), np.diff(reported_ns[order, instant])
        swaps = (np.diff(ranks[order].astype(np.int64)) == 0) & (reported_step_ns < np.minimum(step_ns, 1))
        misplaced[order[:-1][swaps]] = True
        misplaced[order[1:][swaps]] = True
    return misplaced


def _saves(block: _Block) -> bool:
    return bool(len(block.at) * (block.at.shape[1] - 1) >= MIN_SAVED_ROWS)


def _without(misplaced: BoolArray, block: _Block) -> _Block:
    kept: BoolArray = np.logical_not(misplaced[block.at].any(axis=1))
    return _Block(block.key, block.at[kept], block.representative[kept])


def _representatives(
    n_rows: int, blocks: Sequence[_Block], times_ns: Int64Array, reported_ns: Int64Array, ranks: npt.NDArray[np.uint32]
) -> Representatives:
    is_representative, is_represented = np.zeros(n_rows, np.bool_), np.zeros(n_rows, np.bool_)
    represented_ranks = {}
    for block in blocks:
        is_representative[block.at[~block.is_other]] = True
        is_represented[block.at[block.is_other]] = True
        columns = zip(ranks[block.at[0]].tolist(), block.mean_offsets(times_ns).tolist(), strict=True)
        within_ns = int(np.abs(reported_ns[block.at] - times_ns[block.at]).max())
        represented_ranks[block.key] = (tuple(RepresentedRank(rank, *offsets) for rank, offsets in columns), within_ns)
    return Representatives(is_representative, is_represented, represented_ranks)
