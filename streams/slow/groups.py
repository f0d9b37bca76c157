"""Groups that should be equal: transfer times of rounds, and who is slower than its peers (Falcon 4.3)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streams.slow.thresholds import GROUP_FALSE_ALARMS, GROUP_RATIO

Int64Array = npt.NDArray[np.int64]


_MIN_PEERS_FOR_SPREAD = 8
ENDS_FOR_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTransfer:
    """How long the transfers of one group take."""

    group: str  # its name, a communicator's id for instance
    kind: Hashable  # only groups of the same kind are compared: same operation, bytes and number of ranks
    transfer_s: float  # a typical transfer; not finite or not positive means unknown
    # the rounds that `transfer_s` is the median of; none: it is taken for exact
    rounds_s: tuple[float, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A group whose transfers take longer than those of its peers; `ratio` is `transfer_s / median_s`."""

    group: str
    kind: Hashable
    transfer_s: float
    median_s: float
    peers: int
    ratio: float


def transfer_times_s(start_ns: Int64Array, end_ns: Int64Array, *, op: str = "") -> npt.NDArray[np.float64]:
    """Transfer time of each round: its last end minus the latest start over its ranks.

    Waiting for a late rank is not transfer: nothing moves before the last one has started.

    Clocks of two hosts may be tens of milliseconds apart, many times a transfer, and the latest start on one clock
    less than an end on another says nothing then. Where no rank can end before the last one has started (all_reduce,
    all_gather, reduce_scatter, all_to_all, barrier) the last one to start waits the least, so that the shortest
    duration over the ranks is the transfer time, each duration on a clock of its own. It lies between the first and
    the last end minus the latest start. For rooted operations and sends no such thing holds: a root may leave at
    once. There the starts and ends of all ranks have to be on one clock, and are taken as if they were.

    Starts and ends have shape `(n_rounds, n_ranks)`, 0 where unknown; `op` is the operation of all the rounds, and an
    unknown one needs one clock. The times have shape `(n_rounds,)`: NaN where a start is missing (the latest one is
    then unknown), where no end is known, or where the clocks contradict each other (the end does not lie behind the
    start).

    Examples
    --------
    >>> transfer_times_s(np.array([[10, 40], [10, 0]]) * 10**9, np.array([[50, 50], [50, 50]]) * 10**9).tolist()
    [10.0, nan]

    The second host's clock is 60 s ahead:

    >>> transfer_times_s(np.array([[10, 100]]) * 10**9, np.array([[50, 110]]) * 10**9, op="all_reduce").tolist()
    [10.0]
    """
    if start_ns.shape != end_ns.shape or start_ns.ndim != 2:
        raise ValueError(
            f"starts and ends must have one shape (n_rounds, n_ranks), got {start_ns.shape}, {end_ns.shape}"
        )
    if start_ns.shape[1] == 0:
        return np.full(start_ns.shape[0], np.nan)
    if op in ENDS_FOR_ALL:
        durations_ns = np.where(end_ns > 0, end_ns - start_ns, np.iinfo(np.int64).max)
        transfer_ns = durations_ns.min(axis=1)
    else:
        transfer_ns = end_ns.max(axis=1) - start_ns.max(axis=1)
    is_known = (start_ns > 0).all(axis=1) & (end_ns > 0).any(axis=1) & (transfer_ns > 0)
    return np.where(is_known, transfer_ns / 1e9, np.nan)


def outliers(groups: Sequence[GroupTransfer], *, threshold: float = GROUP_RATIO) -> list[Outlier]:
    """Groups above `threshold` times the median of their peers: the other groups of the same kind.

    The group itself is left out of the median: with two groups the median of both would hide what is up to 20 %
    slower, and with three it would be pulled. A group without peers is compared with nothing. With two groups a
    slow one is told from a fast one only by the sign: say `suspected` there.

    The ratio alone is not enough where there are many groups: the largest of 1,000 medians of eight noisy rounds
    lies above 1.1 by chance, and among hosts that differ by 5 % one in 40 groups does for good. So a group is an
    outlier only if, besides,

    - more of its rounds lie above its peers' median than a fair coin would give once in `GROUP_FALSE_ALARMS` over all
      groups of the kind (a sign test: nothing is assumed of the noise but that rounds are independent). Eight
      rounds are enough for two groups, 17 for 1,000.
    - among eight peers or more it lies further from their median, in logarithms, than the farthest of so many
      normal values would: `(1 + sqrt(2 log n))` times their spread (1.48 x the median absolute deviation, which
      up to a third of slow groups do not carry away).

    What it cannot do: find a minority of fast groups, or a majority of slow ones.

    The worst comes first; equal ratios are in the order of their names.

    Raises
    ------
    ValueError
        `threshold` is not above 1.

    Examples
    --------
    >>> groups = [GroupTransfer(group=f"dp{i}", kind="all_reduce", transfer_s=t) for i, t in enumerate([1, 1.3, 1.02])]
    >>> [(o.group, round(o.ratio, 2)) for o in outliers(groups)]
    [('dp1', 1.29)]
    """
    if not threshold > 1.0:
        raise ValueError(f"threshold must be above 1, got {threshold}")
    kinds: dict[Hashable, list[GroupTransfer]] = {}
    for group in groups:
        if math.isfinite(group.transfer_s) and group.transfer_s > 0.0:
            kinds.setdefault(group.kind, []).append(group)
    found = []
    for kind, members in kinds.items():
        if len(members) < 2:
            continue
        transfers_s = np.array([member.transfer_s for member in members], np.float64)
        medians = _medians_of_others(transfers_s)
        above = np.flatnonzero(transfers_s / medians > threshold)
        if len(members) > _MIN_PEERS_FOR_SPREAD:
            # One member more or less moves the spread of so many little; it is taken over all of them.
            logs = np.log(transfers_s)
            spread = 1.4826 * float(np.median(np.abs(logs - np.median(logs))))
            reach = (1.0 + math.sqrt(2.0 * math.log(len(members)))) * spread
            above = above[np.log(transfers_s[above] / medians[above]) > reach]
        for index in above.tolist():
            member, median_s = members[index], float(medians[index])
            if not _is_slower(member.rounds_s, median_s, GROUP_FALSE_ALARMS / len(members)):
                continue
            found.append(
                Outlier(
                    group=member.group,
                    kind=kind,
                    transfer_s=member.transfer_s,
                    median_s=median_s,
                    peers=len(members) - 1,
                    ratio=member.transfer_s / median_s,
                )
            )
    return sorted(found, key=lambda outlier: (-outlier.ratio, outlier.group))


def _is_slower(rounds_s: Sequence[float], median_s: float, chance: float) -> bool:
    """So many rounds lie above the median that a fair coin would give as many with less than `chance`."""
    n = len(rounds_s)
    n_above = sum(time_s > median_s for time_s in rounds_s)
    at_least = sum(math.comb(n, k) for k in range(n_above, n + 1))
    return n == 0 or at_least / 2**n < chance


def _medians_of_others(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """For each value the median of all the others, in one sort; shape `(n,)`, n >= 2."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    position = np.empty(len(values), np.int64)
    position[order] = np.arange(len(values))
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2  # middle positions among the n - 1 others
    lower = ordered[np.where(position <= low, low + 1, low)]
    upper = ordered[np.where(position <= high, high + 1, high)]
    medians: npt.NDArray[np.float64] = 0.5 * (lower + upper)
    return medians
