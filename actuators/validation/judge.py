"""From what all ranks measured to who is slow: each against the median of its peers, repetition by repetition; pure.

Repetitions are paired: all ranks did the same one at the same moment or one right after the other, so what disturbed
all of them disturbs no verdict. A rank is slow where it took longer than its peers by a quarter in the median, and by
half of that in most repetitions and at its best: what disturbs goes by, and what a rank lacks it lacks each time. Where
only a part of this holds nobody can tell; else it is cleared. A link is slow where its transfers were, and neither end
is slow with its other neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from actuators.validation.passes import Link
from actuators.validation.thresholds import LEAST_PEERS, LEAST_REPETITIONS, LINK_SLOW_RATIO, SLOW_RATIO, SLOW_SHARE

Verdict = Literal["culprit", "cleared", "unclear"]
Times = Sequence[float]
"""Seconds of each repetition; NaN where it did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What one measurement says of one rank or link.

    Attributes
    ----------
    ratio
        Of its median time to the median of its peers'; NaN where it was not measured.
    time_s, peers_s
        Those two.
    reason
        In a sentence.

    """

    verdict: Verdict
    ratio: float
    time_s: float
    peers_s: float
    reason: str


def judge_ranks(times: Mapping[int, Times], slow_ratio: float = SLOW_RATIO) -> dict[int, Judged]:
    """Each rank against the median of the others.

    >>> times = {rank: [0.010] * 10 for rank in range(4)} | {2: [0.020] * 10}
    >>> {rank: one.verdict for rank, one in judge_ranks(times).items()}
    {0: 'cleared', 1: 'cleared', 2: 'culprit', 3: 'cleared'}
    """
    return dict(zip(times, _judge(list(times.values()), slow_ratio), strict=True))


def judge_links(
    times: Mapping[Link, Times], slow_ratio: float = LINK_SLOW_RATIO
) -> tuple[dict[Link, Judged], dict[int, Judged]]:
    """Each link against the median of the others; and the ranks both of whose links are slow, or all.

    A host whose card is slow is slow with everybody: that is the rank, and its links are not named beside it.
    """
    links = dict(zip(times, _judge(list(times.values()), slow_ratio), strict=True))
    slow = [link for link, judged in links.items() if judged.verdict == "culprit"]
    ends = sorted({rank for link in slow for rank in link})
    ranks: dict[int, Judged] = {}
    for rank in ends:
        own = [link for link in links if rank in link]
        if len(own) > 1 and all(links[link].verdict == "culprit" for link in own):
            worst = max((links[link] for link in own), key=lambda judged: judged.ratio)
            ranks[rank] = worst
    # Of a chain of slow links every inner rank is slow with all: nobody can tell which of them it is.
    if any(there in ranks for here in ranks for there in _neighbours(here, links)):
        blurred = {link: _unclear(links[link], "several links side by side are slow") for link in slow}
        return links | blurred, {}
    explained = {
        link: _unclear(links[link], f"rank {rank} is slow with all of its neighbours")
        for rank in ranks
        for link in slow
        if rank in link
    }
    return links | explained, ranks


def _neighbours(rank: int, links: Mapping[Link, Judged]) -> set[int]:
    return {other for link in links if rank in link for other in link} - {rank}


def _judge(all_times: Sequence[Times], slow_ratio: float) -> list[Judged]:
    n_repetitions = max(map(len, all_times), default=0)
    seconds = np.full((len(all_times), n_repetitions), np.nan)
    for row, times in enumerate(all_times):
        seconds[row, : len(times)] = times
    return [_judge_one(seconds[row], np.delete(seconds, row, axis=0), slow_ratio) for row in range(len(seconds))]


def _judge_one(own: npt.NDArray[np.float64], peers: npt.NDArray[np.float64], slow_ratio: float) -> Judged:
    there = np.isfinite(own)
    judged_by = peers[np.isfinite(peers).sum(axis=1) >= LEAST_REPETITIONS]
    if there.sum() < LEAST_REPETITIONS:
        return _untold(f"measured {int(there.sum())} times; {LEAST_REPETITIONS} are needed")
    if len(judged_by) < LEAST_PEERS:
        return _untold(f"{len(judged_by)} peers were measured; {LEAST_PEERS} are needed to say who is slow")
    with np.errstate(all="ignore"):
        beside = np.nanmedian(judged_by, axis=0)
    both = there & np.isfinite(beside)
    ratios = own[both] / beside[both]
    time_s, peers_s = float(np.median(own[both])), float(np.median(beside[both]))
    ratio = float(np.median(ratios))
    halfway = 1 + (slow_ratio - 1) / 2
    share = float(np.mean(ratios > halfway))
    at_best = float(own[there].min() / np.median(np.nanmin(judged_by, axis=1)))
    words = f"{ratio:.2f} times the peers' time ({time_s * 1e3:.2f} ms against {peers_s * 1e3:.2f} ms)"
    is_mostly_slower = share >= SLOW_SHARE
    verdict: Verdict = "cleared"
    if ratio >= slow_ratio and is_mostly_slower and at_best >= halfway:
        verdict = "culprit"
    elif ratio >= slow_ratio or (is_mostly_slower and ratio >= halfway):
        verdict = "unclear"
        words += f", slower in {share:.0%} of {int(both.sum())} repetitions, {at_best:.2f} times at its best"
    return Judged(verdict=verdict, ratio=ratio, time_s=time_s, peers_s=peers_s, reason=words)


def _untold(reason: str) -> Judged:
    nan = float("nan")
    return Judged(verdict="unclear", ratio=nan, time_s=nan, peers_s=nan, reason=reason)


def _unclear(judged: Judged, reason: str) -> Judged:
    return replace(judged, verdict="unclear", reason=f"{judged.reason}; {reason}")
