"""Ranks and hosts whose own time stays above that of their peers, and who is named for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from pacehound.model.evidence.computing import OnPath, OwnTimeApart
from streams.slow.always.found import AlwaysSlow, least_cost_ns, split_of, typical_step_ns
from streams.slow.always.peers import Parts
from streams.slow.always.standing_apart import excess_of, usual_of_peers
from streams.slow.attribution.compared import compared
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.ranks import weighed
from streams.slow.attribution.records import Float64Array, IterationRecord, columns_of
from streams.slow.attribution.verdict import Attribution, most_culprits
from streams.slow.thresholds import (
    HOST_SHARE,
    LATELY,
    MIN_EXPLAINED,
    MIN_PEERS_OF_CULPRIT,
    MIN_SHARE_OF_PART,
    NEARLY,
    PERSISTS,
    TIED,
)
from streams.spread import MAD_TO_SIGMA

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class AgainstPeers:
    """All ranks of a job against their peers; arrays have one entry per rank."""

    level: Float64Array
    usual: Float64Array
    is_apart: BoolArray
    over_time: Float64Array  # shape `(n_iterations, n_ranks)`


def slow_ranks(
    records: Sequence[IterationRecord], parts: Parts, observed: Observations, min_change: float
) -> AlwaysSlow | None:
    """Those that lengthen the iterations by `min_change`; nothing where there are none, or the machine may be why."""
    ranks, least_ns = records[-1].ranks, least_cost_ns(records, min_change)
    against = _against_peers(records, parts, MIN_SHARE_OF_PART * least_ns)
    if against is None:
        return None
    hosts = np.array([observed.hosts.get(rank, "") for rank in parts.ranks])
    is_apart = against.is_apart & (against.level >= MIN_SHARE_OF_PART * least_ns)
    slow_hosts = _slow_hosts(is_apart, against, hosts)
    chosen = _chosen(is_apart, slow_hosts, against, parts, hosts)
    culprits = ranks[chosen].tolist()
    charged_ns = np.array([[record.charges.ranks.get(rank, 0) for rank in culprits] for record in records])
    n_on_path = int(charged_ns.any(axis=1).sum())
    own_ns = np.maximum(against.over_time[:, chosen] + against.usual[chosen], 1.0)
    share = np.clip(against.over_time[:, chosen] / own_ns, 0.0, 1.0)
    # In the median, so that they are on the path of most iterations; it leads over whoever pauses in the others.
    cost_ns = float(np.median((charged_ns * share).sum(axis=1)))
    if not culprits or cost_ns < least_ns:
        return None
    found = _named_ranks(culprits, chosen, against, parts, slow_hosts, len(records), n_on_path)
    lack_of_it = MIN_EXPLAINED * cost_ns / typical_step_ns(records)
    weighed_found = _weighed_by_processors(weighed(found, records, ranks, observed), parts.ranks, observed, lack_of_it)
    if weighed_found is None:
        return None
    return AlwaysSlow(weighed_found, cost_ns, float(against.level[chosen].mean()))


def apart_since(records: Sequence[IterationRecord], parts: Parts, culprits: Sequence[int]) -> int:
    """From which iteration on they are as far above the others of their parts as they are now.

    The split of all of them that leaves the least squares; 0 where they were half as far above before it, too.
    """
    ranks = records[-1].ranks
    own_ns = columns_of(records, "own_ns", ranks)
    is_named, excess = np.isin(ranks, culprits), np.zeros(len(records))
    for at in np.flatnonzero(is_named).tolist():
        inside = parts.of_part(int(parts.part[at]))
        excess += own_ns[:, at] - np.median(own_ns[:, inside[~is_named[inside]]], axis=1)
    excess = np.nan_to_num(excess)
    most = 2.0 * float(np.median(excess[-LATELY:]))  # pauses do not decide
    excess = np.clip(excess, -most, most)
    at = split_of(excess, len(excess))
    return 0 if excess[:at].mean() >= PERSISTS * excess[at:].mean() else at


def _chosen(
    is_apart: BoolArray,
    slow_hosts: Sequence[str],
    against: AgainstPeers,
    parts: Parts,
    hosts: npt.NDArray[np.str_],
) -> BoolArray:
    """Of those that stand apart, and of slow hosts, the ranks of which nothing else is the reason."""
    is_of_host = np.isin(hosts, slow_hosts)
    chosen = is_apart | is_of_host
    for at in np.flatnonzero(chosen).tolist():
        with_it = is_of_host & (hosts == hosts[at])
        chosen[at] = _stands_apart_everywhere(at, against, parts, with_it) and not _is_its_data(
            at, against, parts, hosts
        )
    for number in np.unique(parts.part[chosen]).tolist():
        inside = parts.of_part(number)
        if chosen[inside].sum() > _most_of(len(inside)):
            chosen[inside] = False
    return chosen


def _against_peers(records: Sequence[IterationRecord], parts: Parts, least_level_ns: float) -> AgainstPeers | None:
    """Own time is known within bounds: in both of them a slow rank stands apart, and the smaller one counts.

    Nothing where none is known, or where nobody lies above its peers by so much.
    """
    ranks = records[-1].ranks
    least = columns_of(records, "own_ns", ranks)
    most = columns_of(records, "own_most_ns", ranks)
    if not (np.isfinite(least).all() and np.isfinite(most).all()):
        return None
    of_parts = [parts.of_part(number) for number in np.unique(parts.part).tolist()]
    beyond = [np.median(least[:, at] - usual_of_peers(least[:, at]), axis=0).max() for at in of_parts]
    if max(beyond) < least_level_ns:
        return None
    n, m = least.shape
    level, usual = np.zeros(m), np.zeros(m)
    is_apart, over_time = np.zeros(m, np.bool_), np.zeros((n, m))
    for at in of_parts:
        excess = excess_of(least[:, at])
        apart = excess.is_apart(m)
        if apart.any():
            other = excess_of(most[:, at])
            apart &= other.is_apart(m)
            if float(other.level[apart].sum()) < float(excess.level[apart].sum()):
                excess = other
        level[at], usual[at], is_apart[at], over_time[:, at] = excess.level, excess.usual, apart, excess.over_time
    return AgainstPeers(level, usual, is_apart, over_time)


def _slow_hosts(chosen: BoolArray, against: AgainstPeers, hosts: npt.NDArray[np.str_]) -> tuple[str, ...]:
    """Hosts most of whose ranks stand apart, and none of them not at all."""
    found = []
    for host in np.unique(hosts[chosen]).tolist():
        inside = hosts == host
        relative = against.level / np.maximum(against.usual, 1.0)
        least = PERSISTS * float(np.median(relative[inside & chosen]))
        if host and inside.sum() > 1 and chosen[inside].mean() >= HOST_SHARE and (relative[inside] >= least).all():
            found.append(host)
    return tuple(found)


def _stands_apart_everywhere(at: int, against: AgainstPeers, parts: Parts, beside: BoolArray) -> bool:
    """In each communicator of its stage, but for those who are slow with it.

    Where a whole communicator is late it is the part that it plays, its sequences, or a call between its ranks that is
    not seen; where all ranks of one place in their communicators are, it is what is done there.
    """
    for members in parts.communicators:
        if at not in members:
            continue
        others = [one for one in members.tolist() if one != at and not beside[one]]
        if others and against.level[at] - np.median(against.level[others]) < PERSISTS * against.level[at]:
            return False
    return True


def _is_its_data(at: int, against: AgainstPeers, parts: Parts, hosts: npt.NDArray[np.str_]) -> bool:
    """The other stages of its pipeline, on other hosts, take longer by as much, as over long sequences."""
    others = np.flatnonzero((parts.pipeline == parts.pipeline[at]) & (parts.part != parts.part[at]))
    others = others[hosts[others] != hosts[at]] if hosts[at] else others
    relative = against.level / np.maximum(against.usual, 1.0)
    return bool(len(others)) and float(np.median(relative[others])) >= PERSISTS * float(relative[at])


def _most_of(n_peers: int) -> int:
    """So many of a part may be slow; of more it is not said that they are slow, and not that the others are fast."""
    return max(1, min(most_culprits(n_peers), (n_peers - 1) // 2))


def _named_ranks(
    culprits: Sequence[int],
    chosen: BoolArray,
    against: AgainstPeers,
    parts: Parts,
    slow_hosts: Sequence[str],
    n_iterations: int,
    n_on_path: int,
) -> Attribution:
    """The answer that their own times give."""
    peers = [int((parts.part == number).sum()) - 1 for number in np.unique(parts.part[chosen]).tolist()]
    own_ns, usual_ns = (float(values[chosen].mean()) for values in (against.level + against.usual, against.usual))
    all_ns = against.level + against.usual
    evidence = (
        OwnTimeApart(
            ranks=tuple(culprits),
            own_s=own_ns / 1e9,
            peers_s=usual_ns / 1e9,
            n_peers=min(peers),
            spread_s=_spread_ns(chosen, against, parts) / 1e9,
            hosts=tuple(slow_hosts),
            rank_s=compared(np.array(parts.ranks), all_ns, np.flatnonzero(chosen)),
        ),
        OnPath(ranks=tuple(culprits), n_on_path=n_on_path, n_iterations=n_iterations, of="all"),
    )
    unseen = []
    if min(peers) < MIN_PEERS_OF_CULPRIT:
        unseen.append("which one of two ranks is as it should be: there are no more of its kind")
    if list(culprits) == [parts.ranks[0]] and not slow_hosts:
        unseen.append(f"whether rank {culprits[0]} does more than its peers: the first rank often logs and evaluates")
    if len(culprits) > 1 and _move_together(chosen, against, parts):
        unseen.append("whether these ranks wait for each other in calls that are not seen: they move together")
    verdict: Literal["culprit", "suspected"] = "suspected" if unseen else "culprit"
    return Attribution("slow", verdict, "S1", tuple(culprits), evidence=evidence, unseen=tuple(unseen))


def _spread_ns(chosen: BoolArray, against: AgainstPeers, parts: Parts) -> float:
    """Of the levels of those that are not chosen, about the median of their part, as of a normal distribution."""
    own_ns, apart = against.level + against.usual, []
    for number in np.unique(parts.part[chosen]).tolist():
        quiet = own_ns[(parts.part == number) & ~chosen]
        apart.append(np.abs(quiet - np.median(quiet)) if len(quiet) else quiet)
    together = np.concatenate(apart)
    return MAD_TO_SIGMA * float(np.median(together)) if len(together) else 0.0


def _move_together(chosen: BoolArray, against: AgainstPeers, parts: Parts) -> bool:
    """No communicator of few ranks ties those that are chosen, and own times of most go up and down with another's."""
    at = np.flatnonzero(chosen)
    n_part = max(int((parts.part == number).sum()) for number in np.unique(parts.part[at]).tolist())
    if any(len(members) < n_part and np.isin(members, at).sum() > 1 for members in parts.communicators):
        return False
    moves = against.over_time[:, at] - against.level[at]
    correlation = np.asarray(np.corrcoef(moves, rowvar=False))
    np.fill_diagonal(correlation, -1.0)
    return float(np.median(correlation.max(axis=1))) >= TIED


def _weighed_by_processors(
    found: Attribution, ranks: Sequence[int], observed: Observations, least_share: float
) -> Attribution | None:
    """The answer on hosts that lack processors; nothing where that is the reason, or cannot be known yet.

    They can be where a culprit lacks `least_share` of each second. They are where it lacks more than the others of its
    host, while these lack them, too: on which of them it shows is chance. Where all lack as much, that does not explain
    why one is slow, and it is suspected.
    """
    hosts = {observed.hosts.get(rank) for rank in found.culprits}
    beside = [rank for rank in ranks if observed.hosts.get(rank) in hosts and rank not in found.culprits]
    lacked = observed.lacked((*found.culprits, *beside))
    if lacked is None:
        return None
    theirs = max((lacked[rank] for rank in found.culprits if rank in lacked), default=0.0)
    others = float(np.median([lacked[rank] for rank in beside if rank in lacked] or [0.0]))
    if theirs < least_share or others < NEARLY * least_share:
        return found
    if theirs - others >= NEARLY * least_share:
        return None
    words = f"whether it is the machine: all ranks of the host lack processors for {others:.2f} s of each second"
    return replace(found, verdict="suspected", unseen=(*found.unseen, words))
