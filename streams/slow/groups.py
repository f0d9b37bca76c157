"""Groups that should be equal: who is slower than its peers (Falcon 4.3)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streams.slow.thresholds import GROUP_FALSE_ALARMS, GROUP_RATIO
from streams.spread import robust_sigma

_MIN_PEERS_FOR_SPREAD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTransfer:
    """How long the transfers of one group take."""

    group: str  # its name, a communicator's id for instance
    kind: Hashable  # only groups of the same kind are compared: same operation, bytes and number of ranks
    transfer_s: float  # a typical transfer; not finite or not positive means unknown
    # the rounds that `transfer_s` is the median of; none: it is taken for exact
    rounds_s: Sequence[float] | npt.NDArray[np.float64] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A group whose transfers take longer than those of its peers; `ratio` is `transfer_s / median_s`."""

    group: str
    kind: Hashable
    transfer_s: float
    median_s: float
    peers: int
    ratio: float


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
            spread = robust_sigma(logs)
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


def _is_slower(rounds_s: Sequence[float] | npt.NDArray[np.float64], median_s: float, chance: float) -> bool:
    """So many rounds lie above the median that a fair coin would give as many with less than `chance`."""
    n = len(rounds_s)
    n_above = int(np.count_nonzero(np.asarray(rounds_s) > median_s))
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
