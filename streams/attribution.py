"""Who made the iterations of a job longer: slow ones held against quiet ones, rank by rank and link by link.

Two measurements of every iteration, each against its own quiet baseline (Greyhound's and CCL-D's classes S1-S3):

- S1, computation: the rank's *own time* grew (critical_path.py). Waiting is not in it, so that a slow tensor-parallel
  rank is told from its pipeline, and that from its data-parallel groups, wherever they lie.
- S2, communication: the *transfer* of a communicator or pair grew, counted from the latest start: no rank's own time is
  in it. The link is named where a source tells it: a pair, a communicator of two, rates (rates.py), or the kernel's
  view of connections (connections.py). Else the members are candidates.
- S3: both, on the same rank and its link.

A name must explain at least half of the growth, in most of the slow iterations. A charge that wanders over ranks, or
follows the bytes, is imbalance: no name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from pacehound.events import Cause, GroupOutlier
from streams.clocks import ClockOffsets
from streams.connections import SlowConnection
from streams.critical_path import Charges, TransferKey
from streams.rates import SlowEdges

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

MIN_EXPLAINED = 0.5
MIN_SHARE = 0.25
"""A transfer that explains so much is worth telling; one that is named for sure explains half."""

SMALLER_SHARE = 0.1
"""The smaller part of a mixed slowdown (S3), if it stands out by itself, too."""

SMALLER_RANK, SMALLER_TRANSFER = 1.1, 1.5
"""What the smaller part has to be against its own quiet level: of a rank's own time, of a transfer."""

SIGNIFICANT, BEYOND_DOUBT = 5.0, 8.0
"""Standard errors that a rank's own time has to have grown by: alone, and as the smaller part of S3."""

MIN_PERSISTENCE = 0.6
MIN_ITERATIONS = 5
MIN_SLOW = 3
REFERENCE_QUANTILE = 0.25
"""Own time is held against the rank at this place: many ranks may be culprits, and all may have more to do."""

MAX_CULPRITS = 3
MAX_CULPRIT_SHARE = 0.25
TIED, TIED_WHEN_QUIET, TIED_AT_ALL = 0.4, 0.25, 0.15
"""Ranks whose own times correlate so much wait for each other in calls that are not seen: in all iterations, in quiet
ones, and in quiet ones with those that have lost calls.

What each of them does behind the last such call stays its own, so that they do not agree wholly.
"""

ALIKE = 0.1
"""Whoever waits for a culprit in calls that are not seen loses as much time as that one, but for so much of it."""

MIN_TOGETHER = 8
"""Iterations in which both ranks have lost nothing, before it can be said that they do not move together."""

MIN_MORE_WORK = 0.01
WORK_SHARE = 0.25
"""More calls or bytes are the reason of longer iterations from so much of the relative growth on."""

MANY_LOST = 0.3
CLOCK_SHARE = 1 / 16
"""Clocks more uncertain than this share of a growth could have made it, over some rounds per iteration."""


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """What is kept of one iteration.

    Attributes
    ----------
    ranks
        Ascending, shape `(n_ranks,)`; the same object in all records, as long as they do not change.
    own_ns, own_most_ns
        Own time of each rank, the least and the most that it can be (`critical_path.OwnTime`), the same shape.
    transfer_ns
        By the number of the communicator or pair, of any length: what lies behind its end is 0.
    lost_share
        Share of each rank's rows that are missing, or `None` where none is.
    first_launch_ns
        How long after its begin each rank launched its first call.
    sees_transfers
        Calls with a start and an end were seen.

    """

    step: int
    time_ns: int
    step_time_s: float
    ranks: Int64Array
    charges: Charges
    own_ns: Float32Array
    own_most_ns: Float32Array
    transfer_ns: Float32Array
    n_rounds: int
    size_bytes: int
    lost_share: Float32Array | None = None
    first_launch_ns: Float32Array | None = None
    sees_transfers: bool = True


@dataclass(frozen=True, slots=True)
class Scene:
    """What is known of the job besides its iterations.

    Attributes
    ----------
    communicators
        Name and members of each.
    outliers
        Compares the groups' transfers when it is called.
    unseen
        What could not be seen so far.
    clocks
        How far the hosts' clocks are apart; none: one clock.
    hosts
        Host of each rank, where known.
    slow_edges
        What the rates say of a communicator since a time.
    connections
        What the kernel says of the connections among some ranks since a time.
    ailing
        What is wrong with a rank's GPU.
    slow_rounds
        What CCL-D's detection says of a communicator.
    replaying
        Ranks in communicators whose calls were captured into graphs: they wait for each other in replays, unseen.

    """

    communicators: dict[str, tuple[str, tuple[int, ...]]]
    outliers: Callable[[], list[GroupOutlier]]
    unseen: tuple[str, ...] = ()
    clocks: ClockOffsets = field(default_factory=ClockOffsets)
    hosts: dict[int, str] = field(default_factory=dict)
    slow_edges: Callable[[str, int], SlowEdges | None] = lambda _communicator, _since_ns: None
    connections: Callable[[Sequence[int], int], list[SlowConnection]] = lambda _ranks, _since_ns: []
    ailing: Callable[[int], tuple[str, ...]] = lambda _rank: ()
    slow_rounds: Callable[[str], str] = lambda _communicator: ""
    replaying: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who made the iterations longer, as far as it can be said."""

    kind: Literal["slow", "change"]
    verdict: Literal["culprit", "suspected", "unknown"]
    cause: Cause | None
    culprits: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    evidence: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Growth:
    """By how much the means of the slow iterations lie above those of the quiet ones, in nanoseconds.

    `own` and `path` have one entry per rank of `ranks`, `transfer` and `path_transfer` one per key; so have the quiet
    levels of both.
    """

    total: float
    ranks: Int64Array
    own: Float64Array
    path: Float64Array
    transfer: Float64Array
    path_transfer: Float64Array
    quiet_own: Float64Array
    quiet_transfer: Float64Array


@dataclass(frozen=True, slots=True)
class _Named:
    """Links of an S2 or S3: how sure, and why."""

    links: tuple[tuple[int, int], ...]
    is_sure: bool
    candidates: tuple[int, ...]
    evidence: tuple[str, ...]
    unseen: tuple[str, ...]
    growth: float
    ratio: float


def attribute(
    slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], keys: Mapping[TransferKey, int], scene: Scene
) -> Attribution:
    """Say whose delay it is: O(N) array work over the ranks for a fixed number of iterations.

    Parameters
    ----------
    slow, quiet
        Iterations since the onset, and before it.
    keys
        The number in `transfer_ns` of each communicator and pair, in ascending order.
    scene
        What else is known.

    """
    if len(slow) < MIN_SLOW or len(quiet) < MIN_ITERATIONS:
        return Attribution("slow", "unknown", None, unseen=("too few iterations to compare",))
    total_ns = 1e9 * (_mean([r.step_time_s for r in slow]) - _mean([r.step_time_s for r in quiet]))
    if total_ns <= 0:
        return Attribution("slow", "unknown", None, unseen=("the slow iterations take no longer than before",))
    if not any(r.sees_transfers for r in slow):
        return _late_launch(slow, quiet, total_ns)
    growth = _growth(slow, quiet, keys, total_ns)
    named = _slow_transfers(slow, growth, keys, scene)
    computing = _slow_ranks(slow, quiet, growth, named, keys, scene)
    if computing is not None:
        return computing
    work = _change_of_work(slow, quiet)
    if work:
        return Attribution("change", "unknown", None, evidence=(work, "no rank stands apart"))
    if named is None or named.growth < MIN_SHARE * growth.total:
        return _nobody(slow, quiet, growth)
    if named.links:
        is_sure = named.is_sure and named.growth >= MIN_EXPLAINED * growth.total
        verdict: Literal["culprit", "suspected"] = "culprit" if is_sure else "suspected"
        return Attribution(
            "slow", verdict, "S2", (), named.candidates, named.links, evidence=named.evidence, unseen=named.unseen
        )
    return Attribution(
        "slow", "unknown", "S2", candidates=named.candidates, evidence=named.evidence, unseen=named.unseen
    )


def _growth(
    slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], keys: Mapping[TransferKey, int], total_ns: float
) -> _Growth:
    ranks = slow[-1].ranks
    quiet_own = _level(quiet, "own_ns", ranks)
    quiet_transfer = _of_keys(quiet, len(keys))
    least = _level(slow, "own_ns", ranks) - quiet_own
    most = _level(slow, "own_most_ns", ranks) - _level(quiet, "own_most_ns", ranks)
    return _Growth(
        total=total_ns,
        ranks=ranks,
        own=np.nan_to_num(np.minimum(least, most)),
        path=_charged(slow, ranks) - _charged(quiet, ranks),
        transfer=_of_keys(slow, len(keys)) - quiet_transfer,
        path_transfer=_charged_keys(slow, keys) - _charged_keys(quiet, keys),
        quiet_own=np.nan_to_num(quiet_own),
        quiet_transfer=quiet_transfer,
    )


def _slow_ranks(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    growth: _Growth,
    named: _Named | None,
    keys: Mapping[TransferKey, int],
    scene: Scene,
) -> Attribution | None:
    """S1 or S3, or why ranks that stand apart cannot be named; nothing where no rank's own time has grown enough."""
    if not len(growth.ranks):
        return None
    place = int(REFERENCE_QUANTILE * (len(growth.own) - 1))
    usual = max(float(np.partition(growth.own, place)[place]), 0.0)
    apart = growth.own - usual
    bar = np.full(len(apart), MIN_EXPLAINED * growth.total)
    errors = np.full(len(apart), SIGNIFICANT)
    if named is not None and named.growth >= MIN_SHARE * growth.total:
        # Beside a transfer that has grown, one of its ranks may be the smaller part of the whole (S3).
        beside = np.isin(growth.ranks, named.candidates)
        least = np.maximum(SMALLER_SHARE * growth.total, (SMALLER_RANK - 1.0) * growth.quiet_own)
        errors = np.where(beside & (least < bar) & (apart < bar), BEYOND_DOUBT, errors)
        bar = np.where(beside, np.minimum(bar, least), bar)
    chosen = np.flatnonzero(apart >= bar)
    if not len(chosen):
        return None
    columns = _columns(slow, "own_ns", growth.ranks[chosen])
    quiet_columns = _columns(quiet, "own_ns", growth.ranks[chosen])
    stands_out = columns - np.nanmean(quiet_columns, axis=0) >= usual + 0.5 * apart[chosen]
    is_persistent = stands_out.mean(axis=0) >= MIN_PERSISTENCE
    follows = _follows_bytes(slow, quiet, columns, quiet_columns)
    stands_out = (columns.mean(axis=0) - quiet_columns.mean(axis=0) - usual) >= errors[chosen] * _errors(
        columns, quiet_columns
    )
    chosen = chosen[is_persistent & ~follows & stands_out]
    if not len(chosen):
        if follows.any():
            words = "own time follows the bytes that are moved: imbalance of the work, nobody to name"
            return Attribution("slow", "unknown", None, evidence=(words,))
        return None
    explained = growth.path[chosen].sum() / growth.total
    culprits = tuple(growth.ranks[chosen].tolist())
    on_path = sum(1 for r in slow if any(r.charges.ranks.get(rank, 0) for rank in culprits))
    if explained * growth.total < bar[chosen].min() or on_path < MIN_PERSISTENCE * len(slow):
        return None
    mean_own = float(growth.own[chosen].mean())
    names = ", ".join(map(str, culprits))
    evidence = [
        f"rank{'s' if len(culprits) > 1 else ''} {names}: own time grew by {mean_own / 1e6:.1f} ms per iteration, "
        f"that of ranks which only wait by {usual / 1e6:.1f} ms; the iteration by {growth.total / 1e6:.1f} ms",
        f"on the critical path of {on_path} of {len(slow)} slow iterations",
    ]
    found = Attribution("slow", "culprit", "S1", culprits, evidence=tuple(evidence))
    limit = max(MAX_CULPRITS, int(MAX_CULPRIT_SHARE * len(growth.ranks)))
    if len(culprits) > limit:
        words = f"{len(culprits)} of {len(growth.ranks)} ranks compute for longer: their work, or something they share"
        return Attribution("slow", "unknown", None, candidates=culprits, evidence=(*evidence, words))
    tied = _tied(slow, quiet, growth, chosen, keys, scene)
    if tied:
        words = (
            f"own times of ranks {', '.join(map(str, tied))} go up and down together: they wait for each other in "
            "calls that are not seen, and which of them is slow cannot be told"
        )
        return Attribution("slow", "unknown", None, candidates=culprits, evidence=tuple(evidence), unseen=(words,))
    return _with_link(_weighed(found, slow, growth, scene), named, growth)


def _with_link(found: Attribution, named: _Named | None, growth: _Growth) -> Attribution:
    """S3 where the transfers of a culprit's own link have grown by a fair share, too."""
    if named is None or named.growth < SMALLER_SHARE * growth.total:
        return found
    if named.growth < MIN_SHARE * growth.total and named.ratio < SMALLER_TRANSFER:
        return found
    links = tuple(link for link in named.links if set(link) & set(found.culprits))
    is_its_own = bool(links) or (not named.links and set(named.candidates) & set(found.culprits))
    if not is_its_own:
        return replace(found, evidence=(*found.evidence, *named.evidence))
    return replace(
        found,
        cause="S3",
        links=links,
        evidence=(*found.evidence, *named.evidence),
        unseen=(*found.unseen, *named.unseen),
    )


def _weighed(found: Attribution, slow: Sequence[IterationRecord], growth: _Growth, scene: Scene) -> Attribution:
    """Lost rows weaken a name; what the culprits' own GPUs say strengthens it again."""
    unseen: tuple[str, ...] = ()
    lost = _lost_of(slow, growth.ranks)
    at = np.searchsorted(growth.ranks, found.culprits)
    if float(lost[at].max(initial=0.0)) > max(MANY_LOST, 3 * float(np.median(lost)) + 0.05):
        # Where a call is not seen its waiting looks like the rank's own time.
        unseen = (
            f"{lost[at].max():.0%} of the calls of a named rank are lost: what it waited for in them is not seen",
        )
    if float(lost[at].max(initial=0.0)) > 0.0 and _share_a_host(found.culprits, scene):
        # Own times that move together would tell it, but lost calls move them, too.
        unseen = (*unseen, "whether ranks of one host wait for each other in calls that are not seen: calls were lost")
    if scene.replaying & set(found.culprits):
        unseen = (*unseen, "whether they wait for a peer in a replayed graph: it would look like their own time")
    ails = {rank: scene.ailing(rank) for rank in found.culprits}
    sentences = tuple(sentence for rank in found.culprits for sentence in ails[rank])
    is_weak = bool(unseen) and not all(ails.values())
    return replace(
        found,
        verdict="suspected" if is_weak else found.verdict,
        evidence=(*found.evidence, *sentences),
        unseen=(*found.unseen, *unseen),
    )


def _share_a_host(ranks: Sequence[int], scene: Scene) -> bool:
    hosts = [scene.hosts[rank] for rank in ranks if rank in scene.hosts]
    return len(set(hosts)) < len(hosts)


def _slow_transfers(
    slow: Sequence[IterationRecord], growth: _Growth, keys: Mapping[TransferKey, int], scene: Scene
) -> _Named | None:
    """The communicators or pairs whose transfers take longer, and the links among them that can be named."""
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
        return _shared_transfers(slow, growth, keys, scene)
    if best_link is not None and link_ns >= group_ns:
        return _slow_pair(slow, growth, keys, best_link, float(link_ns), scene)
    assert best_group is not None
    return _slow_group(slow, growth, keys, best_group, group_ns, scene)


def _slow_pair(
    slow: Sequence[IterationRecord],
    growth: _Growth,
    keys: Mapping[TransferKey, int],
    link: tuple[int, int],
    grown_ns: float,
    scene: Scene,
) -> _Named:
    seen = sum(1 for r in slow if r.charges.transfers.get(link, 0) or r.charges.transfers.get(link[::-1], 0))
    share = f"{grown_ns / growth.total:.0%} of the growth, in {seen} of {len(slow)} slow iterations"
    evidence = [f"transfers between rank {link[0]} and rank {link[1]} take longer: {share}"]
    unseen: list[str] = []
    numbers = [keys[key] for key in (link, link[::-1]) if key in keys]
    ways = growth.transfer[numbers].tolist()
    # An end is learnt when somebody waits for it: a receiver that computes first makes one direction look slow.
    both_ways = len(ways) == 2 and min(ways) >= MIN_SHARE * max(ways)
    if both_ways:
        evidence.append("in both directions")
    uncertain_ns = scene.clocks.uncertainty_between_ns(*link) if len(scene.clocks.ranks) else 0.0
    is_known = uncertain_ns <= CLOCK_SHARE * grown_ns
    if not is_known:
        how = f"{uncertain_ns / 1e6:.1f} ms" if np.isfinite(uncertain_ns) else "an unknown time"
        unseen.append(f"the clocks of rank {link[0]}'s and rank {link[1]}'s hosts are only known to within {how}")
    since_ns = slow[0].time_ns
    confirmed = [c for c in scene.connections(link, since_ns) if c.link == link]
    evidence += [connection.sentence for connection in confirmed]
    evidence += _shared_end(growth, keys, link, scene)
    is_sure = (is_known and both_ways) or any(connection.is_strong for connection in confirmed)
    if _loses_many(slow, growth.ranks, link):
        is_sure = False
        unseen.append("many calls of these two ranks are lost")
    before_ns = float(growth.quiet_transfer[numbers].sum())
    return _Named(
        (link,), is_sure, link, tuple(evidence), tuple(unseen), grown_ns, 1.0 + grown_ns / max(before_ns, 1.0)
    )


def _slow_group(
    slow: Sequence[IterationRecord],
    growth: _Growth,
    keys: Mapping[TransferKey, int],
    communicator: str,
    grown_ns: float,
    scene: Scene,
) -> _Named:
    name, members = scene.communicators.get(communicator, (communicator, ()))
    seen = sum(1 for r in slow if r.charges.transfers.get(communicator, 0))
    share = f"{grown_ns / growth.total:.0%} of the growth, in {seen} of {len(slow)} slow iterations"
    evidence = [f"transfers of communicator {name!r} take longer after its last rank has entered: {share}"]
    for outlier in scene.outliers():
        if outlier.communicator == communicator:
            ratio = outlier.transfer_s / outlier.median_s
            evidence.append(f"they take {ratio:.1f} x the median of {outlier.peers} communicators of the same kind")
    if said := scene.slow_rounds(communicator):
        evidence.append(said)
    unseen: list[str] = []
    ratio = 1.0 + grown_ns / max(float(growth.quiet_transfer[keys[communicator]]), 1.0)
    is_complete = not _loses_many(slow, growth.ranks, members)
    if not is_complete:
        unseen.append(f"many calls of {name!r} are lost: whether a rank came late to it is not seen")
    since_ns = slow[0].time_ns
    if len(members) == 2:
        link = (min(members), max(members))
        evidence.append("it has two ranks: that is the link")
        evidence += _shared_end(growth, keys, link, scene)
        return _Named((link,), is_complete, link, tuple(evidence), tuple(unseen), grown_ns, ratio)
    edges = scene.slow_edges(communicator, since_ns)
    if edges is not None:
        evidence += edges.sentences
        return _Named(
            edges.links, edges.is_sure and is_complete, members, tuple(evidence), tuple(unseen), grown_ns, ratio
        )
    connections = scene.connections(members, since_ns)
    if connections:
        first = connections[0]
        evidence.append(first.sentence)
        is_sure = first.is_strong and len(connections) == 1 and is_complete
        return _Named((first.link,), is_sure, members, tuple(evidence), tuple(unseen), grown_ns, ratio)
    evidence += _shared_host(growth, keys, communicator, scene)
    unseen.append("which link of the communicator is slow: neither rates nor connections single one out")
    return _Named((), False, members, tuple(evidence), tuple(unseen), grown_ns, ratio)


def _shared_transfers(
    slow: Sequence[IterationRecord], growth: _Growth, keys: Mapping[TransferKey, int], scene: Scene
) -> _Named | None:
    """No single transfer explains much, but all of those together that share one rank or host do."""
    names = list(keys)
    grown = [(float(growth.transfer[n]), names[n]) for n in np.flatnonzero(growth.path_transfer > 0).tolist()]
    if growth.path_transfer.clip(min=0).sum() < MIN_EXPLAINED * growth.total or len(grown) < 2:
        return None
    members = [_members(key, scene) for _, key in sorted(grown, key=lambda item: (-item[0], str(item[1])))[:8]]
    shared = set(members[0]).intersection(*members[1:])
    on_path = float(growth.path_transfer.clip(min=0).sum())
    words = f"transfers of {len(grown)} communicators and pairs take longer, none of them by much"
    if len(shared) == 1:
        words += f"; all of the slowest have rank {next(iter(shared))}: its network interface"
    return _Named((), False, tuple(sorted(shared)), (words,), ("which link is slow",), on_path, 1.0)


def _shared_end(growth: _Growth, keys: Mapping[TransferKey, int], link: tuple[int, int], scene: Scene) -> list[str]:
    """A sentence where several slow links meet in one rank: that is what its network interface would do."""
    names = list(keys)
    own = [keys[key] for key in (link, link[::-1]) if key in keys]
    own += [n for n in np.flatnonzero(growth.transfer > 0).tolist() if set(_members(names[n], scene)) == set(link)]
    bar = MIN_EXPLAINED * float(growth.transfer[own].max(initial=0.0))
    ends = [_members(names[n], scene) for n in np.flatnonzero(growth.transfer >= max(bar, 1.0)).tolist()]
    slow_links = {(min(pair), max(pair)) for pair in ends if len(pair) == 2}
    shared = set(link).intersection(*slow_links) if slow_links else set()
    if len(slow_links) < 2 or len(shared) != 1:
        return []
    others = ", ".join(f"{a}-{b}" for a, b in sorted(slow_links))
    return [f"all slow links ({others}) meet in rank {next(iter(shared))}: it may be its network interface"]


def _shared_host(growth: _Growth, keys: Mapping[TransferKey, int], worst: str, scene: Scene) -> list[str]:
    """A sentence where several slow communicators have one host in common that the quiet ones have not."""
    number = keys[worst]
    bar = MIN_EXPLAINED * float(growth.transfer[number])
    size = len(_members(worst, scene))
    hosts_slow: list[set[str]] = []
    hosts_quiet: list[set[str]] = []
    for key, index in keys.items():
        ranks = _members(key, scene)
        if isinstance(key, str) and len(ranks) == size:
            hosts = {scene.hosts[rank] for rank in ranks if rank in scene.hosts}
            (hosts_slow if growth.transfer[index] >= bar else hosts_quiet).append(hosts)
    if len(hosts_slow) < 2:
        return []
    shared = set.intersection(*hosts_slow).difference(*hosts_quiet)
    if len(shared) != 1:
        return []
    return [f"{len(hosts_slow)} slow communicators share host {next(iter(shared))}, which no quiet one has"]


def _late_launch(slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], total_ns: float) -> Attribution:
    """Launches alone: a rank whose first call of an iteration comes later than it did, while its peers' do not."""
    unseen = ("no call with a start and an end was seen in these iterations: whose delay it is is unknown",)
    ranks = slow[-1].ranks
    if any(r.first_launch_ns is None for r in (*slow, *quiet)) or len(ranks) < 2:
        return Attribution("slow", "unknown", None, unseen=unseen)
    later = np.nan_to_num(_level(slow, "first_launch_ns", ranks) - _level(quiet, "first_launch_ns", ranks))
    place = int(REFERENCE_QUANTILE * (len(later) - 1))
    apart = later - max(float(np.partition(later, place)[place]), 0.0)
    chosen = np.flatnonzero(apart >= MIN_EXPLAINED * total_ns)
    if not len(chosen) or len(chosen) > max(MAX_CULPRITS, int(MAX_CULPRIT_SHARE * len(ranks))):
        return Attribution("slow", "unknown", None, unseen=unseen)
    late = tuple(ranks[chosen].tolist())
    words = (
        f"rank{'s' if len(late) > 1 else ''} {', '.join(map(str, late))}: the host launches its first call of an "
        f"iteration {float(apart[chosen].mean()) / 1e6:.1f} ms later than before, the others' hosts do not"
    )
    return Attribution("slow", "suspected", None, late, evidence=(words,), unseen=unseen)


def _nobody(slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord], growth: _Growth) -> Attribution:
    """Nobody stands apart: say whether the growth wanders."""
    usual: dict[int, float] = {}
    for record in quiet:
        for rank, ns in record.charges.ranks.items():
            usual[rank] = usual.get(rank, 0.0) + ns / len(quiet)
    tops = []
    for record in slow:
        over = {rank: ns - usual.get(rank, 0.0) for rank, ns in record.charges.ranks.items()}
        top = max(over, key=lambda rank: (over[rank], -rank), default=None)
        if top is not None and over[top] >= MIN_SHARE * growth.total:
            tops.append(top)
    if len(set(tops)) > MAX_CULPRITS:
        words = (
            f"the growth wanders: in {len(tops)} slow iterations it lay on {len(set(tops))} different ranks. That is "
            "imbalance of the work, or pauses that meet all of them; nobody stands apart"
        )
    else:
        words = "the growth is spread over ranks and transfers: nobody stands apart"
    return Attribution("slow", "unknown", None, evidence=(words,))


def _change_of_work(slow: Sequence[IterationRecord], quiet: Sequence[IterationRecord]) -> str:
    """A sentence when the calls themselves tell that there is more to do, else nothing.

    It has to be more than the work varies anyhow (experts, packed sequences, lost rows), and a fair share of what the
    iterations have become longer by.
    """
    longer = _mean([r.step_time_s for r in slow]) / _mean([r.step_time_s for r in quiet]) - 1.0
    for what, unit in (("n_rounds", "calls"), ("size_bytes", "bytes")):
        amounts = np.array([getattr(r, what) for r in quiet], np.float64)
        before, after = float(np.median(amounts)), float(np.median([getattr(r, what) for r in slow]))
        spread = 1.4826 * float(np.median(np.abs(amounts - before)))
        if before and after - before > max(MIN_MORE_WORK * before, WORK_SHARE * longer * before, 3.0 * spread):
            return f"the work has changed: {after:.0f} {unit} per iteration, {before:.0f} before"
    return ""


def _follows_bytes(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    slow_own: Float64Array,
    quiet_own: Float64Array,
) -> npt.NDArray[np.bool_]:
    """Per rank: what it needs per byte, learnt from the quiet iterations, explains most of its growth.

    Own times have shape `(n_iterations, n_ranks)`.
    """
    nobody = np.zeros(slow_own.shape[1], np.bool_)
    quiet_bytes = np.array([r.size_bytes for r in quiet], np.float64)
    slow_bytes = np.array([r.size_bytes for r in slow], np.float64)
    spread = float(quiet_bytes.std())
    if not spread or spread < 0.01 * float(quiet_bytes.mean()):
        return nobody
    centred = quiet_bytes - quiet_bytes.mean()
    usual = np.nanmean(quiet_own, axis=0)
    per_byte = np.nansum((quiet_own - usual) * centred[:, None], axis=0) / float((centred**2).sum())
    explained = np.maximum(per_byte, 0.0) * (slow_bytes.mean() - quiet_bytes.mean())
    follows: npt.NDArray[np.bool_] = explained >= MIN_EXPLAINED * (np.nanmean(slow_own, axis=0) - usual)
    return follows


def _errors(slow_own: Float64Array, quiet_own: Float64Array) -> Float64Array:
    """Standard error of each rank's growth; shapes `(n_iterations, n_ranks)`."""
    variance = np.nanvar(slow_own, axis=0) / len(slow_own) + np.nanvar(quiet_own, axis=0) / len(quiet_own)
    errors: Float64Array = np.sqrt(variance)
    return errors


def _tied(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    growth: _Growth,
    chosen: Int64Array,
    keys: Mapping[TransferKey, int],
    scene: Scene,
) -> tuple[int, ...]:
    """Of the chosen ranks those whose own times move together from one iteration to the next, and have grown alike.

    What all ranks have in common (more bytes, a slower filesystem) is taken off first, and iterations in which a rank
    has lost calls are left out for it, as long as enough are left.

    And ranks of one host that no call ties to each other, but for one that takes next to no time: a job in which some
    ranks exchange nothing with others has a dimension of parallelism that is not seen.
    """
    if len(chosen) < 2:
        return ()
    ranks = growth.ranks
    # Some ranks are enough to know what all have in common.
    sample = np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), 64)).astype(np.int64))
    parts = []
    for records in (slow, quiet):
        common = _median(_moves(records, ranks[sample]))
        moves = np.nan_to_num(_moves(records, ranks[chosen]) - common)
        n_seen = np.maximum((moves != 0).sum(axis=0), 1)
        parts.append(moves / np.maximum(np.sqrt((moves**2).sum(axis=0) / n_seen), 1.0))
    together, n_both = _correlation(np.concatenate(parts))
    when_quiet, n_quiet = _correlation(parts[1])
    # Where hardly an iteration is whole: nobody waits long while it is quiet, so that lost calls matter little then.
    lossy, n_lossy = _correlation(np.nan_to_num(_moves(quiet, ranks[chosen], even_lossy=True)))
    is_tied = (together >= TIED) & ((when_quiet >= TIED_WHEN_QUIET) | (n_quiet < MIN_TOGETHER))
    is_tied &= (lossy >= TIED_AT_ALL) | (n_lossy < MIN_TOGETHER)
    is_tied = np.where(n_both >= MIN_TOGETHER, is_tied, (lossy >= TIED_WHEN_QUIET) | (n_lossy < MIN_TOGETHER))
    grown = growth.own[chosen]
    alike = np.abs(grown[:, None] - grown[None, :]) <= ALIKE * np.maximum(grown[:, None], grown[None, :])
    is_tied &= alike
    is_tied |= alike & _are_strangers(ranks[chosen].tolist(), growth, keys, scene, quiet[-1].step_time_s)
    np.fill_diagonal(is_tied, False)
    return tuple(ranks[chosen[is_tied.any(axis=1)]].tolist())


def _are_strangers(
    of: Sequence[int], growth: _Growth, keys: Mapping[TransferKey, int], scene: Scene, step_time_s: float
) -> npt.NDArray[np.bool_]:
    """Which two of some ranks are on one host and in no way tied by calls, shape `(n, n)`."""
    hosts = [scene.hosts.get(rank) for rank in of]
    same = np.array([[a == b and a is not None for b in hosts] for a in hosts]) & ~np.eye(len(of), dtype=np.bool_)
    if not same.any():
        return same
    root: dict[int, int] = {}

    def found(rank: int) -> int:
        while root.setdefault(rank, rank) != rank:
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    for key, number in keys.items():
        members = _members(key, scene)
        is_light = len(members) == len(growth.ranks) and growth.quiet_transfer[number] < 1e7 * step_time_s
        if len(members) > 1 and growth.quiet_transfer[number] > 0 and not is_light:
            first = found(members[0])
            for rank in members[1:]:
                root[found(rank)] = first
    roots = np.array([found(rank) for rank in of])
    strangers: npt.NDArray[np.bool_] = same & (roots[:, None] != roots[None, :])
    return strangers


def _median(moves: Float64Array) -> Float64Array:
    """Per iteration over the ranks that were seen, shape `(n_iterations, 1)`; 0 where none was."""
    ordered = np.sort(moves, axis=1)  # NaN goes last
    n_seen = np.isfinite(moves).sum(axis=1, keepdims=True)
    return np.nan_to_num(np.take_along_axis(ordered, np.maximum(n_seen - 1, 0) // 2, axis=1))


def _moves(records: Sequence[IterationRecord], ranks: Int64Array, *, even_lossy: bool = False) -> Float64Array:
    """Own times less the mean of each rank, shape `(n_iterations, n_ranks)`; NaN where a rank has lost calls."""
    own = _columns(records, "own_ns", ranks)
    if not even_lossy:
        own[_lost_columns(records, ranks) > 0] = np.nan
    n_seen = np.isfinite(own).sum(axis=0)
    moves: Float64Array = own - np.nansum(own, axis=0) / np.maximum(n_seen, 1)
    return moves


def _correlation(moves: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Of each two columns of `(n_iterations, n_ranks)`, where neither is 0, and over how many iterations that is."""
    seen = (moves != 0).astype(np.float64)
    spread = np.sqrt((moves**2).T @ seen * (seen.T @ moves**2))
    return (moves.T @ moves) / np.maximum(spread, 1e-9), seen.T @ seen


def _level(records: Sequence[IterationRecord], name: str, ranks: Int64Array) -> Float64Array:
    """Mean over the iterations of a column, per rank; NaN for ranks that were never seen."""
    if all(r.ranks is ranks or np.array_equal(r.ranks, ranks) for r in records):
        total = np.zeros(len(ranks))
        for record in records:
            total += getattr(record, name)
        return total / len(records)
    columns = _columns(records, name, ranks)
    seen = np.isfinite(columns).sum(axis=0)
    level: Float64Array = np.where(seen > 0, np.nansum(columns, axis=0) / np.maximum(seen, 1), np.nan)
    return level


def _columns(records: Sequence[IterationRecord], name: str, ranks: Int64Array) -> Float64Array:
    """A column of some ranks, shape `(n_iterations, n_ranks)`; NaN where a rank was not seen."""
    columns = np.full((len(records), len(ranks)), np.nan)
    place, known, before = np.zeros(0, np.int64), np.zeros(0, np.bool_), None
    for line, record in enumerate(records):
        if not len(record.ranks):
            continue
        if record.ranks is not before:
            place = np.minimum(np.searchsorted(record.ranks, ranks), len(record.ranks) - 1)
            known, before = record.ranks[place] == ranks, record.ranks
        columns[line] = np.where(known, getattr(record, name)[place], np.nan)
    return columns


def _lost_columns(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """Shares of rows that are missing, shape `(n_iterations, n_ranks)`."""
    lost = np.zeros((len(records), len(ranks)))
    for line, record in enumerate(records):
        if record.lost_share is not None and len(record.ranks):
            place = np.minimum(np.searchsorted(record.ranks, ranks), len(record.ranks) - 1)
            lost[line] = np.where(record.ranks[place] == ranks, record.lost_share[place], 0.0)
    return lost


def _charged(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """Mean charge of each rank on the critical path."""
    on: list[int] = []
    ns: list[int] = []
    for record in records:
        on += record.charges.ranks.keys()
        ns += record.charges.ranks.values()
    charged = np.zeros(len(ranks))
    if on and len(ranks):
        place = np.minimum(np.searchsorted(ranks, on), len(ranks) - 1)
        known = ranks[place] == np.array(on)
        np.add.at(charged, place[known], np.array(ns, np.float64)[known])
    return charged / len(records)


def _charged_keys(records: Sequence[IterationRecord], keys: Mapping[TransferKey, int]) -> Float64Array:
    """Mean charge of each communicator and pair on the critical path."""
    total: dict[TransferKey, int] = {}
    for record in records:
        for key, ns in record.charges.transfers.items():
            total[key] = total.get(key, 0) + ns
    charged = np.zeros(len(keys))
    for key, ns in total.items():
        if key in keys:
            charged[keys[key]] = ns / len(records)
    return charged


def _of_keys(records: Sequence[IterationRecord], n_keys: int) -> Float64Array:
    """Mean transfer time of each key."""
    total = np.zeros(n_keys)
    for record in records:
        total[: len(record.transfer_ns)] += record.transfer_ns
    return total / len(records)


def _lost_of(records: Sequence[IterationRecord], ranks: Int64Array) -> Float64Array:
    """Mean share of each rank's rows that are missing."""
    lossy = [record for record in records if record.lost_share is not None]
    if not lossy:
        return np.zeros(len(ranks))
    return np.nan_to_num(_level(lossy, "lost_share", ranks)) * len(lossy) / len(records)


def _loses_many(records: Sequence[IterationRecord], ranks: Int64Array, of: Sequence[int]) -> bool:
    """Some of these ranks are missing, or many of their rows."""
    known = np.isin(np.array(of, np.int64), ranks)
    if not known.all():
        return True
    lost = _lost_of(records, ranks)[np.searchsorted(ranks, of)]
    return float(lost.max(initial=0.0)) > MANY_LOST


def _members(key: TransferKey, scene: Scene) -> tuple[int, ...]:
    return key if isinstance(key, tuple) else scene.communicators.get(key, (key, ()))[1]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
