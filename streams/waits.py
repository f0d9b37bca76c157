"""The wait-for graph of a job: who waits for whom, and who waits for nobody.

A rank waits in its oldest incomplete call; later ones are queued behind it. In a collective it waits for the members
that have not launched the round; in a point-to-point call for the peer, as long as that has not launched its half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pacehound.events import OpenCall, RankProgress


@dataclass(frozen=True, slots=True)
class WaitingIn:
    """The call a rank waits in, and for whom."""

    rank: int
    communicator: str
    call: OpenCall
    waits_for: frozenset[int]


@dataclass(frozen=True, slots=True)
class WaitGraph:
    """Who waits in what.

    Attributes
    ----------
    waiting
        By rank.
    roots
        Ranks that somebody waits for and that wait in no call themselves.
    together
        Ranks that wait in a round which every member has launched: it does not move, and nobody is missing.

    """

    waiting: dict[int, WaitingIn]
    roots: frozenset[int]
    together: frozenset[int]

    def reached_from(self, rank: int) -> frozenset[int]:
        """Everybody whom a rank waits for, directly or through others."""
        reached: set[int] = set()
        frontier = set(self.waiting[rank].waits_for) if rank in self.waiting else set()
        while frontier:
            other = frontier.pop()
            if other in reached:
                continue
            reached.add(other)
            if other in self.waiting:
                frontier |= self.waiting[other].waits_for
        return frozenset(reached)

    def in_cycle(self) -> frozenset[int]:
        """Ranks that wait, directly or through others, for themselves: an order of calls that does not match."""
        return frozenset(rank for rank in self.waiting if rank in self.reached_from(rank))


def wait_graph(
    progress: Mapping[str, Mapping[int, RankProgress]],
    members: Mapping[str, tuple[int, ...]],
    launched_before_ns: int,
) -> WaitGraph:
    """Build the graph from the latest progress of every communicator.

    Parameters
    ----------
    progress
        By communicator and rank.
    members
        World ranks of each communicator.
    launched_before_ns
        Only calls that have been open since before this count as waiting.

    """
    waiting: dict[int, WaitingIn] = {}
    together: set[int] = set()
    for communicator in sorted(progress):
        ranks = progress[communicator]
        for rank in sorted(ranks):
            for call in ranks[rank].open:
                if call.launch_ns > launched_before_ns:
                    continue
                before = waiting.get(rank)
                if before is not None and before.call.launch_ns <= call.launch_ns:
                    continue
                waits_for = _waits_for(rank, call, ranks, members.get(communicator, ()))
                waiting[rank] = WaitingIn(rank, communicator, call, waits_for)
    for entry in waiting.values():
        if not entry.waits_for:
            together.add(entry.rank)
    waited_for = {rank for entry in waiting.values() for rank in entry.waits_for}
    roots = frozenset(rank for rank in waited_for if rank not in waiting)
    return WaitGraph(waiting, roots, frozenset(together))


def _waits_for(
    rank: int, call: OpenCall, ranks: Mapping[int, RankProgress], members: tuple[int, ...]
) -> frozenset[int]:
    if call.direction == "none":
        return frozenset(
            other
            for other in members
            if other != rank and (ranks.get(other) or RankProgress(rank=other)).last_launched < call.seq
        )
    opposite = "recv" if call.direction == "send" else "send"
    peer = ranks.get(call.peer)
    if peer is None:
        return frozenset({call.peer})
    has_launched = any(
        theirs.peer == rank and theirs.direction == opposite and theirs.seq == call.seq for theirs in peer.open
    )
    return frozenset() if has_launched else frozenset({call.peer})
