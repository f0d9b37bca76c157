"""Which link of a communicator is slow, from the rates at which single ranks send and receive (CCL-D 4.1.2, S2).

A rate is that of an active transfer. Behind a slow edge `a -> b` of a ring all ranks receive at its pace, for data
come no faster, while `a` alone takes long to send: what is received names nobody, what is sent names `a`, and the
edge is named when its successor's receiving agrees. In a tree a rank shares its card between parent and children:
both ends of a slow edge send more slowly, and ranks are alike only with as many neighbours. Who is next to whom, the
profiler plugins have seen; where they have not, NCCL's own trees are assumed, or a ring in the order of the ranks, and
what is found is suspected at most.

Each rank is held against its own earlier rate: a rank that sends to another host is slower than one that sends to
its neighbour, and always was. Where no earlier rate is known, ranks of one layer, or those of a ring that send to other
hosts, are held against each other, and what is found is suspected at most. NaN and zero mean that a rank has no part in
the network (NVLink): it is never the slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OP_CODE, OPS
from pacehound.model.events import Progress, Topology
from pacehound.model.evidence.transfers import AssumedEdges, EdgeRates
from pacehound.model.rounds import ALGORITHMS, Rounds
from pacehound.model.topology import ring_edges
from streams.rounds.edges import Edge, SeenEdges, assumed_neighbours, hosts_in_order
from streams.rounds.round_table import RoundTable
from streams.slow.thinned import Thinned
from streams.slow.thresholds import DROPPED, FAR_BELOW, MAX_DROPPED_SHARE, RATE_ROUNDS

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]

RECENT = 64
OLDER = 32
THINNED = 8
"""Of the rounds that leave the recent ones, every eighth is kept for comparison."""

PER_BLOCK = 2
"""Rounds of a kind that are kept of one block (a second): where many come, the baseline must not be over in no time."""

MAX_KINDS = 16
"""Kinds of rounds followed per communicator: sizes that never recur have no baseline."""


_ALL_TO_ALL = OP_CODE["all_to_all"]


@dataclass(frozen=True, slots=True)
class SlowEdges:
    """Edges that the rates single out; `is_sure` where the ranks' own earlier rates say so."""

    links: tuple[tuple[int, int], ...]
    is_sure: bool
    evidence: tuple[EdgeRates | AssumedEdges, ...]


_Rated = tuple[int, Float32Array]
"""A round: its time, and the rates of all members to send and to receive, shape `(2, n_ranks)`."""


class RateTracker:
    """Recent rates of each communicator, by operation, bytes and algorithm."""

    def __init__(self) -> None:
        self._histories: dict[str, dict[tuple[int, int, int], Thinned[_Rated]]] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        self._host_of: dict[int, str] = {}
        self._seen = SeenEdges()

    def on_topology(self, topology: Topology) -> None:
        """Where ranks are."""
        self._host_of.update(dict.fromkeys(topology.host_ranks, topology.host))

    def on_progress(self, progress: Progress) -> None:
        """Edges that were seen."""
        if progress.edges:
            self._seen.add(progress)

    def add(self, arrived: RoundTable) -> None:
        """Take in rounds; those without rates are passed over."""
        for number, rounds in enumerate(arrived.blocks):
            if rounds.send_rate is None or rounds.recv_rate is None or rounds.is_pair:
                continue
            self._members[rounds.communicator] = rounds.ranks
            rated = np.flatnonzero(np.isfinite(rounds.send_rate).any(axis=1))
            if len(rated):
                self._keep(rounds, rated, arrived.times_of(number))
            else:
                self._histories.setdefault(rounds.communicator, {})

    def _keep(self, rounds: Rounds, rated: npt.NDArray[np.int64], times_ns: npt.NDArray[np.int64]) -> None:
        """Those rounds of a block that have rates, the first ones of each kind."""
        assert rounds.send_rate is not None
        assert rounds.recv_rate is not None
        kinds = self._histories.setdefault(rounds.communicator, {})
        algorithms = [0] * len(rated) if rounds.algorithm is None else rounds.algorithm[rated].tolist()
        n_taken: dict[tuple[int, int, int], int] = {}
        columns = (rated.tolist(), rounds.op[rated].tolist(), rounds.size_bytes[rated].tolist(), algorithms)
        for row, *of_kind in zip(*columns, strict=True):
            kind = (of_kind[0], of_kind[1], of_kind[2])
            n_taken[kind] = n_taken.get(kind, 0) + 1
            if n_taken[kind] > PER_BLOCK or (kind not in kinds and len(kinds) >= MAX_KINDS):
                continue
            rates = np.stack([rounds.send_rate[row], rounds.recv_rate[row]]).astype(np.float32)
            kinds.setdefault(kind, Thinned(RECENT, OLDER, every=THINNED)).append((int(times_ns[row]), rates))

    def uneven_edges(self, communicator: str, alike: Sequence[str]) -> SlowEdges | None:
        """Edges of a communicator over which less is sent than over those in the same place of others like it."""
        return self.slow_edges(communicator, 0, alike)

    def slow_edges(self, communicator: str, since_ns: int, alike: Sequence[str] = ()) -> SlowEdges | None:
        """Edges of a communicator over which less has been sent since then; nothing where the rates tell nothing.

        Where there is nothing before, the rates are held against those of the same place in communicators `alike`, or
        of ranks with as many neighbours.
        """
        members = self._members.get(communicator, ())
        for (op, size_bytes, algorithm), history in sorted(
            self._histories.get(communicator, {}).items(), key=lambda item: (-item[0][1], item[0])
        ):
            slow = [rates for time_ns, rates in history if time_ns >= since_ns]
            quiet = [rates for time_ns, rates in history if time_ns < since_ns]
            if len(slow) < RATE_ROUNDS:
                continue
            has_earlier = len(quiet) >= RATE_ROUNDS
            name = ALGORITHMS[algorithm]
            edges, assumed = self._seen.of_all_channels(communicator, name), tuple[AssumedEdges, ...]()
            if not edges and op != _ALL_TO_ALL:
                edges, assumed = self._assumed(members, name)
            now = _typical(slow)
            beside = [] if has_earlier else self._beside(alike, (op, size_bytes, algorithm), now.shape)
            is_by_itself = not has_earlier and not beside
            if has_earlier:
                shares = now / _typical(quiet)
            else:
                shares = _share_of_alike(now, edges) if is_by_itself else now / _middle(beside)
            found = _edges(len(members), shares, op, name, edges, is_by_itself=is_by_itself)
            if found:
                rates = tuple(
                    EdgeRates(
                        sender=members[a],
                        receiver=members[b],
                        op=OPS[op],
                        send_share=float(shares[0, a]),
                        receive_share=float(shares[1, b]),
                        reference="earlier" if has_earlier else "place",
                    )
                    for a, b in found
                )
                links = tuple((members[a], members[b]) for a, b in found)
                return SlowEdges(links, has_earlier and not assumed, (*rates, *assumed))
        return None

    def _beside(
        self, communicators: Sequence[str], kind: tuple[int, int, int], shape: tuple[int, ...]
    ) -> list[Float64Array]:
        """Typical rates of rounds of a kind in other communicators of as many ranks."""
        histories = [self._histories.get(name, {}).get(kind) for name in communicators]
        rates = [[rates for _, rates in history] for history in histories if history is not None]
        return [typical for some in rates if len(some) >= RATE_ROUNDS and (typical := _typical(some)).shape == shape]

    def _assumed(self, members: tuple[int, ...], algorithm: str) -> tuple[frozenset[Edge], tuple[AssumedEdges, ...]]:
        """The edges of a communicator of which none was seen, and what says that they are assumed."""
        if len(members) == 2:
            return frozenset({(0, 1), (1, 0)}), ()  # there are no others
        if algorithm != "tree":
            places = tuple(range(len(members)))
            return frozenset(ring_edges(places)), (AssumedEdges(algorithm="ring"),)
        hosts = hosts_in_order(self._host_of.get(rank) for rank in members)
        return assumed_neighbours(hosts), (AssumedEdges(algorithm="tree", n_hosts=max(hosts) + 1),)


def _typical(rates: list[Float32Array]) -> Float64Array:
    """Median of each rank's rates, shape `(2, n_ranks)`; NaN where it has none, or a structural zero."""
    return _middle([one.astype(np.float64) for one in rates])


def _middle(rates: list[Float64Array]) -> Float64Array:
    stacked = np.stack(rates)
    stacked[~(stacked > 0)] = np.nan
    ordered = np.sort(stacked, axis=0)
    seen = np.isfinite(stacked).sum(axis=0, keepdims=True)
    middle = np.take_along_axis(ordered, np.maximum(seen - 1, 0) // 2, axis=0)[0]
    typical: Float64Array = np.where(seen[0] > 0, middle, np.nan)
    return typical


def _share_of_alike(rates: Float64Array, edges: frozenset[Edge]) -> Float64Array:
    """Each rank's rates over the median of those with as many neighbours to send to."""
    n_neighbours = np.zeros(rates.shape[1], np.int64)
    np.add.at(n_neighbours, np.array([sender for sender, _ in edges], np.int64), 1)
    shares = np.full_like(rates, np.nan)
    for part in np.unique(n_neighbours):
        chosen = n_neighbours == part
        if chosen.sum() < 3:
            continue  # of two that differ, nobody can say which one is as it should be
        for row in (0, 1):
            seen = rates[row][chosen & np.isfinite(rates[row])]
            if len(seen) >= 3:
                shares[row, chosen] = rates[row, chosen] / np.median(seen)
    return shares


def _edges(
    n_ranks: int, shares: Float64Array, op: int, algorithm: str, edges: frozenset[Edge], *, is_by_itself: bool
) -> list[Edge]:
    """Positions of the senders and receivers of slow edges, of those there are.

    A ring that is held against nothing but its own ranks tells by what is sent: all receive at the pace of the slowest.
    """
    send, receive = shares
    seen = np.isfinite(send)
    if seen.sum() < 2:
        return []
    # With two ranks both ends of the one link are slow: there is nobody to hold them against but themselves.
    # Of four, two may be the ends of a slow edge: the upper one of two in the middle is as usual.
    n_seen = int(seen.sum())
    usual = min(1.0, float(np.sort(send[seen])[n_seen // 2])) if n_seen > 2 else 1.0
    dropped = seen & (np.nan_to_num(send, nan=np.inf) < DROPPED * usual)
    n_dropped = int(dropped.sum())
    if not n_dropped or n_dropped > max(2, int(MAX_DROPPED_SHARE * n_ranks)):
        return []
    if algorithm == "tree" or op == _ALL_TO_ALL:
        # Both ends of a slow edge are slow; in a tree only neighbours are ends of one.
        slow = np.flatnonzero(dropped).tolist()
        of = [(i, j) for at, i in enumerate(slow) for j in slow[at + 1 :]]
        return [(i, j) for i, j in of if op == _ALL_TO_ALL or {(i, j), (j, i)} & edges]
    if is_by_itself:
        return [(a, b) for a, b in sorted(edges) if send[a] < FAR_BELOW]
    found = [(a, b) for a, b in sorted(edges) if dropped[a] and receive[b] < DROPPED]
    return found[:1] if n_ranks == 2 else found
