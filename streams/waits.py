"""The wait-for graph of a job: who waits for whom, and who waits for nobody.

A rank stands in its oldest incomplete call; later ones are queued behind it. Of the ranks of that call those are
waited for that have not launched it, and those that have but stand in an older one. Following these edges ends at

- ranks that are waited for and stand in no call: they did not come (`absent`);
- ranks whose call all others have completed: theirs does not end (`behind`);
- calls in which every rank stands that has not completed them: nobody is missing, and they do not move (`joint`);
- or nowhere: ranks that wait for each other, which have called in different orders (`cycle`).

Where no completion is seen a rank waits for those that have launched fewer calls than itself (`launch_graph`).

Everything is array work over the slots of `Standings`, in proportion to their number.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pacehound.events import UNTOLD
from streams.standings import NOT_OPEN, Standings

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckCall:
    """A call in which ranks stand.

    Attributes
    ----------
    channel, seq
        Which one; the number of a channel in `Standings`.
    op
        What the first of those that stand in it called.
    since_ns
        When the first of them launched it.
    standing, done
        Ranks that stand in it, and ranks that have completed it.
    later_done
        Of `done`, those that have completed a later call of the same channel too.

    """

    channel: int
    seq: int
    op: str
    since_ns: int
    standing: tuple[int, ...]
    done: tuple[int, ...]
    later_done: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitGraph:
    """Who waits in what, and where it ends; ranks are world ranks, in order.

    Attributes
    ----------
    calls
        Every call in which somebody stands.
    stands_in
        For each rank that stands in a call, its index in `calls`.
    waiting
        Ranks that wait for others, or in a joint call.
    absent
        Ranks that are waited for and stand in no call.
    idle
        Ranks that have no open call at all and are waited for by nobody yet: a healthy rank of a job that hangs
        stands somewhere.
    behind
        By index of the call: ranks in it that all others have left behind.
    joint
        Indices of the calls in which everybody stands.
    cycle
        Ranks that wait for each other and for nobody else's absence.

    """

    calls: tuple[StuckCall, ...] = ()
    stands_in: dict[int, int] = field(default_factory=dict)
    waiting: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    behind: dict[int, tuple[int, ...]] = field(default_factory=dict)
    joint: tuple[int, ...] = ()
    cycle: tuple[int, ...] = ()
    edges: tuple[Int64Array, Int64Array] = field(
        default_factory=lambda: (np.zeros(0, np.int64), np.zeros(0, np.int64)), repr=False
    )

    def waits_for(self, rank: int) -> tuple[int, ...]:
        """Whom a rank waits for directly."""
        call = self.stands_in.get(rank, NOBODY)
        calls, ranks = self.edges
        return tuple(np.unique(ranks[calls == call]).tolist())

    def leads_to(self, targets: BoolArray) -> BoolArray:
        """Which ranks wait for one of `targets`, directly or through others; masks over world ranks."""
        n_ranks = len(targets)
        position = _positions(self.stands_in, n_ranks)
        edge_call, edge_rank = self.edges
        reached = targets.copy()
        while True:
            leads = np.zeros(len(self.calls), np.bool_)
            leads[edge_call[reached[edge_rank]]] = True
            grown = reached.copy()
            standing = position >= 0
            grown[standing] |= leads[position[standing]]
            if (grown == reached).all():
                return grown
            reached = grown


def wait_graph(
    standings: Standings,
    open_for_ns: int,
    *,
    unheard: frozenset[int] = frozenset(),
    skipping: frozenset[str] = frozenset(),
) -> WaitGraph:
    """Build the graph from how far everybody is.

    Parameters
    ----------
    standings
        The latest progress.
    open_for_ns
        A rank counts as standing in a call only when its host has said that it was open for so long.
    unheard
        Ranks of hosts that have fallen silent: where they stood then says nothing of where they are.
    skipping
        Operations that hold nobody: `send`, where ranks do not wait for what they have sent.

    """
    rank, channel = standings.column("rank"), standings.column("channel")
    open_seq, open_ns = standings.column("open_seq"), standings.column("open_ns")
    is_blind = np.array([c.communicator in standings.blind for c in standings.channels], np.bool_)
    is_open = (open_seq != NOT_OPEN) & (open_ns + open_for_ns <= standings.column("told_ns"))
    if is_blind.any():
        is_open &= ~is_blind[channel]
    if unheard:
        is_open &= ~np.isin(rank, list(unheard))
    slots = np.flatnonzero(is_open)
    if skipping:
        holds = [not any(call.op in skipping for call in standings.open_calls(slot)[:1]) for slot in slots.tolist()]
        slots = slots[np.array(holds, np.bool_)]
    if not len(slots):
        return WaitGraph()
    # The oldest open call of each rank; the channel decides where two were launched at once.
    order = slots[np.lexsort((open_seq[slots], channel[slots], open_ns[slots], rank[slots]))]
    is_first = np.concatenate(([True], rank[order][1:] != rank[order][:-1]))
    standing_slots = order[is_first]
    n_ranks = int(rank.max()) + 1
    keys = np.stack([channel[standing_slots], open_seq[standing_slots]])
    calls, call_of = np.unique(keys, axis=1, return_inverse=True)
    call_of = call_of.reshape(-1)
    position = np.full(n_ranks, NOBODY, np.int64)
    position[rank[standing_slots]] = call_of
    # Every slot of every stuck call: the edges, before those that have done their part are taken out.
    first = np.array([standings.channels[c].first_slot for c in calls[0].tolist()], np.int64)
    width = np.array([len(standings.channels[c].ranks) for c in calls[0].tolist()], np.int64)
    edge_call = np.repeat(np.arange(calls.shape[1]), width)
    edge_slot = np.arange(len(edge_call)) - np.repeat(np.cumsum(width) - width, width) + np.repeat(first, width)
    edge_rank, seq = rank[edge_slot], calls[1][edge_call]
    completed = standings.column("completed")[edge_slot]
    is_standing = position[edge_rank] == edge_call
    is_done = (completed >= seq) & ~is_standing & (open_seq[edge_slot] != seq)  # they may end out of order
    owes = ~is_done & ~is_standing
    n_owed = np.bincount(edge_call[owes], minlength=calls.shape[1])
    stuck = _stuck_calls(standings, calls, edge_call, edge_rank, is_standing, is_done, completed > seq)
    behind = {
        index: stuck[index].standing for index in np.flatnonzero(n_owed == 0).tolist() if len(stuck[index].done) > 0
    }
    joint = tuple(i for i in np.flatnonzero(n_owed == 0).tolist() if i not in behind)
    owed_ranks = np.unique(edge_rank[owes])
    is_idle = np.ones(n_ranks, np.bool_)
    is_idle[rank[open_seq != NOT_OPEN]] = False
    is_idle[np.setdiff1d(np.arange(n_ranks), rank)] = False
    is_idle[owed_ranks] = False
    is_idle[[r for r in unheard if r < n_ranks]] = False
    graph = WaitGraph(
        calls=stuck,
        stands_in={int(r): int(position[r]) for r in np.flatnonzero(position != NOBODY)},
        waiting=tuple(np.flatnonzero((position != NOBODY) & ~np.isin(position, list(behind))).tolist()),
        absent=tuple(owed_ranks[position[owed_ranks] == NOBODY].tolist()),
        idle=tuple(np.flatnonzero(is_idle).tolist()),
        behind=behind,
        joint=joint,
        edges=(edge_call[owes], edge_rank[owes]),
    )
    return _with_cycle(graph, position)


def launch_graph(standings: Standings) -> dict[int, int]:
    """Ranks that others are ahead of and that are ahead of nobody, with how many calls they lack at most.

    For sources that see launches alone. The hosts of all others run ahead until their queues are full, so the rank that
    stopped first lacks the most; where everybody has launched as much as the others nothing is said.
    """
    slots = np.array(
        [
            slot
            for channel in standings.channels
            if channel.communicator in standings.launch_only and channel.communicator not in standings.blind
            for slot in range(channel.first_slot, channel.first_slot + len(channel.ranks))
        ],
        np.int64,
    )
    slots = slots[standings.column("launched")[slots] != UNTOLD]  # not less than others: nobody knows
    if not len(slots):
        return {}
    rank, channel = standings.column("rank")[slots], standings.column("channel")[slots]
    launched = standings.column("launched")[slots]
    most = np.full(len(standings.channels), np.iinfo(np.int64).min)
    least = np.full(len(standings.channels), np.iinfo(np.int64).max)
    np.maximum.at(most, channel, launched)
    np.minimum.at(least, channel, launched)
    is_ahead = np.zeros(int(rank.max()) + 1, np.bool_)
    is_ahead[rank[launched > least[channel]]] = True
    lacks = np.zeros(len(is_ahead), np.int64)
    np.maximum.at(lacks, rank, most[channel] - launched)
    return {int(r): int(lacks[r]) for r in np.flatnonzero((lacks > 0) & ~is_ahead)}


def _stuck_calls(
    standings: Standings,
    calls: Int64Array,
    edge_call: Int64Array,
    edge_rank: Int64Array,
    is_standing: BoolArray,
    is_done: BoolArray,
    is_past: BoolArray,
) -> tuple[StuckCall, ...]:
    open_ns, open_seq = standings.column("open_ns"), standings.column("open_seq")
    edges = np.searchsorted(edge_call, np.arange(calls.shape[1] + 1))
    stuck = []
    for index, (number, seq) in enumerate(calls.T.tolist()):
        part = slice(int(edges[index]), int(edges[index + 1]))
        ranks = edge_rank[part]
        known = standings.channels[number]
        slots = slice(known.first_slot, known.first_slot + len(known.ranks))
        standing = np.sort(ranks[is_standing[part]])
        told = standings.open_call(number, int(standing[0]), seq)
        stuck.append(
            StuckCall(
                channel=number,
                seq=seq,
                op=told.op if told is not None else "call",
                since_ns=int(open_ns[slots][open_seq[slots] == seq].min()),
                standing=tuple(standing.tolist()),
                done=tuple(np.sort(ranks[is_done[part]]).tolist()),
                later_done=tuple(np.sort(ranks[is_past[part]]).tolist()),
            )
        )
    return tuple(stuck)


def _with_cycle(graph: WaitGraph, position: Int64Array) -> WaitGraph:
    """Ranks from which no end is reached; of those, the ones that are waited for by another such rank."""
    ends = np.zeros(len(position), np.bool_)
    ends[list(graph.absent)] = True
    settled = np.zeros(len(graph.calls), np.bool_)
    settled[[*graph.behind, *graph.joint]] = True
    stands = position != NOBODY
    ends[stands] |= settled[position[stands]]
    endless = stands & ~graph.leads_to(ends)
    while True:
        # Whoever is waited for by nobody in the rest only leads into the cycle.
        edge_call, edge_rank = graph.edges
        inner = np.zeros(len(graph.calls), np.bool_)
        inner[position[endless]] = True
        is_needed = np.zeros(len(position), np.bool_)
        is_needed[edge_rank[inner[edge_call]]] = True
        kept = endless & is_needed
        if (kept == endless).all():
            break
        endless = kept
    return replace(graph, cycle=tuple(np.flatnonzero(endless).tolist()))


def _positions(stands_in: dict[int, int], n_ranks: int) -> Int64Array:
    position = np.full(n_ranks, NOBODY, np.int64)
    if stands_in:
        position[list(stands_in)] = list(stands_in.values())
    return position
