"""Iterations that are long now and then while most take what they took: which they are, and whether it is chance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from streams.slow.attribution.records import IterationRecord, columns_of, level_of
from streams.slow.thresholds import ALIKE, BURST, MOST_BY_CHANCE, MOST_OF_LOSS

MORE = 4
"""They are asked about again when one in so many more have come (chosen: bounds the work)."""


def typical_s(records: Sequence[IterationRecord]) -> float:
    """What most iterations take."""
    return float(np.median([record.step_time_s for record in records]))


def lossy(records: Sequence[IterationRecord], usual_s: float, since_step: int = 0) -> list[IterationRecord]:
    """Those since a step in which most of the time was lost; of such as are hardly longer there are many."""
    longer = [r for r in records if r.step >= since_step and r.step_time_s >= BURST * usual_s]
    lost_s = np.sort([record.step_time_s - usual_s for record in longer])[::-1]
    if not longer:
        return []
    least_s = float(lost_s[np.searchsorted(lost_s.cumsum(), MOST_OF_LOSS * lost_s.sum())])
    return [record for record in longer if record.step_time_s - usual_s >= ALIKE * least_s]


def stretches(records: Sequence[IterationRecord]) -> np.ndarray:
    """Where each stretch of iterations in a row begins: one pause may be seen in several."""
    steps = np.array([record.step for record in records])
    begins: np.ndarray = np.flatnonzero(np.diff(steps, prepend=steps[0] - 2) > 1)
    return begins


def may_be_chance(
    culprits: Sequence[int],
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    hosts: Mapping[int, str],
) -> bool:
    """Whether of ranks that pause now and then, all alike, some would have this part in so few slow stretches.

    The probability that chance gives them as many as they have, or more, for any ranks that are as many (binomial); of
    all ranks of a host, for any host.

    >>> by_chance(7, 7, 1 / 4, 1, 4) > MOST_BY_CHANCE, by_chance(8, 8, 1 / 4, 1, 4) > MOST_BY_CHANCE
    (True, False)
    >>> by_chance(9, 10, 1_000 / 4_096, 1_000, 4_096)
    1.0
    """
    if not all(record.sees_transfers for record in slow):
        return False
    ranks = slow[-1].ranks
    grown = np.nan_to_num(columns_of(slow, "own_ns", ranks) - level_of(quiet, "own_ns", ranks))
    whose = ranks[np.argmax(np.add.reduceat(grown, stretches(slow)), axis=1)]
    n_theirs = int(np.isin(whose, culprits).sum())
    n_chosen, n_all = _alike(culprits, ranks.tolist(), hosts)
    return by_chance(n_theirs, len(whose), len(culprits) / len(ranks), n_chosen, n_all) > MOST_BY_CHANCE


def _alike(culprits: Sequence[int], ranks: Sequence[int], hosts: Mapping[int, str]) -> tuple[int, int]:
    """How many of how many are chosen: hosts where whole ones are, for their ranks pause together, else ranks.

    >>> hosts = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    >>> _alike((2, 3), range(6), hosts), _alike((3,), range(6), hosts), _alike((2, 3, 4), range(6), hosts)
    ((1, 3), (1, 6), (3, 6))
    """
    if theirs := whole_hosts(culprits, ranks, hosts):
        return len(theirs), len({_host_of(rank, hosts) for rank in ranks})
    return len(culprits), len(ranks)


def whole_hosts(chosen: Sequence[int], ranks: Iterable[int], hosts: Mapping[int, str]) -> frozenset[str]:
    """The hosts that some of the ranks are, all of each; nothing where they are a part of one.

    >>> hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    >>> whole_hosts((2, 3), range(4), hosts), whole_hosts((1, 2, 3), range(4), hosts)
    (frozenset({'b'}), frozenset())
    """
    theirs = frozenset(_host_of(rank, hosts) for rank in chosen)
    return theirs if sum(_host_of(rank, hosts) in theirs for rank in ranks) == len(chosen) else frozenset()


def _host_of(rank: int, hosts: Mapping[int, str]) -> str:
    return hosts.get(rank, f"rank {rank}")


def by_chance(n_theirs: int, n: int, share: float, n_chosen: int, n_all: int) -> float:
    """For `n_theirs` of `n`, where a share is theirs by chance, any of as many as are `n_chosen` of `n_all`."""
    tail = sum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n_theirs, n + 1))
    if tail <= 0.0:
        return 0.0
    # Of a thousand ranks more sets can be chosen than a float can count.
    choices = math.lgamma(n_all + 1) - math.lgamma(n_chosen + 1) - math.lgamma(n_all - n_chosen + 1)
    return math.exp(min(choices + math.log(tail), 0.0))
