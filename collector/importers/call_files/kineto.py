"""Traces of torch.profiler (Kineto): NCCL kernels with what they carry, and profiler steps.

A kernel of NCCL is one rank's part in a call, with start and end on the device. Its collective (name, elements, group,
ranks) stands in its own `args`, or, where the profiler wrote none there, in the `record_param_comms` operation that
launched it: the launch that has the kernel's correlation lies within it. Kernels of one operation are one call.

A trace does not say how many calls came before it. Where the calls carry a number (`Seq`, torch 2.8 and later) it is
theirs; elsewhere they are counted from the first profiler step that all traces of the job have whole, and a trace
without steps is counted from its beginning.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.importers.call_files.groups import DEFAULT_GROUP, group_id, ordinals
from collector.importers.call_files.kineto_file import (
    RUNTIME,
    STEP,
    GroupTable,
    Recording,
    TraceGroup,
    args_of,
    recording_of,
    span,
    thread_of,
)
from collector.importers.call_files.operations import element_type, is_call, operation
from collector.importers.call_files.reading import Joined, Refusal
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.rows import CallRow, batches, once
from collector.importers.call_files.values import text, whole
from pacehound.model.call_file import CallFile, FileEvent
from pacehound.model.calls import UNKNOWN_COUNT, Sees
from pacehound.model.events import NEVER, OPTIMIZER_STEP, Markers, Progress, RankProgress, Topology

FORMAT = "kineto"
ABOUT = "PyTorch profiler traces (Kineto)"
SPEAKS_FOR_ALL = False
SOURCE = "kineto"
ATTEMPT = 0

CANNOT_KNOW = (
    "calls before and after the window that was traced, and a call that had not ended when it closed",
    "how far the clocks of hosts differ: times are those of each host",
)

_DEFAULT = (DEFAULT_GROUP, "")
_SUITS = ("record_param_comms",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call on a group; `seq` is -1 where it carries no number."""

    group: TraceGroup
    row: CallRow
    seq: int


@dataclass(slots=True, kw_only=True)
class Trace:
    """A file.

    Attributes
    ----------
    steps
        Number, start and end of each profiler step.
    left_out
        Kernels of NCCL that say nothing of their collective, and point-to-point calls.

    """

    path: Path
    rank: int
    world_size: int
    calls: list[Call] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    without_collective: int = 0
    pairs: int = 0
    without_ranks: int = 0


def looks_like_one(head: bytes) -> bool:
    """Whether a file's first bytes are those of a trace."""
    if head.lstrip()[:1] != b"{":
        return False
    return any(name in head for name in (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"'))


def read(path: Path) -> Trace:
    """Read a file of at most `MAX_BYTES`.

    Raises
    ------
    RefusedFile
        With what is wrong; also where it has no rank, or no NCCL kernel and no step.

    """
    trace = calls_of(path, recording_of(path))
    if not trace.calls and not trace.steps:
        if trace.without_collective:
            said = f"its {trace.without_collective} NCCL kernels do not say which collective they belong to"
            raise RefusedFile(f"{said}: PyTorch 2.3 or later writes that")
        raise RefusedFile("there is no NCCL kernel and no profiler step in it")
    return trace


def calls_of(path: Path, recorded: Recording) -> Trace:
    """The calls and steps of a file; there may be none.

    Raises
    ------
    RefusedFile
        A number or a text is none.

    """
    trace = Trace(path=path, rank=recorded.rank, world_size=recorded.world_size)
    groups, base_ns = GroupTable(recorded.described), recorded.base_ns
    launches: dict[int, tuple[int, object]] = {}
    operations: dict[object, list[tuple[int, int, int, Mapping[Any, Any]]]] = {}
    kernels: list[tuple[int, int, str, Mapping[Any, Any]]] = []
    for place, one in enumerate(recorded.events):
        if one.ph != "X" or not isinstance(one.name, str):
            continue
        where = f"traceEvents[{place}]"
        if one.cat == "kernel" and one.name.startswith("nccl"):
            start_ns, end_ns = span(one, where, base_ns)
            kernels.append((start_ns, end_ns, one.name, args_of(one, where)))
        elif one.name in _SUITS:
            start_ns, end_ns = span(one, where, base_ns)
            operations.setdefault(thread_of(one), []).append((start_ns, end_ns, place, args_of(one, where)))
        elif one.cat in RUNTIME:
            correlation = args_of(one, where).get("correlation")
            if isinstance(correlation, int):
                launches[correlation] = (span(one, where, base_ns)[0], thread_of(one))
        elif one.cat == "user_annotation" and (step := STEP.match(one.name)):
            trace.steps.append((int(step[1]), *span(one, where, base_ns)))
    for listed in operations.values():
        listed.sort(key=lambda found: found[:3])
    trace.steps.sort()
    _match(trace, kernels, launches, operations, groups)
    return trace


def _match(
    trace: Trace,
    kernels: Iterable[tuple[int, int, str, Mapping[Any, Any]]],
    launches: Mapping[int, tuple[int, object]],
    operations: Mapping[object, list[tuple[int, int, int, Mapping[Any, Any]]]],
    groups: GroupTable,
) -> None:
    """A call of each operation whose kernels were seen; a kernel that knows its collective needs no operation."""
    calls: dict[object, Call] = {}
    for start_ns, end_ns, name, own in sorted(kernels, key=lambda kernel: kernel[:2]):
        correlation = own.get("correlation")
        launch = launches.get(correlation) if isinstance(correlation, int) else None
        owner = None if launch is None else _owner(operations.get(launch[1], []), launch[0])
        args = own if "Collective name" in own else owner[3] if owner is not None else {}
        if "Collective name" not in args:
            trace.without_collective += 1
            continue
        where = f"kernel {name[:40]!r}"
        collective = text(args["Collective name"], f"{where}: Collective name")
        op = operation(collective)
        if op in ("send", "recv"):
            trace.pairs += 1
            continue
        if not is_call(collective):
            continue
        key: object = ("kernel", start_ns, len(calls)) if owner is None else owner[2]
        if key in calls:
            before = calls[key]
            calls[key] = replace(before, row=replace(before.row, end_ns=max(before.row.end_ns, end_ns)))
            continue
        group = groups.group(args, where)
        if not group.ranks or trace.rank not in group.ranks:
            trace.without_ranks += 1
            continue
        algorithm, protocol = _how(name)
        stream = own.get("stream")
        calls[key] = Call(
            group=group,
            seq=whole(args.get("Seq", -1), f"{where}: Seq"),
            row=CallRow(
                rank=trace.rank,
                seq=0,
                op=op,
                dtype=element_type(text(args.get("dtype", ""), f"{where}: dtype")),
                count=max(UNKNOWN_COUNT, whole(args.get("In msg nelems", -1), f"{where}: In msg nelems")),
                algorithm=algorithm,
                protocol=protocol,
                launch_ns=owner[0] if owner is not None else launch[0] if launch is not None else 0,
                start_ns=start_ns,
                end_ns=end_ns,
                stream=stream if isinstance(stream, int) and abs(stream) < 1 << 31 else 0,
            ),
        )
    trace.calls = list(calls.values())


def _owner(
    listed: list[tuple[int, int, int, Mapping[Any, Any]]], launch_ns: int
) -> tuple[int, int, int, Mapping[Any, Any]] | None:
    """The last operation of the thread that had begun when the kernel was launched, if it had not ended."""
    place = bisect.bisect_right(listed, launch_ns, key=lambda one: one[0]) - 1
    return listed[place] if place >= 0 and launch_ns <= listed[place][1] else None


def _how(kernel: str) -> tuple[str, str]:
    """Algorithm and protocol in a kernel's name.

    >>> _how("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)"), _how("ncclDevKernel_Generic(x)")
    (('ring', 'll'), ('', ''))
    """
    found = re.search(r"_(RING|TREE|NVLS|NVLSTREE|COLLNET\w*|PAT)_(LL128|LL|SIMPLE)", kernel[:200])
    return (found[1].lower(), found[2].lower()) if found else ("", "")


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
