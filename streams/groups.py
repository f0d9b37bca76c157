"""Groups that should be equal: transfer times of rounds, and who is slower than its peers (Falcon 4.3)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]

THRESHOLD = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTransfer:
    """How long the transfers of one group take.

    Attributes
    ----------
    group
        Its name, a communicator's id for instance.
    kind
        Only groups of the same kind are compared: same operation, bytes and number of ranks.
    transfer_s
        A typical transfer, for instance `typical_transfer_s`; not finite or not positive means unknown.

    """

    group: str
    kind: Hashable
    transfer_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A group whose transfers take longer than those of its peers; `ratio` is `transfer_s / median_s`."""

    group: str
    kind: Hashable
    transfer_s: float
    median_s: float
    peers: int
    ratio: float


def transfer_times_s(start_ns: Int64Array, end_ns: Int64Array) -> npt.NDArray[np.float64]:
    """Transfer time of each round: its last end minus the latest start over its ranks.

    Waiting for a late rank is not transfer: nothing moves before the last one has started.

    Parameters
    ----------
    start_ns, end_ns
        Shape `(n_rounds, n_ranks)`, 0 where unknown, on one clock.

    Returns
    -------
    Seconds, shape `(n_rounds,)`; NaN where a start is missing (the latest one is then unknown), where no end is
    known, or where the clocks contradict each other (the end does not lie behind the start).

    Examples
    --------
    >>> transfer_times_s(np.array([[10, 40], [10, 0]]) * 10**9, np.array([[50, 50], [50, 50]]) * 10**9).tolist()
    [10.0, nan]

    """
    if start_ns.shape != end_ns.shape or start_ns.ndim != 2:
        raise ValueError(
            f"starts and ends must have one shape (n_rounds, n_ranks), got {start_ns.shape}, {end_ns.shape}"
        )
    if start_ns.shape[1] == 0:
        return np.full(start_ns.shape[0], np.nan)
    transfer_ns = end_ns.max(axis=1) - start_ns.max(axis=1)
    is_known = (start_ns > 0).all(axis=1) & (end_ns > 0).any(axis=1) & (transfer_ns > 0)
    return np.where(is_known, transfer_ns / 1e9, np.nan)


def typical_transfer_s(start_ns: Int64Array, end_ns: Int64Array, *, min_rounds: int = 8) -> float:
    """Median transfer time over rounds of one kind; NaN with fewer than `min_rounds` known ones."""
    times_s = transfer_times_s(start_ns, end_ns)
    known = times_s[np.isfinite(times_s)]
    return float(np.median(known)) if len(known) >= min_rounds else math.nan


def outliers(groups: Sequence[GroupTransfer], *, threshold: float = THRESHOLD) -> list[Outlier]:
    """Groups above `threshold` times the median of their peers: the other groups of the same kind.

    The group itself is left out of the median: with two groups the median of both would hide what is up to 20 %
    slower, and with three it would be pulled. A group without peers is compared with nothing. With two groups a
    slow one is told from a fast one only by the sign: say `suspected` there.

    Returns
    -------
    The worst first; equal ratios in the order of their names.

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
        medians = _medians_of_others(np.array([member.transfer_s for member in members], np.float64))
        for member, median_s in zip(members, medians.tolist(), strict=True):
            ratio = member.transfer_s / median_s
            if ratio > threshold:
                found.append(
                    Outlier(
                        group=member.group,
                        kind=kind,
                        transfer_s=member.transfer_s,
                        median_s=median_s,
                        peers=len(members) - 1,
                        ratio=ratio,
                    )
                )
    return sorted(found, key=lambda outlier: (-outlier.ratio, outlier.group))


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
