"""Communicators and pairs whose transfers take longer than those of their kind, and the link where it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pacehound.model.evidence.transfers import AboveAlike, EdgeRates
from streams.rounds.round_columns import TransferKey
from streams.slow.always.found import AlwaysSlow, least_cost_ns
from streams.slow.always.peers import Parts
from streams.slow.attribution.growth import Growth
from streams.slow.attribution.links import slow_transfers
from streams.slow.attribution.observations import Observations, members_of
from streams.slow.attribution.records import Float64Array, IterationRecord
from streams.slow.attribution.verdict import Attribution
from streams.slow.groups import GroupTransfer, outliers
from streams.slow.thresholds import GROUP_RATIO, MIN_PEERS_OF_CULPRIT, PERIODIC_SHARE, PERSISTS, QUARTERS


@dataclass(frozen=True, slots=True)
class _Apart:
    """A communicator, or the two ways of a pair, whose transfers take longer than those of its kind."""

    keys: tuple[TransferKey, ...]
    took_ns: Float64Array  # in each iteration
    usual_ns: float  # what those of its kind take
    n_peers: int  # none: it is held against what its other links would let it take

    @property
    def ratio(self) -> float:
        return float(np.median(self.took_ns)) / self.usual_ns

    @property
    def share(self) -> float:
        """Of its time, what it takes longer."""
        return 1.0 - 1.0 / self.ratio

    def lasts(self) -> bool:
        """Since the first iteration, and in most of them."""
        bar_ns = (1.0 + PERSISTS * (self.ratio - 1.0)) * self.usual_ns
        quarters = [float(np.median(quarter)) for quarter in np.array_split(self.took_ns, QUARTERS)]
        is_slow_in_most = float((self.took_ns >= bar_ns).mean()) >= PERIODIC_SHARE
        return self.ratio > GROUP_RATIO and min(quarters) >= bar_ns and is_slow_in_most

    def charged_ns(self, records: Sequence[IterationRecord]) -> Float64Array:
        """Its time on the critical path of each iteration."""
        return np.array([sum(r.charges.transfers.get(key, 0) for key in self.keys) for r in records], np.float64)


def transfers_ns(records: Sequence[IterationRecord], n_keys: int) -> Float64Array:
    """The time of each communicator and pair in each iteration, shape `(n_iterations, n_keys)`."""
    took_ns = np.zeros((len(records), n_keys))
    for line, record in enumerate(records):
        took_ns[line, : len(record.transfer_ns)] = record.transfer_ns
    return took_ns


def slow_links(
    records: Sequence[IterationRecord],
    keys: Mapping[TransferKey, int],
    parts: Parts,
    observed: Observations,
    min_change: float,
) -> AlwaysSlow | None:
    """The one that lengthens the iterations most, by `min_change` at least; nothing where there is none."""
    took_ns = transfers_ns(records, len(keys))
    apart = [
        *_slow_communicators(took_ns, keys, observed),
        *_lone_communicators(took_ns, keys, observed),
        *_slow_pairs(took_ns, keys, parts, observed),
    ]
    costs = [
        (float(np.median(one.charged_ns(records))) * one.share, str(one.keys), one) for one in apart if one.lasts()
    ]
    cost_ns, _, worst = max(costs, key=lambda cost: cost[:2], default=(0.0, "", None))
    if worst is None or cost_ns < least_cost_ns(records, min_change):
        return None
    growth = _as_growth([one for _, _, one in costs], cost_ns, records, took_ns, keys)
    # There is no time before: what has been counted since the first step is compared among those of a kind.
    since_start = replace(
        observed,
        slow_edges=lambda communicator, _: observed.uneven_edges(communicator, _alike(communicator, observed)),
    )
    named = slow_transfers(records, growth, keys, since_start, onset_ns=0)
    if named is None:
        return None
    never = () if worst.n_peers else ("whether that link was ever as fast as the others: nothing came before",)
    is_sure = named.is_sure and worst.n_peers >= MIN_PEERS_OF_CULPRIT
    verdict: Literal["culprit", "suspected"] = "culprit" if is_sure else "suspected"
    found = Attribution(
        "slow",
        verdict if named.links else "unknown",
        "S2",
        candidates=() if named.links else named.candidates,
        links=named.links,
        evidence=(_apart(worst, observed), *named.evidence[1:]),
        unseen=(*named.unseen, *never),
    )
    return AlwaysSlow(found, cost_ns, worst.usual_ns * (worst.ratio - 1.0), worst.keys, worst.usual_ns)


def _as_growth(
    apart: Sequence[_Apart],
    cost_ns: float,
    records: Sequence[IterationRecord],
    took_ns: Float64Array,
    keys: Mapping[TransferKey, int],
) -> Growth:
    """What is beyond the peers as what has grown: who is named for it is the same question."""
    nobody, transfer, path, usual = (np.zeros(n) for n in (len(records[-1].ranks), *(len(keys),) * 3))
    for one in apart:
        for key in one.keys:
            if key in keys:
                mean_ns = float(took_ns[:, keys[key]].mean())
                on_path_ns = float(np.mean([r.charges.transfers.get(key, 0) for r in records]))
                transfer[keys[key]], path[keys[key]] = mean_ns * one.share, on_path_ns * one.share
                usual[keys[key]] = mean_ns / one.ratio
    return Growth(cost_ns, records[-1].ranks, nobody, nobody, transfer, path, nobody, usual)


def _apart(slow: _Apart, observed: Observations) -> AboveAlike:
    first = slow.keys[0]
    return AboveAlike(
        link=(first[0], first[1]) if isinstance(first, tuple) else None,
        communicator="" if isinstance(first, tuple) else observed.communicators.get(first, (first, ()))[0],
        ratio=float(slow.ratio),
        n_peers=slow.n_peers,
        took_s=float(np.median(slow.took_ns)) / 1e9,
    )


def _shape(members: tuple[int, ...]) -> tuple[int, ...]:
    """How far apart its ranks lie."""
    return tuple([rank - members[0] for rank in members])


def _alike(communicator: str, observed: Observations) -> list[str]:
    """Communicators of other ranks that lie as far apart as its own."""
    shapes = {name: _shape(members) for name, (_, members) in observed.communicators.items()}
    own, own_members = shapes[communicator], observed.communicators[communicator][1]
    others = [name for name, (_, members) in sorted(observed.communicators.items()) if members != own_members]
    return [name for name in others if shapes[name] == own]


def _slow_communicators(
    took_ns: Float64Array, keys: Mapping[TransferKey, int], observed: Observations
) -> Iterator[_Apart]:
    """Those that are slower than others of their kind now, with what these have taken since the start."""
    for outlier in observed.outliers():
        alike = [keys[name] for name in _alike(outlier.communicator, observed) if name in keys]
        if outlier.communicator in keys and alike:
            usual_ns = float(np.median(np.median(took_ns[:, alike], axis=0)))
            own_ns = took_ns[:, keys[outlier.communicator]]
            yield _Apart((outlier.communicator,), own_ns, max(usual_ns, 1.0), outlier.peers)


def _lone_communicators(
    took_ns: Float64Array, keys: Mapping[TransferKey, int], observed: Observations
) -> Iterator[_Apart]:
    """Those without others of their kind, of which one link is far slower than the others: all wait for it."""
    of_shape: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    shapes = {}
    for name in keys:
        if not isinstance(name, tuple) and (members := tuple(members_of(name, observed))):
            shapes[name] = _shape(members)
            of_shape.setdefault(shapes[name], set()).add(members)
    for name in [name for name, shape in shapes.items() if len(of_shape[shape]) == 1]:
        pace, own_ns = _pace_of_slowest_link(name, observed), took_ns[:, keys[name]]
        # What was counted of the link may be of any part of the time: the slowest one is so by the link.
        slowest_ns = max(float(np.median(quarter)) for quarter in np.array_split(own_ns, QUARTERS))
        if pace is not None and slowest_ns > 0.0:
            yield _Apart((name,), own_ns, pace * slowest_ns, n_peers=0)


def _pace_of_slowest_link(communicator: str, observed: Observations) -> float | None:
    """At what share of the others' rate it sends; nothing where no link stands apart."""
    edges = observed.uneven_edges(communicator, ())
    if edges is not None:
        return min(rate.send_share for rate in edges.evidence if isinstance(rate, EdgeRates))
    connections = observed.connections(members_of(communicator, observed), 0)
    if connections:
        slowest = connections[0].connection
        return slowest.bytes_per_s / slowest.peers_bytes_per_s
    return None


def _slow_pairs(
    took_ns: Float64Array, keys: Mapping[TransferKey, int], parts: Parts, observed: Observations
) -> Iterator[_Apart]:
    """Pairs of the same two stages, both within a host or both across."""
    place = {rank: at for at, rank in enumerate(parts.ranks)}
    links = [
        key
        for key in keys
        if isinstance(key, tuple)
        and not (key > key[::-1] and key[::-1] in keys)
        and key[0] in place
        and key[1] in place
    ]
    if not links:
        return
    took_both_ns = took_ns[:, [keys[key] for key in links]]
    has_other_way = [at for at, key in enumerate(links) if key[::-1] in keys]
    took_both_ns[:, has_other_way] += took_ns[:, [keys[links[at][::-1]] for at in has_other_way]]
    rounds_s = np.ascontiguousarray((took_both_ns / 1e9).T)
    medians_s = (np.median(took_both_ns, axis=0) / 1e9).tolist()
    part = parts.part.tolist()
    groups, at_of = [], {}
    for at, (key, transfer_s) in enumerate(zip(links, medians_s, strict=True)):
        one, other = part[place[key[0]]], part[place[key[1]]]
        kind = (min(one, other), max(one, other), observed.hosts.get(key[0]) == observed.hosts.get(key[1]))
        at_of[str(key)] = at
        groups.append(GroupTransfer(group=str(key), kind=kind, transfer_s=transfer_s, rounds_s=rounds_s[at]))
    for outlier in outliers(groups):
        at = at_of[outlier.group]
        ways: tuple[TransferKey, ...] = (links[at], links[at][::-1])
        yield _Apart(ways, took_both_ns[:, at], 1e9 * outlier.median_s, outlier.peers)
