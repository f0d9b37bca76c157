"""Traces of torch.profiler (Kineto) of one job: calls numbered alike over ranks, and profiler steps.

A trace does not say how many calls came before it. Where the calls carry a number (`Seq`, torch 2.8 and later) it is
theirs; elsewhere they are counted from the first profiler step that all traces of the job have whole, and a trace
without steps is counted from its beginning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from collector.importers.call_files import kineto_calls
from collector.importers.call_files.groups import DEFAULT_GROUP, group_id, ordinals
from collector.importers.call_files.kineto_calls import Call, Trace
from collector.importers.call_files.kineto_file import TraceGroup
from collector.importers.call_files.reading import Joined, Refusal
from collector.importers.call_files.rows import CallRow, batches, once
from pacehound.model.call_file import CallFile, FileEvent
from pacehound.model.calls import Sees
from pacehound.model.events import NEVER, OPTIMIZER_STEP, Markers, Progress, RankProgress, Topology

FORMAT = "kineto"
ABOUT = "PyTorch profiler traces (Kineto)"
SPEAKS_FOR_ALL = False
SOURCE = "kineto"
ATTEMPT = 0

looks_like_one, read = kineto_calls.looks_like_one, kineto_calls.read

CANNOT_KNOW = (
    "calls before and after the window that was traced, and a call that had not ended when it closed",
    "how far the clocks of hosts differ: times are those of each host",
)

_DEFAULT = (DEFAULT_GROUP, "")


def joined(traces: Sequence[Trace], job: str) -> Joined:
    """The traces of a job's ranks."""
    by_rank: dict[int, Trace] = {}
    refused = []
    sizes = Counter(trace.world_size for trace in traces if trace.world_size)
    world_size = sizes.most_common(1)[0][0] if sizes else 0
    for trace in traces:
        if trace.world_size not in (0, world_size):
            said = f"its job has {trace.world_size} ranks, that of other traces {world_size}: they are not of one job"
            refused.append(Refusal(path=trace.path, reason=said))
        elif trace.rank in by_rank:
            said = f"{by_rank[trace.rank].path.name} is a trace of rank {trace.rank} already"
            refused.append(Refusal(path=trace.path, reason=said))
        else:
            by_rank[trace.rank] = trace
    first_step = _first_common_step(list(by_rank.values()))
    ordered_traces = [trace for _, trace in sorted(by_rank.items())]
    files = [
        _call_file(trace, first_step, of_trace, job)
        for trace, of_trace in zip(ordered_traces, _ordinals(ordered_traces), strict=True)
    ]
    return Joined(files=tuple(files), refused=tuple(refused))


def _first_common_step(traces: Sequence[Trace]) -> int | None:
    """The first profiler step that every trace has; `None` where one has none, or they have none in common."""
    every = [{step for step, _, _ in trace.steps} for trace in traces]
    common = set.intersection(*every) if every else set()
    return min(common, default=None)


def _ordinals(traces: Sequence[Trace]) -> list[dict[TraceGroup, int]]:
    """Groups of one description and the same ranks are kept apart by the order of their names, trace by trace."""
    alike: dict[tuple[str, tuple[int, ...]], dict[int, set[str]]] = {}
    for place, trace in enumerate(traces):
        for group in {call.group for call in trace.calls}:
            alike.setdefault((group.desc, group.ranks), {}).setdefault(place, set()).add(group.name)
    found: list[dict[TraceGroup, int]] = [{} for _ in traces]
    for (desc, members), names in alike.items():
        for place, of_trace in zip(names, ordinals(list(names.values())), strict=True):
            for name, ordinal in of_trace.items():
                found[place][TraceGroup(name=name, desc=desc, ranks=members)] = ordinal
    return found


def _call_file(trace: Trace, first_step: int | None, ordinal_of: Mapping[TraceGroup, int], job: str) -> CallFile:
    host = trace.path.name
    from_ns = next((start_ns for step, start_ns, _ in trace.steps if step == first_step), 0)
    by_group: dict[str, tuple[TraceGroup, list[Call]]] = {}
    for call in trace.calls:
        key = group_id(job, ATTEMPT, call.group.desc, call.group.ranks, ordinal_of[call.group])
        by_group.setdefault(key, (call.group, []))[1].append(call)
    world = _world(trace, by_group, job)
    times_ns = [at for call in trace.calls for at in (call.row.start_ns, call.row.end_ns)]
    times_ns += [at for step in trace.steps for at in step[1:]]
    first_ns, last_ns = min(times_ns, default=0), max(times_ns, default=0)
    world_size = max(trace.world_size, trace.rank + 1, *(max(g.ranks) + 1 for g, _ in by_group.values()), 1)
    topologies: list[FileEvent] = []
    rows: list[FileEvent] = []
    progress: list[FileEvent] = []
    before = twice = 0
    described = {key: group for key, (group, _) in by_group.items()}
    if world is not None and world not in described:
        described[world] = TraceGroup(name="0", desc=_DEFAULT[0], ranks=tuple(range(trace.world_size)))
    for key, group in described.items():
        topologies.append(
            Topology(
                job=job,
                attempt=ATTEMPT,
                time_ns=first_ns,
                host=host,
                communicator=key,
                name=group.desc or group.name,
                is_world=key == world,
                members=group.ranks,
                host_ranks=(trace.rank,),
                world_size=world_size,
                backend="nccl",
            )
        )
        calls = by_group[key][1] if key in by_group else []
        numbered, early = _numbered(calls, from_ns)
        kept, again = once(numbered)
        before += early
        twice += again
        rows += batches(kept, job=job, attempt=ATTEMPT, host=host, communicator=key, source=SOURCE, sees=_sees(kept))
        last = max((row.seq for row in kept), default=NEVER)
        progress.append(
            Progress(
                job=job,
                attempt=ATTEMPT,
                time_ns=last_ns,
                host=host,
                communicator=key,
                ranks=(RankProgress(rank=trace.rank, last_launched=last, last_completed=last),),
                announced=tuple(sorted(described)) if key == world else (),
                marks_iterations=key == world and bool(trace.steps),
            )
        )
    markers = [_markers(trace, world, job)] if world is not None and trace.steps else []
    return CallFile(
        path=str(trace.path),
        format=FORMAT,
        ranks=(trace.rank,),
        events=(*topologies, *rows, *markers, *progress),
        world_size=trace.world_size,
        cannot_know=CANNOT_KNOW,
        notes=tuple(_notes(trace, first_step, before, twice)),
    )


def _world(trace: Trace, by_group: Mapping[str, tuple[TraceGroup, list[Call]]], job: str) -> str | None:
    """The id of the group of all ranks; its members are known as soon as the size of the world is."""
    if trace.rank >= trace.world_size:
        return None
    everybody = tuple(range(trace.world_size))
    for key, (group, _) in by_group.items():
        if group.desc in _DEFAULT and tuple(sorted(group.ranks)) == everybody:
            return key
    return group_id(job, ATTEMPT, _DEFAULT[0], everybody, 0)


def _numbered(calls: Sequence[Call], from_ns: int) -> tuple[list[CallRow], int]:
    """The rows with their numbers, and how many came before the counting began."""
    if calls and all(call.seq >= 0 for call in calls):
        return [replace(call.row, seq=call.seq) for call in calls], 0
    ordered = sorted((call.row for call in calls), key=lambda row: (row.launch_ns or row.start_ns, row.start_ns))
    kept = [row for row in ordered if (row.launch_ns or row.start_ns) >= from_ns]
    return [replace(row, seq=seq) for seq, row in enumerate(kept)], len(ordered) - len(kept)


def _sees(rows: Sequence[CallRow]) -> Sees:
    return Sees.ALL if rows and all(row.launch_ns for row in rows) else Sees.START | Sees.END


def _markers(trace: Trace, world: str, job: str) -> Markers:
    return Markers(
        job=job,
        attempt=ATTEMPT,
        host=trace.path.name,
        communicator=world,
        ranks=(trace.rank,) * len(trace.steps),
        names=(OPTIMIZER_STEP,) * len(trace.steps),
        steps=tuple(step for step, _, _ in trace.steps),
        times_ns=tuple(end_ns for _, _, end_ns in trace.steps),
    )


def _notes(trace: Trace, first_step: int | None, before: int, twice: int) -> Iterator[str]:
    if trace.without_collective:
        yield f"{trace.without_collective} NCCL kernels do not say which collective they belong to and are left out"
    if trace.without_ranks:
        yield f"{trace.without_ranks} calls of groups whose ranks are not told are left out"
    if trace.pairs:
        yield f"{trace.pairs} point-to-point calls are left out: they have no number that both sides share"
    if twice:
        yield f"{twice} calls have the number of another and are left out"
    if any(call.seq < 0 for call in trace.calls):
        since = "the trace's beginning" if first_step is None else f"profiler step {first_step}"
        yield f"its calls carry no number and are counted from {since}" + (f"; {before} came before" if before else "")
