"""Over which edge of a ring or a tree a collective does not move, by what its ranks have sent (CCL-D 4.1.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from pacehound.model.events import OpenCall
from streams.hang.rank_progress import ProgressTable
from streams.hang.wait_graph import StuckCall

Int64Array = npt.NDArray[np.int64]


def stuck_link(table: ProgressTable, call: StuckCall, host_of: Mapping[int, str]) -> tuple[tuple[int, int] | None, str]:
    """The edge over which a call does not move: the only one there is, or the one that its counts point to.

    Of a call that everybody has entered and nobody finishes: the edge, or `None` where nothing singles one out, and
    why.
    """
    ranks = table.sequences[call.sequence].ranks
    open_calls = [table.open_call(call.sequence, rank, call.seq) for rank in ranks]
    sent = np.array([-1 if one is None else one.send_count for one in open_calls])
    received = np.array([-1 if one is None else one.recv_count for one in open_calls])
    algorithms = {one.algorithm for one in open_calls if one is not None}
    link, words = None, ""
    if "tree" in algorithms:
        link, words = _tree_link(ranks, sent, received, host_of)
    elif algorithms <= {"", "ring"}:  # of others it is not known who sends to whom
        calls = {rank: one for rank, one in zip(ranks, open_calls, strict=True) if one is not None}
        has_channels = any(one.channels for one in calls.values())
        link, words = _channel_link(calls) if has_channels else _ring_link(ranks, sent, received)
    return ((ranks[0], ranks[1]) if len(ranks) == 2 else link), words


def _channel_link(calls: Mapping[int, OpenCall]) -> tuple[tuple[int, int] | None, str]:
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
            return None, ""
        links.setdefault((a, b), []).append(number)
    if len(links) != 1:
        return None, ""
    (((a, b), numbers),) = links.items()
    stuck = [one for one in calls[a].channels if one.channel in numbers]
    words = (
        f"on channel{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))} (modulo 8) rank {a} has sent "
        f"{sum(one.send_count for one in stuck)} of {sum(one.send_total for one in stuck)} chunks: more is left to it, "
        f"and to rank {b} to receive, than to any other rank"
    )
    if all(one.send_rate == 0 for one in stuck):
        still_s = max(0, max(one.still_since_ns for one in stuck) - calls[a].launch_ns) / 1e9
        words += f"; nothing has moved there since {still_s:.1f} s after it launched the call"
    if any(one.recv_total < 0 for one in stuck):
        words += f"; what reaches rank {a} inside of its host is not counted and would look the same"
    return (a, b), words


def _most(left: Mapping[int, int]) -> int | None:
    """The rank with the most left, where it is alone, of at least two."""
    ranked = sorted(left, key=lambda rank: left[rank])
    return ranked[-1] if len(ranked) > 1 and left[ranked[-1]] > left[ranked[-2]] else None


def _ring_link(ranks: Sequence[int], sent: Int64Array, received: Int64Array) -> tuple[tuple[int, int] | None, str]:
    """The edge over which least has passed.

    Over a dead edge passes nothing more, while each rank further on sends one chunk more than the one before it, out
    of what was in the pipe. An edge whose two ends count nothing has no part in the network (NVLink): it is not the
    least, and one that lies right before the least would look the same.
    """
    passed = np.minimum(sent, np.roll(received, -1))
    counted = np.flatnonzero((sent >= 0) & (np.roll(received, -1) >= 0))
    if len(counted) < 2:
        return None, ""
    least = counted[passed[counted] == passed[counted].min()]
    if len(least) != 1:
        return None, ""
    at = int(least[0])
    a, b = ranks[at], ranks[(at + 1) % len(ranks)]
    words = f"fewer chunks ({passed[at]}) have passed from rank {a} to rank {b} than over any other edge of the ring"
    if (at - 1) % len(ranks) not in counted:
        words += f"; what goes from rank {ranks[at - 1]} to rank {a} is not counted and would look the same"
    return (a, b), words


def _tree_link(
    ranks: Sequence[int], sent: Int64Array, received: Int64Array, host_of: Mapping[int, str]
) -> tuple[tuple[int, int] | None, str]:
    """The edge from a rank to its parent, where it has moved less than the others with the same place in the tree.

    The tree is binary, over the members in their order. A place is a layer, a number of children, and how many of the
    edges cross hosts (others are not counted). Everybody above the dead edge starves with it: the lowest one is it.
    """
    place: dict[tuple[int, int, int], list[int]] = {}
    for at, rank in enumerate(ranks):
        children = [i for i in (2 * at + 1, 2 * at + 2) if i < len(ranks)]
        neighbours = [*children, *([(at - 1) // 2] if at else [])]
        crossing = sum(host_of.get(rank) != host_of.get(ranks[i]) for i in neighbours)
        if sent[at] >= 0 and received[at] >= 0 and at:
            place.setdefault(((at + 1).bit_length(), len(children), crossing), []).append(at)
    total = sent + received
    odd = []
    for same_place in place.values():
        moved = total[same_place]
        if len(same_place) > 1 and (moved == moved.min()).sum() == 1 and moved.min() < np.median(moved):
            odd.append(same_place[int(moved.argmin())])
    if not odd:
        return None, ""
    at = max(odd)
    if any((2 * other + 1 <= at) and other not in _ancestors(at) for other in odd if other != at):
        return None, ""  # two places that do not lie above each other
    a, b = ranks[at], ranks[(at - 1) // 2]
    return (a, b), f"rank {a} has moved fewer chunks ({total[at]}) than others with its place in the tree"


def _ancestors(at: int) -> set[int]:
    above = set()
    while at:
        at = (at - 1) // 2
        above.add(at)
    return above
