"""S2: transfers that take longer, and the links among them that can be named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pacehound.model.evidence import Evidence
from pacehound.model.evidence.transfers import (
    MOST_LINKS,
    AboveAlike,
    BothDirections,
    LinksMeet,
    ManyTransfers,
    ShareHost,
    TransferGrew,
)
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.growth import Growth
from streams.slow.attribution.observations import Observations, members_of
from streams.slow.attribution.records import IterationRecord, loses_many
from streams.slow.thresholds import CLOCK_SHARE, MIN_EXPLAINED, MIN_TRANSFER_SHARE, SMALLER_SHARE, STANDS_OUT


@dataclass(frozen=True, slots=True)
class NamedLinks:
    """Links of an S2 or S3: how sure, and why."""

    links: tuple[tuple[int, int], ...]
    is_sure: bool
    candidates: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    unseen: tuple[str, ...]
    growth: float
    ratio: float
    is_late: bool = False  # a rank that came late explains it as well as a link, and better


def slow_transfers(
    slow: Sequence[IterationRecord],
    growth: Growth,
    keys: Mapping[TransferKey, int],
    observed: Observations,
    onset_ns: int,
) -> NamedLinks | None:
    """The communicators or pairs whose transfers take longer, and the links among them that can be named.

    What the kernel counts of connections tells since `onset_ns`.
    """
    if not len(keys):
        return None
    # What lies beside the path costs nothing: only what grew in itself and lengthened the path counts.
    both = np.minimum(growth.transfer, growth.path_transfer)
    names = list(keys)
    link_growth: dict[tuple[int, int], float] = {}
    groups: dict[str, float] = {}
    for number in np.flatnonzero(both >= 0.5 * SMALLER_SHARE * growth.total).tolist():
        key = names[number]
        if isinstance(key, tuple):
            link = (min(key), max(key))
            link_growth[link] = link_growth.get(link, 0.0) + float(both[number])
        else:
            groups[key] = float(both[number])
    best_link = max(link_growth, key=lambda link: (link_growth[link], link), default=None)
    best_group = max(groups, key=lambda name: (groups[name], name), default=None)
    link_ns = link_growth[best_link] if best_link is not None else 0.0
    group_ns = groups[best_group] if best_group is not None else 0.0
    if max(link_ns, group_ns) < SMALLER_SHARE * growth.total:
        return _shared_transfers(slow, growth, keys, observed)
    if best_link is not None and link_ns >= group_ns:
        return _slow_pair(slow, growth, keys, best_link, float(link_ns), observed, onset_ns)
    assert best_group is not None
    return _slow_group(slow, growth, keys, best_group, group_ns, observed, onset_ns)


def stands_out(named: NamedLinks, growth: Growth, keys: Mapping[TransferKey, int], observed: Observations) -> bool:
    """Whether these ranks' transfers have grown by much more than those of as many other ranks."""
    here = frozenset(named.candidates)
    grown_ns: dict[frozenset[int], float] = {}
    for key, number in keys.items():
        ranks = frozenset(members_of(key, observed))
        if len(ranks) == len(here):
            grown_ns[ranks] = max(grown_ns.get(ranks, 0.0), float(growth.transfer[number]))
    here_ns = grown_ns.pop(here, None)
    if here_ns is None or len(grown_ns) < 2:
        return True
    return here_ns >= STANDS_OUT * float(np.median(list(grown_ns.values())))


def _slow_pair(
    slow: Sequence[IterationRecord],
    growth: Growth,
    keys: Mapping[TransferKey, int],
    link: tuple[int, int],
    grown_ns: float,
    observed: Observations,
    onset_ns: int,
) -> NamedLinks:
    seen = sum(1 for r in slow if r.charges.transfers.get(link, 0) or r.charges.transfers.get(link[::-1], 0))
    unseen: list[str] = []
    numbers = [keys[key] for key in (link, link[::-1]) if key in keys]
    before_ns = float(growth.quiet_transfer[numbers].sum())
    evidence: list[Evidence] = [
        TransferGrew(
            link=link,
            communicator="",
            grown_s=grown_ns / 1e9,
            before_s=before_ns / 1e9,
            share=grown_ns / growth.total,
            n_seen=seen,
            n_iterations=len(slow),
            others_s=_others_s(growth, keys, link),
        )
    ]
    ways = growth.transfer[numbers].tolist()
    # An end is learnt when somebody waits for it: a receiver that computes first makes one direction look slow.
    both_ways = len(ways) == 2 and min(ways) >= MIN_TRANSFER_SHARE * max(ways)
    if both_ways:
        evidence.append(BothDirections(link=link))
    uncertain_ns = observed.clocks.uncertainty_between_ns(*link) if len(observed.clocks.ranks) else 0.0
    is_known = uncertain_ns <= CLOCK_SHARE * grown_ns
    if not is_known:
        how = f"{uncertain_ns / 1e6:.1f} ms" if np.isfinite(uncertain_ns) else "an unknown time"
        unseen.append(f"the clocks of rank {link[0]}'s and rank {link[1]}'s hosts are only known to within {how}")
    confirmed = [c for c in observed.connections(link, onset_ns) if c.link == link]
    evidence += [one.connection for one in confirmed]
    evidence += _shared_end(growth, keys, link, observed)
    is_sure = (is_known and both_ways) or any(connection.is_strong for connection in confirmed)
    ratio = 1.0 + grown_ns / max(before_ns, 1.0)
    if not confirmed and (words := _within_a_host(link, observed)):
        return NamedLinks((), False, link, tuple(evidence), (*unseen, words), grown_ns, ratio)
    if loses_many(slow, growth.ranks, link):
        is_sure = False
        unseen.append("many calls of these two ranks are lost")
    return NamedLinks((link,), is_sure, link, tuple(evidence), tuple(unseen), grown_ns, ratio)


def _others_s(
    growth: Growth, keys: Mapping[TransferKey, int], link: tuple[int, int]
) -> tuple[tuple[int, int, float], ...]:
    """By how much the transfers of other pairs have grown, both directions together, the largest first."""
    others: dict[tuple[int, int], float] = {}
    for key, number in keys.items():
        if isinstance(key, tuple) and (pair := (min(key), max(key))) != link:
            others[pair] = others.get(pair, 0.0) + float(growth.transfer[number])
    largest = sorted(others.items(), key=lambda item: (-item[1], item[0]))[:MOST_LINKS]
    return tuple((a, b, grown_ns / 1e9) for (a, b), grown_ns in largest)


def _slow_group(
    slow: Sequence[IterationRecord],
    growth: Growth,
    keys: Mapping[TransferKey, int],
    communicator: str,
    grown_ns: float,
    observed: Observations,
    onset_ns: int,
) -> NamedLinks:
    name, members = observed.communicators.get(communicator, (communicator, ()))
    seen = sum(1 for r in slow if r.charges.transfers.get(communicator, 0))
    before_ns = float(growth.quiet_transfer[keys[communicator]])
    evidence: list[Evidence] = [
        TransferGrew(
            link=None,
            communicator=name,
            grown_s=grown_ns / 1e9,
            before_s=before_ns / 1e9,
            share=grown_ns / growth.total,
            n_seen=seen,
            n_iterations=len(slow),
        )
    ]
    against_peers = [outlier for outlier in observed.outliers() if outlier.communicator == communicator]
    for outlier in against_peers:
        times = outlier.transfer_s / outlier.median_s
        evidence.append(AboveAlike(link=None, communicator=name, ratio=times, n_peers=outlier.peers))
    if (slowest := observed.slow_rounds(communicator)) is not None:
        evidence.append(slowest)
    unseen: list[str] = []
    ratio = 1.0 + grown_ns / max(before_ns, 1.0)
    is_complete = not loses_many(slow, growth.ranks, members)
    if not is_complete:
        unseen.append(f"many calls of {name!r} are lost: whether a rank came late to it is not seen")
    edges = observed.slow_edges(communicator, slow[0].time_ns)
    if edges is not None:
        evidence += edges.evidence
        return NamedLinks(
            edges.links, edges.is_sure and is_complete, members, tuple(evidence), tuple(unseen), grown_ns, ratio
        )
    connections = observed.connections(members, onset_ns)
    if connections:
        first = connections[0]
        evidence.append(first.connection)
        is_sure = first.is_strong and len(connections) == 1 and is_complete
        return NamedLinks((first.link,), is_sure, members, tuple(evidence), tuple(unseen), grown_ns, ratio)
    if observed.rank_came_late(communicator):
        unseen.append(f"whether a link of {name!r} is slow: in its slowest rounds a rank came late, and no link tells")
        return NamedLinks((), False, members, tuple(evidence), tuple(unseen), grown_ns, ratio, is_late=True)
    if len(members) == 2:
        link = (min(members), max(members))
        if words := _within_a_host(link, observed):
            links = (link,) if against_peers else ()  # a busy machine would hold up its other pairs, too
            return NamedLinks(links, False, link, tuple(evidence), (*unseen, words), grown_ns, ratio)
        evidence += _shared_end(growth, keys, link, observed)
        unseen.append("the link itself: neither its rates nor its connections tell; it is the only one between them")
        return NamedLinks((link,), False, link, tuple(evidence), tuple(unseen), grown_ns, ratio)
    evidence += _shared_host(growth, keys, communicator, observed)
    unseen.append("which link of the communicator is slow: neither rates nor connections single one out")
    return NamedLinks((), False, members, tuple(evidence), tuple(unseen), grown_ns, ratio)


def _within_a_host(link: tuple[int, int], observed: Observations) -> str:
    """A sentence where two ranks are on one host: no network lies between them."""
    host = observed.hosts.get(link[0])
    if host is None or observed.hosts.get(link[1]) != host:
        return ""
    return (
        f"what is slow between ranks {link[0]} and {link[1]}: both are on host {host}, where a copy takes longer also "
        "when other work has the processors or the memory"
    )


def _shared_transfers(
    slow: Sequence[IterationRecord], growth: Growth, keys: Mapping[TransferKey, int], observed: Observations
) -> NamedLinks | None:
    """No single transfer explains much, but all of those together that share one rank or host do."""
    names = list(keys)
    grown = [(float(growth.transfer[n]), names[n]) for n in np.flatnonzero(growth.path_transfer > 0).tolist()]
    if growth.path_transfer.clip(min=0).sum() < MIN_EXPLAINED * growth.total or len(grown) < 2:
        return None
    members = [members_of(key, observed) for _, key in sorted(grown, key=lambda item: (-item[0], str(item[1])))[:8]]
    shared = set(members[0]).intersection(*members[1:])
    on_path = float(growth.path_transfer.clip(min=0).sum())
    many = ManyTransfers(n=len(grown), shared_rank=next(iter(shared)) if len(shared) == 1 else None)
    return NamedLinks((), False, tuple(sorted(shared)), (many,), ("which link is slow",), on_path, 1.0)


def _shared_end(
    growth: Growth, keys: Mapping[TransferKey, int], link: tuple[int, int], observed: Observations
) -> list[LinksMeet]:
    """Whether several slow links meet in one rank: that is what its network interface would do."""
    names = list(keys)
    own = [keys[key] for key in (link, link[::-1]) if key in keys]
    own += [n for n in np.flatnonzero(growth.transfer > 0).tolist() if set(members_of(names[n], observed)) == set(link)]
    bar = MIN_EXPLAINED * float(growth.transfer[own].max(initial=0.0))
    ends = [members_of(names[n], observed) for n in np.flatnonzero(growth.transfer >= max(bar, 1.0)).tolist()]
    slow_links = {(min(pair), max(pair)) for pair in ends if len(pair) == 2}
    shared = set(link).intersection(*slow_links) if slow_links else set()
    if len(slow_links) < 2 or len(shared) != 1:
        return []
    return [LinksMeet(rank=next(iter(shared)), links=tuple(sorted(slow_links)))]


def _shared_host(
    growth: Growth, keys: Mapping[TransferKey, int], worst: str, observed: Observations
) -> list[ShareHost]:
    """Whether several slow communicators have one host in common that the quiet ones have not."""
    number = keys[worst]
    bar = MIN_EXPLAINED * float(growth.transfer[number])
    size = len(members_of(worst, observed))
    hosts_slow: list[set[str]] = []
    hosts_quiet: list[set[str]] = []
    for key, index in keys.items():
        ranks = members_of(key, observed)
        if isinstance(key, str) and len(ranks) == size:
            hosts = {observed.hosts[rank] for rank in ranks if rank in observed.hosts}
            (hosts_slow if growth.transfer[index] >= bar else hosts_quiet).append(hosts)
    if len(hosts_slow) < 2:
        return []
    shared = set.intersection(*hosts_slow).difference(*hosts_quiet)
    if len(shared) != 1:
        return []
    return [ShareHost(host=next(iter(shared)), n=len(hosts_slow))]
