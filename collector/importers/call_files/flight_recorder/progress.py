"""How far one rank was on one group when its dump was taken.

Collectives have the group's `collective_seq_id`, which all members share. Point-to-point calls have a counter that
runs apart on every rank (a stage in the middle of a pipeline makes more of them than one at its end), so it names
nothing that two ranks have in common. The open calls to (from) one peer are numbered from 0, the oldest first,
instead: NCCL carries out the calls between two ranks in the order in which they were made, and a transfer that one
side still waits in has as a rule not ended on the other, so the oldest open send of one rank and the oldest open
receive of the other are halves of the same transfer, whatever either has counted before. The exception is a send of
a few megabytes at most, which may end as soon as its bytes are in NCCL's buffers.

`pg_status` holds one number for both kinds: that of the last work, collective or not. It is used for a group on
whose kind no rank has made a point-to-point call, and only where it does not contradict the entries. On the others
the entries say how far the collectives are: each, point-to-point too, carries the collective counter of its moment.
Without entries there the counter stays untold.
"""

from __future__ import annotations

from collector.importers.call_files.flight_recorder.batches import Settled, is_open
from collector.importers.call_files.flight_recorder.dump import Counters, DumpGroup, Entry
from pacehound.model.events import NEVER, UNTOLD, OpenCall, PairProgress, RankProgress


def rank_progress(
    rank: int, group: DumpGroup, calls: Settled, *, counters: Counters | None, has_pairs: bool, sees_starts: bool
) -> RankProgress:
    """The open calls of a rank on a group, all of them, and its counters.

    Parameters
    ----------
    rank
        World rank.
    group
        On which.
    calls
        Its entries there.
    counters
        Its counters there, where they could be told.
    has_pairs
        Some rank has made point-to-point calls on groups of this kind.
    sees_starts
        `scheduled` means not started, rather than not known.

    """
    open_entries = [one for one in calls.entries if is_open(one)]
    open_calls = []
    ordinals: dict[tuple[int, str], int] = {}
    for one in open_entries:
        seq, peer = one.collective_seq, -1
        if one.is_p2p and one.direction != "none":
            peer = _peer(group, one)
            seq = ordinals.get((peer, one.direction), 0)
            ordinals[peer, one.direction] = seq + 1
        open_calls.append(
            OpenCall(
                seq=seq,
                op=one.op,
                count=one.count,
                dtype=one.dtype,
                launch_ns=one.launch_ns,
                peer=peer,
                direction=one.direction,
                has_started=one.state == "started" if sees_starts else None,
            )
        )
    pairs = tuple(
        PairProgress(peer=peer, direction=direction, last_launched=made - 1, last_completed=NEVER)
        for (peer, direction), made in sorted(ordinals.items())
    )
    launched, completed = _collectives(calls, counters, has_pairs=has_pairs)
    return RankProgress(
        rank=rank, last_launched=launched, last_completed=completed, open=tuple(open_calls), pairs=pairs
    )


def agrees(counters: Counters, calls: Settled) -> bool:
    """Whether a group's counters can be those of its collectives: none of the entries is beyond them."""
    newest = max((one.collective_seq for one in calls.entries), default=NEVER)
    return counters.completed <= counters.enqueued and newest <= counters.enqueued


def _collectives(calls: Settled, counters: Counters | None, *, has_pairs: bool) -> tuple[int, int]:
    """The last launched and the last completed collective."""
    oldest_open = min((one.collective_seq for one in calls.entries if is_open(one) and not one.is_p2p), default=None)
    if counters is not None and not has_pairs and agrees(counters, calls):
        completed = counters.completed if oldest_open is None else min(counters.completed, oldest_open - 1)
        return counters.enqueued, completed
    if calls.entries:
        newest = max(one.collective_seq for one in calls.entries)
        return newest, newest if oldest_open is None else oldest_open - 1
    return UNTOLD, UNTOLD


def _peer(group: DumpGroup, one: Entry) -> int:
    places = group.ranks
    return places[one.peer_place] if 0 <= one.peer_place < len(places) else -1
