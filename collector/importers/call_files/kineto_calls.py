"""The calls and steps of one trace of torch.profiler (Kineto).

A kernel of NCCL is one rank's part in a call, with start and end on the device. Its collective (name, elements, group,
ranks) stands in its own `args`, or, where the profiler wrote none there, in the `record_param_comms` operation that
launched it: the launch that has the kernel's correlation lies within it. Kernels of one operation are one call.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.rows import CallRow
from collector.importers.call_files.values import text, whole
from pacehound.model.calls import UNKNOWN_COUNT

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
