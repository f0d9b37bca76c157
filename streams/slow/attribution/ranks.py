"""S1 and S3: ranks whose own time has grown, or that launch later where nothing else is seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pacehound.model.evidence import merged
from pacehound.model.evidence.computing import LaunchesLater, NobodyApart, OnPath, OwnTimeGrew
from pacehound.model.evidence.transfers import Connection
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.compared import compared
from streams.slow.attribution.growth import Growth
from streams.slow.attribution.links import NamedLinks
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import (
    Float64Array,
    Int64Array,
    IterationRecord,
    columns_of,
    level_of,
    lost_shares,
)
from streams.slow.attribution.ties import tied_ranks, waits_for_transfers
from streams.slow.attribution.verdict import Attribution, most_culprits
from streams.slow.attribution.work import follows_bytes
from streams.slow.long_iterations import whole_hosts
from streams.slow.thresholds import (
    LOST_LOOKS_LIKE,
    MANY_LOST,
    MIN_EXPLAINED,
    MIN_PERSISTENCE,
    MIN_TRANSFER_SHARE,
    REFERENCE_QUANTILE,
    SMALLER_SHARE,
)
from streams.spread import robust_sigma

SMALLER_RANK, SMALLER_TRANSFER = 1.1, 1.5
"""What the smaller part has to be against its own quiet level: of a rank's own time, of a transfer."""

SIGNIFICANT, BEYOND_DOUBT = 5.0, 8.0
"""Standard errors that a rank's own time has to have grown by: alone, and as the smaller part of S3."""


def slow_ranks(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    growth: Growth,
    named: NamedLinks | None,
    keys: Mapping[TransferKey, int],
    observed: Observations,
) -> Attribution | None:
    """S1 or S3, or why ranks that stand apart cannot be named; nothing where no rank's own time has grown enough."""
    if not len(growth.ranks):
        return None
    place = int(REFERENCE_QUANTILE * (len(growth.own) - 1))
    usual = max(float(np.partition(growth.own, place)[place]), 0.0)
    apart = growth.own - usual
    bar = np.full(len(apart), MIN_EXPLAINED * growth.total)
    errors = np.full(len(apart), SIGNIFICANT)
    if named is not None and named.growth >= MIN_TRANSFER_SHARE * growth.total:
        # Beside a transfer that has grown, one of its ranks may be the smaller part of the whole (S3).
        beside = np.isin(growth.ranks, named.candidates)
        least = np.maximum(SMALLER_SHARE * growth.total, (SMALLER_RANK - 1.0) * growth.quiet_own)
        errors = np.where(beside & (least < bar) & (apart < bar), BEYOND_DOUBT, errors)
        bar = np.where(beside, np.minimum(bar, least), bar)
    chosen = np.flatnonzero(apart >= bar)
    if not len(chosen):
        return None
    columns = columns_of(slow, "own_ns", growth.ranks[chosen])
    quiet_columns = columns_of(quiet, "own_ns", growth.ranks[chosen])
    stands_out = columns - np.nanmean(quiet_columns, axis=0) >= usual + 0.5 * apart[chosen]
    is_persistent = stands_out.mean(axis=0) >= MIN_PERSISTENCE
    follows = follows_bytes(slow, quiet, columns, quiet_columns)
    stands_out = (columns.mean(axis=0) - quiet_columns.mean(axis=0) - usual) >= errors[chosen] * _errors(
        columns, quiet_columns
    )
    chosen = chosen[is_persistent & ~follows & stands_out]
    chosen = chosen[~waits_for_transfers(slow, growth, chosen, keys, observed)]
    if named is not None:
        # A smaller part that half of a communicator's ranks have is what the transfer does to them.
        smaller = apart[chosen] < MIN_EXPLAINED * growth.total
        if smaller.sum() > 1 and 2 * smaller.sum() >= len(named.candidates):
            chosen = chosen[~smaller]
    if not len(chosen):
        if follows.any():
            return Attribution("slow", "unknown", None, evidence=(NobodyApart(growth="follows bytes"),))
        return None
    explained = growth.path[chosen].sum() / growth.total
    culprits = tuple(growth.ranks[chosen].tolist())
    on_path = sum(1 for r in slow if any(r.charges.ranks.get(rank, 0) for rank in culprits))
    if explained * growth.total < bar[chosen].min() or on_path < MIN_PERSISTENCE * len(slow):
        return None
    mean_own = float(growth.own[chosen].mean())
    is_peer = ~np.isin(np.arange(len(growth.own)), chosen)
    evidence = (
        OwnTimeGrew(
            ranks=culprits,
            own_s=mean_own / 1e9,
            peers_s=usual / 1e9,
            iteration_s=growth.total / 1e9,
            rank_s=compared(growth.ranks, growth.own, chosen),
            spread_s=robust_sigma(growth.own[is_peer]) / 1e9,
        ),
        OnPath(ranks=culprits, n_on_path=on_path, n_iterations=len(slow)),
    )
    found = Attribution("slow", "culprit", "S1", culprits, evidence=evidence)
    are_many = len(culprits) > most_culprits(len(growth.ranks))
    if are_many and len(whole_hosts(culprits, observed.hosts, observed.hosts)) != 1:
        many = NobodyApart(growth="is of many ranks", n_ranks=len(culprits), of=len(growth.ranks))
        return Attribution("slow", "unknown", None, candidates=culprits, evidence=(*evidence, many))
    tied = tied_ranks(slow, quiet, growth, chosen, keys, observed)
    if tied:
        words = (
            f"own times of ranks {', '.join(map(str, tied))} go up and down together: they wait for each other in "
            "calls that are not seen, and which of them is slow cannot be told"
        )
        return Attribution("slow", "unknown", None, candidates=culprits, evidence=evidence, unseen=(words,))
    # It does for all what the others have not to do: slow storage may be why, and this rank is not.
    if culprits == (int(growth.ranks[0]),) and (stack := observed.busy_in(culprits[0], slow[0].time_ns)):
        return replace(found, verdict="unknown", culprits=(), candidates=culprits, evidence=(*evidence, *stack))
    if are_many:
        words = f"whether it is the host or the work of its ranks: they are {len(culprits)} of {len(growth.ranks)}"
        found = replace(found, verdict="suspected", unseen=(words,))
    return _with_link(weighed(found, slow, growth.ranks, observed), named, growth, slow)


def _with_link(
    found: Attribution, named: NamedLinks | None, growth: Growth, slow: Sequence[IterationRecord]
) -> Attribution:
    """S3 where the transfers of a culprit's own link have grown by a fair share, too, and not by its own slowness."""
    if named is None or named.growth < SMALLER_SHARE * growth.total:
        return found
    if named.growth < MIN_TRANSFER_SHARE * growth.total and named.ratio < SMALLER_TRANSFER:
        return found
    links = tuple(link for link in named.links if set(link) & set(found.culprits))
    # A communicator of the whole job is nobody's own: whatever slows its transfers, a slow rank among them does.
    is_of_few = 0 < len(named.candidates) < len(growth.ranks)
    is_its_own = bool(links) or (not named.links and is_of_few and set(named.candidates) & set(found.culprits))
    if named.is_late or not is_its_own or _makes_transfers_longer(found, named, growth, slow):
        return replace(found, evidence=merged(found.evidence, named.evidence))
    return replace(
        found,
        cause="S3",
        links=links,
        evidence=merged(found.evidence, named.evidence),
        unseen=(*found.unseen, *named.unseen),
    )


def _makes_transfers_longer(
    found: Attribution, named: NamedLinks, growth: Growth, slow: Sequence[IterationRecord]
) -> bool:
    """Whether the transfers may have grown by the culprits' own slowness alone.

    What is sent to a rank that reads late waits in its connection, and nothing of it is sent again. Where the call of
    a late rank is lost, the others' waiting for it looks like a transfer.
    """
    connections = [one for one in named.evidence if isinstance(one, Connection)]
    if connections:
        return all(one.resent_share is None for one in connections)
    at = np.searchsorted(growth.ranks, found.culprits)
    waited_ns = float((lost_shares(slow, growth.ranks)[at] * growth.own[at]).max())
    return not named.links and named.growth < LOST_LOOKS_LIKE * waited_ns


def weighed(
    found: Attribution, slow: Sequence[IterationRecord], ranks: Int64Array, observed: Observations
) -> Attribution:
    """Lost rows weaken a name; what the culprits' own GPUs say strengthens it again."""
    unseen: tuple[str, ...] = ()
    lost = lost_shares(slow, ranks)
    at = np.searchsorted(ranks, found.culprits)
    if float(lost[at].max(initial=0.0)) > max(MANY_LOST, 3 * float(np.median(lost)) + 0.05):
        # Where a call is not seen its waiting looks like the rank's own time.
        unseen = (
            f"{lost[at].max():.0%} of the calls of a named rank are lost: what it waited for in them is not seen",
        )
    if float(lost[at].max(initial=0.0)) > 0.0 and _share_a_host(found.culprits, observed):
        # Own times that move together would tell it, but lost calls move them, too.
        unseen = (*unseen, "whether ranks of one host wait for each other in calls that are not seen: calls were lost")
    if observed.replaying & set(found.culprits):
        unseen = (*unseen, "whether they wait for a peer in a replayed graph: it would look like their own time")
    problems = {rank: observed.gpu_problems(rank) for rank in found.culprits}
    of_gpus = tuple(problem for rank in found.culprits for problem in problems[rank])
    is_weak = bool(unseen) and not all(problems.values())
    return replace(
        found,
        verdict="suspected" if is_weak else found.verdict,
        evidence=merged(found.evidence, of_gpus),
        unseen=(*found.unseen, *unseen),
    )


def _share_a_host(ranks: Sequence[int], observed: Observations) -> bool:
    hosts = [observed.hosts[rank] for rank in ranks if rank in observed.hosts]
    return len(set(hosts)) < len(hosts)


def _errors(slow_own: Float64Array, quiet_own: Float64Array) -> Float64Array:
    """Standard error of each rank's growth; shapes `(n_iterations, n_ranks)`."""
    variance = np.nanvar(slow_own, axis=0) / len(slow_own) + np.nanvar(quiet_own, axis=0) / len(quiet_own)
    errors: Float64Array = np.sqrt(variance)
    return errors


def late_launch(slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], total_ns: float) -> Attribution:
    """Launches alone: a rank whose first call of an iteration comes later than it did, while its peers' do not."""
    unseen = ("no call with a start and an end was seen in these iterations: whose delay it is is unknown",)
    ranks = slow[-1].ranks
    if any(r.first_launch_ns is None for r in (*slow, *quiet)) or len(ranks) < 2:
        return Attribution("slow", "unknown", None, unseen=unseen)
    later = np.nan_to_num(level_of(slow, "first_launch_ns", ranks) - level_of(quiet, "first_launch_ns", ranks))
    place = int(REFERENCE_QUANTILE * (len(later) - 1))
    apart = later - max(float(np.partition(later, place)[place]), 0.0)
    chosen = np.flatnonzero(apart >= MIN_EXPLAINED * total_ns)
    if not len(chosen) or len(chosen) > most_culprits(len(ranks)):
        return Attribution("slow", "unknown", None, unseen=unseen)
    late = tuple(ranks[chosen].tolist())
    launches = LaunchesLater(ranks=late, later_s=float(apart[chosen].mean()) / 1e9)
    return Attribution("slow", "suspected", None, late, evidence=(launches,), unseen=unseen)
