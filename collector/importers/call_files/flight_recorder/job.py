"""The dumps of one job: who is in which group, what has ended, and how far every rank was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from collector.importers.call_files.flight_recorder import dump as one_dump
from collector.importers.call_files.flight_recorder.batches import Settled, is_open, settled
from collector.importers.call_files.flight_recorder.dump import Counters, Dump, Entry
from collector.importers.call_files.flight_recorder.groups import (
    GroupIds,
    counters_by_name,
    described,
    is_default,
    matched,
    world_of,
)
from collector.importers.call_files.flight_recorder.progress import agrees, rank_progress
from collector.importers.call_files.flight_recorder.whose import world_rank
from collector.importers.call_files.reading import Joined, Refusal
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.rows import CallRow, batches, once
from pacehound.model.call_file import CallFile, FileEvent
from pacehound.model.calls import Sees
from pacehound.model.events import Progress, Topology

FORMAT = "flight_recorder"
ABOUT = "Flight Recorder dumps (pickle or JSON)"
SPEAKS_FOR_ALL = False
SOURCE = "flight_recorder"
ATTEMPT = 0

looks_like_one, read = one_dump.looks_like_one, one_dump.read

CANNOT_KNOW = (
    "calls that the recorder's ring had overwritten, and whatever else the rank did: its stack, other libraries",
    "when a call ended on the device: its end is noticed by polling, and its start only with TORCH_NCCL_ENABLE_TIMING",
    "whether a small send whose receive is open has ended: its bytes may wait in NCCL's buffers",
    "whether the rank's process was running when it was asked: a dump is written by a thread of its own",
)


def joined(dumps: Sequence[Dump], job: str) -> Joined:
    """What the dumps of one job say together; a dump that cannot be one of them is refused.

    Parameters
    ----------
    dumps
        Of one job, in any order.
    job
        Its name.

    """
    taken, refused = _of_one_job(dumps)
    told = {rank: {name for name, group in dump.groups.items() if group.ranks} for rank, dump in taken}
    taken = described(taken)
    groups = matched([dump for _, dump in taken], job, ATTEMPT)
    files = [_call_file(place, rank, dump, groups, job, told[rank]) for place, (rank, dump) in enumerate(taken)]
    return Joined(files=tuple(files), refused=tuple(refused))


def _of_one_job(dumps: Sequence[Dump]) -> tuple[list[tuple[int, Dump]], list[Refusal]]:
    """Dumps that can be of one job, by rank: one of each rank, and of one world."""
    by_rank: dict[int, Dump] = {}
    refused = []
    worlds = Counter(world for dump in dumps if (world := world_of(dump)))
    world = worlds.most_common(1)[0][0] if worlds else ()
    for dump in dumps:
        try:
            rank = world_rank(dump)
            if world_of(dump) not in ((), world):
                said = f"its job has {len(world_of(dump))} ranks, that of the other dumps {len(world)}"
                raise RefusedFile(f"{said}: they are not of one job")
            if rank in by_rank:
                raise RefusedFile(f"{by_rank[rank].path.name} is the dump of rank {rank} already")
        except RefusedFile as error:
            refused.append(Refusal(path=dump.path, reason=str(error)))
        else:
            by_rank[rank] = dump
    return sorted(by_rank.items(), key=lambda pair: pair[0]), refused


def _call_file(place: int, rank: int, dump: Dump, groups: GroupIds, job: str, told: set[str]) -> CallFile:
    of_group: dict[str, list[Entry]] = {name: [] for name in dump.groups}
    for one in dump.entries:
        of_group[one.group].append(one)
    calls = {name: settled(entries) for name, entries in of_group.items()}
    counters = counters_by_name(dump)
    events: list[FileEvent] = []
    times_ns = [time_ns for one in dump.entries for time_ns in (one.launch_ns, one.completed_ns) if time_ns]
    first_ns, last_ns = min(times_ns, default=0), max(times_ns, default=0)
    world = world_of(dump)
    # However little of the world is told, it is at least so large.
    world_size = max(
        len(world), max((max(group.ranks) for group in dump.groups.values() if group.ranks), default=rank) + 1
    )
    ids = {name: groups.communicators[place, name] for name in dump.groups}
    for name, group in dump.groups.items():
        events.append(
            Topology(
                job=job,
                attempt=ATTEMPT,
                time_ns=first_ns,
                host=dump.path.name,
                communicator=ids[name],
                name=group.desc or group.name,
                is_world=is_default(group),
                members=group.ranks,
                host_ranks=(rank,) if rank in group.ranks else (),
                world_size=world_size,
                backend=next((one.backend for one in calls[name].entries), ""),
                timeout_s=_timeout_s(calls[name]),
            )
        )
    twice = 0
    for name in dump.groups:
        rows, again = once([_row(rank, one) for one in calls[name].entries if _has_ended(one)])
        twice += again
        events += batches(
            rows,
            job=job,
            attempt=ATTEMPT,
            host=dump.path.name,
            communicator=ids[name],
            source=SOURCE,
            sees=Sees.LAUNCH | Sees.END,
        )
    for name, group in dump.groups.items():
        progress = rank_progress(
            rank,
            group,
            calls[name],
            counters=counters.get(name),
            has_pairs=group.desc in groups.with_pairs,
            sees_starts=dump.sees_starts,
        )
        events.append(
            Progress(
                job=job,
                attempt=ATTEMPT,
                time_ns=last_ns,
                host=dump.path.name,
                communicator=ids[name],
                ranks=(progress,),
                announced=tuple(sorted(ids.values())) if is_default(group) else (),
            )
        )
    return CallFile(
        path=str(dump.path),
        format=FORMAT,
        ranks=(rank,),
        events=tuple(events),
        world_size=len(world),
        cannot_know=CANNOT_KNOW,
        notes=(*dump.notes, *_notes(dump, calls, counters, groups, twice, told)),
    )


def _has_ended(one: Entry) -> bool:
    """Point-to-point calls that have ended have no number that both sides share, so no row can be made of them."""
    return not is_open(one) and not one.is_p2p and one.completed_ns > 0


def _row(rank: int, one: Entry) -> CallRow:
    return CallRow(
        rank=rank,
        seq=one.collective_seq,
        op=one.op,
        dtype=one.dtype,
        count=one.count,
        launch_ns=one.launch_ns,
        end_ns=one.completed_ns,
    )


def _timeout_s(calls: Settled) -> float | None:
    timeout_ms = min((one.timeout_ms for one in calls.entries if one.timeout_ms), default=0)
    return timeout_ms / 1e3 if timeout_ms else None


def _notes(
    dump: Dump, calls: dict[str, Settled], counters: dict[str, Counters], groups: GroupIds, twice: int, told: set[str]
) -> Iterator[str]:
    if not dump.entries:
        yield "no call is in it: all that it had launched had ended, or was overwritten"
    if untold := sorted(dump.groups.keys() - told):
        yield f"it does not say who is in groups {', '.join(untold)[:200]}: those who have called something on them are"
    if unended := sum(of_group.unended for of_group in calls.values()):
        yield f"{unended} calls of batches that are not in it any more, or were not launched yet, do not count as open"
    if nameless := sum(of_group.nameless for of_group in calls.values()):
        yield f"{nameless} open batches of point-to-point calls do not say whom they wait for"
    if timed_out := sum(one.is_retired and is_open(one) for of_group in calls.values() for one in of_group.entries):
        yield f"{timed_out} calls were given up by the watchdog and count as open"
    if twice:
        yield f"{twice} calls have the number of another on their group and are left out"
    if ended := sum(not is_open(one) and one.is_p2p for of_group in calls.values() for one in of_group.entries):
        yield f"{ended} point-to-point calls that have ended are left out: their numbers differ between ranks"
    mixed = [
        group.desc
        for name, group in dump.groups.items()
        if group.desc not in groups.with_pairs and name in counters and not agrees(counters[name], calls[name])
    ]
    if mixed:
        yield f"the counters of {', '.join(sorted(set(mixed)))[:200]} contradict their calls and are not used"
