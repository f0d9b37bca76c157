"""What a profiler plugin reads on the network connections of a communicator: rates of transfers, counts of chunks.

Connections within a host go over NVLink, where it sees nothing: a rank that has no other ones has no rate (NaN) and
no count (-1). Rates are those of active transfers, bytes over the time from posting a chunk to its completion: behind
a slow edge `a -> b` of a ring everybody receives at the reduced rate, for data come no faster, while `a` alone takes
long to send. In a tree a rank shares its network card between its parents and its children, so that rates, and counts,
are alike only among ranks with as many of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.model.events import ChannelTransfers
from simulator.faults import DeadDevice
from simulator.groups import Communicator
from simulator.nccl_graph import ring_edges, tree_edges
from simulator.program import Slot
from simulator.spec import JobSpec
from simulator.timing import Timeline

FloatArray = npt.NDArray[np.float64]

CHUNK_BYTES = 4 << 20
STEPS_IN_FLIGHT = 8
"""Chunks that a rank may have sent, or received, beyond what its neighbour has taken (NCCL_STEPS)."""
_NO_COUNT = -1


@dataclass(frozen=True, slots=True)
class OpenCounts:
    """Chunks that a rank has sent and received of the call in which it is stuck; -1 where nobody counts."""

    sent: int
    received: int
    channels: tuple[ChannelTransfers, ...] = ()


def edges_of(spec: JobSpec, communicator: Communicator, *, is_tree: bool) -> list[list[tuple[int, int]]]:
    """By channel, the directed connections over which its collectives send."""
    members = communicator.members
    if communicator.kind == "ep":
        return [[(a, b) for a in members for b in members if a != b]]
    if is_tree:
        both_ways = tree_edges(members, spec.ranks_per_host)
        return [[*up, *((parent, child) for child, parent in up)] for up in both_ways]
    return ring_edges(members, spec.ranks_per_host)


def is_tree_call(spec: JobSpec, slot: Slot) -> bool:
    """Large data-parallel all_reduces use the job's algorithm, all other calls a ring."""
    return spec.algorithm == "tree" and slot.kind == "dp" and slot.op == "all_reduce"


def rates(
    spec: JobSpec, communicator: Communicator, factors: Mapping[frozenset[int], float], *, is_tree: bool
) -> dict[int, tuple[float, float]]:
    """Rates at which each member sends and receives, bytes per second; NaN where it does so over NVLink alone."""
    network = spec.network

    def bandwidth(a: int, b: int) -> float:
        return network.bytes_per_s(a, b) * factors.get(frozenset((a, b)), 1.0)

    sends: dict[int, list[float]] = {rank: [] for rank in communicator.members}
    receives: dict[int, list[float]] = {rank: [] for rank in communicator.members}
    rated: set[tuple[int, int]] = set()  # channels with the same connection share it
    for edges in edges_of(spec, communicator, is_tree=is_tree):
        slowest = min((bandwidth(a, b) for a, b in edges), default=np.nan)
        for a, b in edges:
            if is_network(spec, a, b) and (a, b) not in rated:
                rated.add((a, b))
                sends[a].append(bandwidth(a, b))
                receives[b].append(bandwidth(a, b) if communicator.kind == "ep" else slowest)
    return {rank: (_over_all(sends[rank]), _over_all(receives[rank])) for rank in communicator.members}


def pair_rate(spec: JobSpec, sender: int, receiver: int, factors: Mapping[frozenset[int], float]) -> float:
    """Rate of a point-to-point transfer; NaN over NVLink."""
    if not is_network(spec, sender, receiver):
        return float("nan")
    return spec.network.bytes_per_s(sender, receiver) * factors.get(frozenset((sender, receiver)), 1.0)


def is_network(spec: JobSpec, a: int, b: int) -> bool:
    """Whether two ranks are on different hosts."""
    return a // spec.ranks_per_host != b // spec.ranks_per_host


def _over_all(connections: list[float]) -> float:
    """Bytes over active time when as much goes over each connection, and they share one network card."""
    if not connections:
        return float("nan")
    each = np.array(connections) / len(connections)
    return float(len(each) / np.sum(1.0 / each))


def chunks(slot: Slot, members: int) -> int:
    """Chunks that each rank sends for a call."""
    per_turn = max(1, slot.size_bytes // max(members, 1) // CHUNK_BYTES)
    turns = 2 if slot.op == "all_reduce" else 1
    return turns * (members - 1) * per_turn if slot.kind != "pp" else max(1, slot.size_bytes // CHUNK_BYTES)


def open_counts(
    spec: JobSpec, timeline: Timeline, communicator: Communicator, dead: frozenset[frozenset[int]]
) -> dict[int, OpenCounts]:
    """For each member that is stuck in a collective of the last step: what it has sent and received for it.

    Nothing passes over the links `dead`.
    """
    members = communicator.members
    stuck: dict[int, int] = {}
    calls: dict[int, list[int]] = {}
    for rank in members:
        tp_index, dp_index, stage = spec.layout.position(rank)
        slots = timeline.programs[stage].slots
        mine = [index for index, slot in enumerate(slots) if slot.kind == communicator.kind]
        arrived = timeline.arrival_s[stage][-1, mine, dp_index, tp_index]
        ended = timeline.end_s[stage][-1, mine, dp_index, tp_index]
        made = [i for i in np.argsort(arrived, kind="stable").tolist() if np.isfinite(arrived[i])]
        calls[rank] = [mine[i] for i in made]
        open_ = [n for n, i in enumerate(made) if np.isinf(ended[i])]
        if open_:
            stuck[rank] = open_[0]
    if not stuck or len(members) < 2:
        return {}
    dies = next((f for f in spec.faults if isinstance(f, DeadDevice) and f.kind == communicator.kind), None)
    dead_rank = dies.rank if dies is not None and dies.rank in stuck else None
    waiting = {rank: nth for rank, nth in stuck.items() if rank != dead_rank}
    nth = max(waiting.values(), default=stuck.get(dead_rank, 0) if dead_rank is not None else 0)
    first = next((rank for rank in waiting if waiting[rank] == nth), dead_rank)
    assert first is not None
    slot = timeline.programs[spec.layout.position(first)[2]].slots[calls[first][nth]]
    is_tree = is_tree_call(spec, slot)
    channels = edges_of(spec, communicator, is_tree=is_tree)
    total = chunks(slot, len(members))
    entered = {rank for rank in waiting if waiting[rank] == nth}
    rng = np.random.default_rng([spec.seed, 13, members[0], len(members)])
    at = int(rng.integers(1, max(2, total // 2)))
    is_broken = any(frozenset(edge) in dead for edges in channels for edge in edges)
    flows: list[dict[tuple[int, int], int]] = []
    for edges in channels:
        here = any(frozenset(edge) in dead for edge in edges)
        if communicator.kind == "ep" or not (is_broken or len(entered) < len(members)):
            flows.append({edge: min(at, total) if set(edge) <= entered else 0 for edge in edges})  # all are as far
        elif is_broken and not here:
            flows.append(dict.fromkeys(edges, total))  # this channel has done its part
        elif is_tree:
            flows.append(_tree_flow(edges[: len(edges) // 2], entered, dead, at if here else 0))
        else:
            flows.append(_ring_flow(edges, entered, dead, at if here else 0, total))
    found = {rank: _of_rank(spec, flows, rank, total) for rank in entered}
    if dead_rank is not None:
        # Its peers have finished this call: all that they needed of it was sent, and the last of theirs has come to
        # a device that is dead.
        whole = _of_rank(spec, [dict.fromkeys(edges, total) for edges in channels], dead_rank, total)
        found[dead_rank] = OpenCounts(whole.sent, whole.received - 1 if whole.received > 0 else whole.received)
    return found


def _of_rank(spec: JobSpec, flows: Sequence[Mapping[tuple[int, int], int]], rank: int, total: int) -> OpenCounts:
    counts = []
    for channel, flow in enumerate(flows):
        sent = [n for (a, b), n in flow.items() if a == rank and is_network(spec, a, b)]
        received = [n for (a, b), n in flow.items() if b == rank and is_network(spec, a, b)]
        if sent or received:
            counts.append(
                ChannelTransfers(
                    channel=channel,
                    send_count=sum(sent) if sent else _NO_COUNT,
                    recv_count=sum(received) if received else _NO_COUNT,
                    send_total=total * len(sent) if sent else _NO_COUNT,
                    recv_total=total * len(received) if received else _NO_COUNT,
                    send_rate=0.0,
                    recv_rate=0.0,
                )
            )
    all_sent = [one.send_count for one in counts if one.send_total >= 0]
    all_received = [one.recv_count for one in counts if one.recv_total >= 0]
    return OpenCounts(
        sum(all_sent) if all_sent else _NO_COUNT, sum(all_received) if all_received else _NO_COUNT, tuple(counts)
    )


def _ring_flow(
    edges: Sequence[tuple[int, int]], entered: set[int], dead: frozenset[frozenset[int]], at: int, total: int
) -> dict[tuple[int, int], int]:
    """Chunks over each edge of a ring that broke, or that never was whole.

    A rank sends its own chunk first and then each one that it has received, so that behind the break everybody has
    sent one more than the one before; and nobody sends further ahead of the next rank than there are buffers.
    """
    n = len(edges)
    flow = {}
    starts = [i for i, edge in enumerate(edges) if frozenset(edge) in dead or not set(edge) <= entered]
    for i, edge in enumerate(edges):
        if frozenset(edge) in dead:
            flow[edge] = at
        elif not set(edge) <= entered:
            flow[edge] = 0
        else:
            behind = min((i - start) % n for start in starts)
            ahead = min((start - i) % n for start in starts)
            flow[edge] = min(at + behind, at + STEPS_IN_FLIGHT * ahead, total)
    return flow


def _tree_flow(
    up: Sequence[tuple[int, int]], entered: set[int], dead: frozenset[frozenset[int]], at: int
) -> dict[tuple[int, int], int]:
    """Chunks over each edge of a tree that broke, or that never was whole, up and down.

    A chunk goes up from a rank once all its children have sent theirs, and down from the root once it has all.
    """
    children: dict[int, list[int]] = {}
    for child, parent in up:
        children.setdefault(parent, []).append(child)
    is_open = {frozenset(edge): frozenset(edge) not in dead and set(edge) <= entered for edge in up}

    def is_whole(rank: int) -> bool:
        """Nothing is missing at or below it."""
        return rank in entered and all(is_open[frozenset((rank, c))] and is_whole(c) for c in children.get(rank, []))

    flow = {}
    for child, parent in up:
        passes = is_open[frozenset((child, parent))]
        flow[child, parent] = at + STEPS_IN_FLIGHT if passes and is_whole(child) else at
        if not {child, parent} <= entered:
            flow[child, parent] = 0
        flow[parent, child] = at
    return flow
