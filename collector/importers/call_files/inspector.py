"""Logs of NCCL's Inspector plugin of one job, keyed by world rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from collector.importers.call_files import inspector_log
from collector.importers.call_files.functions import function_topology
from collector.importers.call_files.inspector_log import FunctionCalls, Log, Process
from collector.importers.call_files.reading import Joined, Refusal
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.rows import batches, gaps, once
from collector.importers.call_files.world_ranks import Places, world_by_process
from pacehound.model.call_file import CallFile, FileEvent
from pacehound.model.calls import Sees
from pacehound.model.events import NEVER, UNTOLD, Progress, RankProgress

FORMAT = "nccl_inspector"
ABOUT = "NCCL Inspector logs"
SPEAKS_FOR_ALL = False
SOURCE = "inspector"
ATTEMPT = 0

looks_like_one, read = inspector_log.looks_like_one, inspector_log.read

CANNOT_KNOW = (
    "calls that have begun and not ended: a hang leaves nothing in it",
    "which operation of two kinds came first, and calls below NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES",
)
WITHOUT_TIMES = "when a rank entered a call and when it ran: that needs NCCL_INSPECTOR_DUMP_VERBOSE=1"


def joined(logs: Sequence[Log], job: str) -> Joined:
    """The logs of a job's processes, keyed by world rank."""
    by_process: dict[Process, Log] = {}
    refused = []
    for log in logs:
        assert log.process is not None
        if log.process in by_process:
            said = f"{by_process[log.process].path.name} is a log of process {log.process.pid} already"
            refused.append(Refusal(path=log.path, reason=said))
        else:
            by_process[log.process] = log
    try:
        world_key, world_ranks = _world(by_process)
    except RefusedFile as error:
        refused += [Refusal(path=log.path, reason=str(error)) for log in by_process.values()]
        return Joined(refused=tuple(refused))
    members = _members(by_process, world_ranks)
    world_size = next(iter(by_process.values())).sizes[world_key] if by_process else 0
    files = [
        _call_file(by_process[process], rank, members, world_key, world_size, job)
        for process, rank in sorted(world_ranks.items(), key=lambda pair: pair[1])
    ]
    return Joined(files=tuple(files), refused=tuple(refused))


def _world(by_process: Mapping[Process, Log]) -> tuple[str, dict[Process, int]]:
    places: dict[str, dict[int, Process]] = {}
    sizes: dict[str, int] = {}
    for process, log in by_process.items():
        for key, place in log.places.items():
            other = places.setdefault(key, {}).setdefault(place, process)
            if other != process or sizes.setdefault(key, log.sizes[key]) != log.sizes[key]:
                raise RefusedFile(f"two processes have place {place} in communicator {key}: the files are of two jobs")
    return world_by_process({key: Places(size=sizes[key], processes=places[key]) for key in places})


def _members(by_process: Mapping[Process, Log], world_ranks: Mapping[Process, int]) -> dict[str, list[int]]:
    members: dict[str, list[int]] = {}
    for process, log in by_process.items():
        for key in log.places:
            members.setdefault(key, []).append(world_ranks[process])
    return members


def _call_file(
    log: Log, rank: int, members: Mapping[str, list[int]], world_key: str, world_size: int, job: str
) -> CallFile:
    assert log.process is not None
    host = log.process.host or log.path.name
    topologies: list[FileEvent] = []
    rows: list[FileEvent] = []
    progress: list[FileEvent] = []
    incomplete = []
    twice = missing = 0
    # The world itself carries no calls: those of each function have a line of their own.
    lines = [
        FunctionCalls(communicator=world_key, function=""),
        *sorted(log.calls, key=lambda one: (one.communicator, one.function)),
    ]
    for line in lines:
        key = line.communicator
        known = sorted(range(world_size) if key == world_key else members[key])
        if len(known) < log.sizes[key]:
            incomplete.append(log.names[key])
            continue
        topology = function_topology(
            job=job,
            attempt=ATTEMPT,
            time_ns=0,
            host=host,
            name=log.names[key],
            key=key,
            function=line.function,
            members=known,
            host_ranks=(rank,),
            world_size=world_size,
        )
        topologies.append(topology)
        if not line.function:
            continue
        calls, again = once([dataclasses.replace(row, rank=rank) for row in log.calls[line]])
        twice += again
        last = max((row.seq for row in calls), default=NEVER)
        missing += gaps([row.seq for row in calls])
        rows += batches(
            calls,
            job=job,
            attempt=ATTEMPT,
            host=host,
            communicator=topology.communicator,
            source=SOURCE,
            sees=Sees.ALL if log.has_times else Sees.NOTHING,
            dropped=log.dropped.get(key, 0),
        )
        progress.append(
            Progress(
                job=job,
                attempt=ATTEMPT,
                time_ns=max((row.end_ns for row in calls), default=0),
                host=host,
                communicator=topology.communicator,
                # What has been launched and has not ended is not written.
                ranks=(RankProgress(rank=rank, last_launched=UNTOLD, last_completed=last),),
                dropped_total=log.dropped.get(key, 0),
            )
        )
    return CallFile(
        path=str(log.path),
        format=FORMAT,
        ranks=(rank,),
        events=(*topologies, *rows, *progress),
        world_size=world_size,
        cannot_know=CANNOT_KNOW if log.has_times else (*CANNOT_KNOW, WITHOUT_TIMES),
        notes=(
            *log.notes,
            f"world ranks are the places in communicator {log.names[world_key]}, the largest, which has every process",
            *_notes(log, incomplete, twice, missing),
        ),
    )


def _notes(log: Log, incomplete: Sequence[str], twice: int, missing: int) -> Iterator[str]:
    if log.pairs:
        yield f"{log.pairs} point-to-point calls are left out: they have no number that both sides share"
    if incomplete:
        names = ", ".join(dict.fromkeys(incomplete))
        yield f"the logs of some members of {names[:200]} are missing: its calls are left out"
    if twice:
        yield f"{twice} calls have the number of another and are left out"
    if missing:
        yield f"{missing} calls are missing between those that are there: too small, overwritten, or not timed"
