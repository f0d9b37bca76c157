"""Over which edge of a ring or a tree a collective does not move, by what its ranks have sent (CCL-D 4.1.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from pacehound.model.events import OpenCall
from pacehound.model.evidence.transfers import AssumedEdges
from pacehound.model.evidence.waiting import StuckChannels, StuckRingEdge, StuckTreeEdge
from pacehound.model.topology import ring_edges
from streams.hang.rank_progress import ProgressTable
from streams.hang.thresholds import MIN_TO_PASS
from streams.hang.wait_graph import StuckCall
from streams.rounds.edges import ROOT, Edge, HostTree, assumed_trees, hosts_in_order, seen_tree

StuckEdge = StuckChannels | StuckRingEdge | StuckTreeEdge | AssumedEdges

Int64Array = npt.NDArray[np.int64]


def stuck_link(
    table: ProgressTable, call: StuckCall, host_of: Mapping[int, str]
) -> tuple[tuple[int, int] | None, StuckEdge | None]:
    """The edge over which a call does not move: the only one there is, or the one that its counts point to.

    Of a call that everybody has entered and nobody finishes: the edge, or `None` where nothing singles one out, and
    why.
    """
    ranks = table.sequences[call.sequence].ranks
    open_calls = [table.open_call(call.sequence, rank, call.seq) for rank in ranks]
    sent = np.array([-1 if one is None else one.send_count for one in open_calls])
    received = np.array([-1 if one is None else one.recv_count for one in open_calls])
    algorithms = {one.algorithm for one in open_calls if one is not None}
    communicator = table.sequences[call.sequence].communicator
    calls = {rank: one for rank, one in zip(ranks, open_calls, strict=True) if one is not None}
    link, why = None, None
    if "tree" in algorithms:
        if len(calls) == len(ranks):
            link, why = _tree_link(calls, ranks, host_of, partial(table.seen_edges.of_channel, communicator, "tree"))
    elif algorithms <= {"", "ring"}:  # of others it is not known who sends to whom
        edges = table.seen_edges.of_all_channels(communicator, "ring")
        if any(one.channels for one in calls.values()):
            link, why = _channel_link(calls)
            if link is not None and edges and (ranks.index(link[0]), ranks.index(link[1])) not in edges:
                link, why = None, None  # nothing goes from the one to the other
        else:
            link, why = _ring_link(ranks, edges, sent, received)
    return ((ranks[0], ranks[1]) if len(ranks) == 2 else link), why


def _channel_link(calls: Mapping[int, OpenCall]) -> tuple[tuple[int, int] | None, StuckEdge | None]:
    """The edge at whose one end most is left to be sent on a channel, and most to be received at its other.

    Each channel is a ring of its own, which need not go through the ranks in their order, nor over the network between
    all of them: only ranks that have a part in it are compared. Of a channel that has finished nothing is left, so
    that channels which are added up count right, too.
    """
    links: dict[tuple[int, int], list[int]] = {}
    for number in sorted({channel.channel for call in calls.values() for channel in call.channels}):
        here = {rank: one for rank, call in calls.items() for one in call.channels if one.channel == number}
        to_send = {rank: one.send_total - one.send_count for rank, one in here.items() if one.send_total >= 0}
        to_receive = {rank: one.recv_total - one.recv_count for rank, one in here.items() if one.recv_total >= 0}
        if not any(to_send.values()) and not any(to_receive.values()):
            continue
        a, b = _most(to_send), _most(to_receive)
        if a is None or b is None or a == b:
            return None, None
        links.setdefault((a, b), []).append(number)
    if len({frozenset(link) for link in links}) != 1:
        return None, None
    # Rings may use an edge both ways: it is one edge, and what is said of it is of the first way.
    ((a, b), numbers), *_ = links.items()
    stuck = [one for one in calls[a].channels if one.channel in numbers]
    is_still = all(one.send_rate == 0 for one in stuck)
    still_s = max(0, max(one.still_since_ns for one in stuck) - calls[a].launch_ns) / 1e9
    return (a, b), StuckChannels(
        link=(a, b),
        channels=tuple(numbers),
        n_sent=sum(one.send_count for one in stuck),
        n_to_send=sum(one.send_total for one in stuck),
        still_after_s=still_s if is_still else None,
        is_uncounted_inside=any(one.recv_total < 0 for one in stuck),
    )


def _most(left: Mapping[int, int]) -> int | None:
    """The rank with the most left, where it is alone, of at least two."""
    ranked = sorted(left, key=lambda rank: left[rank])
    return ranked[-1] if len(ranked) > 1 and left[ranked[-1]] > left[ranked[-2]] else None


def _ring_link(
    ranks: Sequence[int], seen: frozenset[Edge], sent: Int64Array, received: Int64Array
) -> tuple[tuple[int, int] | None, StuckEdge | None]:
    """The edge over which least has passed, of those that were seen, else of a ring through the ranks in their order.

    Over a dead edge passes nothing more, while each rank further on sends one chunk more than the one before it, out
    of what was in the pipe. An edge whose two ends count nothing has no part in the network (NVLink): it is not the
    least, and one that lies right before the least would look the same.
    """
    edges = sorted(seen) or ring_edges(tuple(range(len(ranks))))
    if len({a for a, _ in edges}) < len(edges):
        return None, None  # channels have rings of their own, and these counts are of all of them
    counted = [(min(int(sent[a]), int(received[b])), a, b) for a, b in edges if sent[a] >= 0 and received[b] >= 0]
    if len(counted) < 2:
        return None, None
    least = [edge for edge in counted if edge[0] == min(counted)[0]]
    if len(least) != 1:
        return None, None
    passed, a, b = least[0]
    link = (ranks[a], ranks[b])
    is_counted = a in {receiver for _, _, receiver in counted}
    before = None if is_counted else next((ranks[x] for x, y in edges if y == a), -1)
    return link, StuckRingEdge(link=link, n_passed=passed, before=before, is_assumed=not seen)


def _tree_link(
    calls: Mapping[int, OpenCall],
    ranks: Sequence[int],
    host_of: Mapping[int, str],
    seen: Callable[[int], frozenset[Edge]],
) -> tuple[tuple[int, int] | None, StuckEdge | None]:
    """The edge of a tree over which a host has data to pass up, and its parent waits for them.

    On each channel that has not finished the edges are those that were seen there, else NCCL's own. What passed over
    each of them follows from what the hosts have sent and received, from the leaves up.
    """
    hosts = hosts_in_order(host_of.get(rank) for rank in ranks)
    n_hosts = max(hosts) + 1
    numbers = sorted({channel.channel for call in calls.values() for channel in call.channels})
    links: dict[tuple[int, int], list[int]] = {}
    is_assumed = False
    for number in numbers:
        here = [next((one for one in calls[rank].channels if one.channel == number), None) for rank in ranks]
        left = [one.send_total - one.send_count + one.recv_total - one.recv_count for one in here if one is not None]
        announced = [one.send_total for one in here if one is not None and one.send_total > 0]
        if not any(left):
            continue
        edges = seen(number)
        tree = seen_tree(edges, hosts) if edges else assumed_trees(hosts)[2 * numbers.index(number) >= len(numbers)]
        if tree is None:
            return None, AssumedEdges(algorithm="tree", n_hosts=n_hosts, odd_channel=number)
        is_assumed |= not edges
        moved = [[0, 0] for _ in range(n_hosts)]
        for host, one in zip(hosts, here, strict=True):
            if one is not None:
                moved[host][0] += max(one.send_count, 0)
                moved[host][1] += max(one.recv_count, 0)
        below = _starved_below(tree, moved, min(announced, default=0))  # a leaf has one edge, and all to pass over it
        if below is None:
            return None, None
        a, b = tree.ends[below]
        links.setdefault((ranks[a], ranks[b]), []).append(number)
    if len({frozenset(link) for link in links}) != 1:
        return None, None
    ((a, b), stuck), *_ = links.items()
    return (a, b), StuckTreeEdge(link=(a, b), channel=stuck[0], assumed_hosts=n_hosts if is_assumed else None)


def _starved_below(tree: HostTree, moved: Sequence[Sequence[int]], total: int) -> int | None:
    """The host below the edge that does not move, where there is one.

    A host passes up each chunk that all hosts below it have passed to it. Above a dead edge each host waits for the one
    below and has nothing to pass; the first one on the way down that has is at the lower end of the edge.
    """
    children: dict[int, list[int]] = {}
    for below, above in enumerate(tree.parents):
        children.setdefault(above, []).append(below)
    order = [children[ROOT][0]]
    for host in order:
        order += children.get(host, [])
    up, down = [0] * len(order), [0] * len(order)
    for host in reversed(order):
        sent, received = moved[host]
        up[host] = sent - sum(down[child] for child in children.get(host, []))
        down[host] = received - sum(up[child] for child in children.get(host, []))
    (root, *others) = order
    if not others or min(up[host] for host in others) < 0 or min(down[host] for host in others) < 0:
        return None  # these counts are not of this tree
    host = root
    while waiting := children.get(host, []):
        least = min(up[child] for child in waiting)
        if [up[child] for child in waiting].count(least) > 1:
            return None
        host = next(child for child in waiting if up[child] == least)
        if min((up[child] for child in children.get(host, [])), default=total) - least >= MIN_TO_PASS:
            return host
    return None
