"""The inner loops of the critical path, compiled: what one iteration asks of all rounds that are kept.

Arrays of entries are sorted by (rank, start), or by (rank, end) for the path; ranks of a stretch ascend, `begins_ns`
and `ends_ns` have their shape. What a loop finds it adds to the arrays that are given for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streams.compiled import compiled

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@compiled
def subtract_calls(
    rank: Int64Array,
    start: Int64Array,
    end: Int64Array,
    counts: BoolArray,
    ranks: Int64Array,
    begins_ns: Int64Array,
    ends_ns: Int64Array,
    own_ns: Int64Array,
) -> None:
    """Take from each rank's time what its counting entries cover, each moment once."""
    at, n = 0, len(rank)
    for i in range(len(ranks)):
        while at < n and rank[at] < ranks[i]:
            at += 1
        begin, finish, covered = begins_ns[i], ends_ns[i], begins_ns[i]
        while at < n and rank[at] == ranks[i]:
            if counts[at] and begin < end[at] <= finish:
                own_ns[i] -= max(end[at] - max(start[at], covered), 0)
                covered = max(covered, end[at])
            at += 1


@compiled
def walk_back(
    rank: int,
    now_ns: int,
    path_rank: Int64Array,
    path_end: Int64Array,
    path_round: Int64Array,
    round_key: Int64Array,
    last_rank: Int64Array,
    last_start: Int64Array,
    transfer_ns: Int64Array,
    ranks: Int64Array,
    begins_ns: Int64Array,
    ranks_ns: Int64Array,
    keys_ns: Int64Array,
) -> None:
    """Charge an iteration, from `now_ns` on `rank` backwards, to ranks and to the keys of rounds."""
    passed = np.full(len(ranks), len(path_rank))  # entries of a rank from here on have been passed: the walk ends
    while True:
        i = np.searchsorted(ranks, rank)
        if i == len(ranks) or ranks[i] != rank:
            return
        low, high = np.searchsorted(path_rank, rank, "left"), np.searchsorted(path_rank, rank, "right")
        place = min(low + np.searchsorted(path_end[low:high], now_ns, "right"), passed[i]) - 1
        if place < low or path_end[place] <= begins_ns[i]:
            ranks_ns[i] += max(now_ns - begins_ns[i], 0)
            return
        passed[i] = place
        ranks_ns[i] += max(now_ns - path_end[place], 0)
        number = path_round[place]
        keys_ns[round_key[number]] += max(transfer_ns[number], 0)
        rank, now_ns = last_rank[number], last_start[number]


@compiled
def find_inside(
    rank: Int64Array,
    time_ns: Int64Array,
    ranks: Int64Array,
    begins_ns: Int64Array,
    ends_ns: Int64Array,
    inside: BoolArray,
) -> None:
    """Which (rank, time) lie in the stretch: after the rank's begin, and not after its end."""
    if not len(ranks):
        return
    place_of = np.full(ranks[-1] + 1, -1)
    for i in range(len(ranks)):
        place_of[ranks[i]] = i
    for at in range(len(rank)):
        i = place_of[rank[at]] if rank[at] < len(place_of) else -1
        inside[at] = i >= 0 and begins_ns[i] < time_ns[at] <= ends_ns[i]


def warm_up() -> None:
    """Compile, or load what was compiled before, so that no job waits for it."""
    none, one = np.zeros(0, np.int64), np.zeros(1, np.int64)
    nothing = np.zeros(0, np.bool_)
    subtract_calls(none, none, none, nothing, one, one, one, one.copy())
    walk_back(one[0], one[0], none, none, none, none, none, none, none, one, one, one.copy(), none)
    find_inside(none, none, one, one, one, nothing)
