"""What a trace of torch.profiler tells of a rank's steps: marked micro-batches, backward passes, optimizer, transfers.

A mark is a range of `torch.profiler.record_function` whose name is `pacehound:` and an operation type, followed by
numbers: `pacehound:forward-compute stage=0 chunk=0 mb=3 pipeline=0`. Marks, steps and the optimizer's range are times
of the host. Where kernels were traced, the device's count: for a computation from the first to the last kernel (NCCL's
left out) that was launched within the range, by whatever thread; for a transfer those of the first send or receive.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from collector.importers.call_files import kineto_calls
from collector.importers.call_files.kineto_file import RUNTIME, Recording, args_of, recording_of, span
from collector.importers.call_files.operations import operation
from collector.importers.call_files.refusal import RefusedFile
from collector.importers.call_files.values import printable
from pacehound.model.operations import OPTYPES

PREFIX: Final = "pacehound:"
TRANSFERS: Final = ("forward-send", "forward-recv", "backward-send", "backward-recv")
COMPUTES: Final = ("forward-compute", "backward-compute")

_NUMBERS = re.compile(r"([a-z-]+)((?: (?:stage|chunk|mb|pipeline)=[0-9]{1,7})*)\Z")
_OPTIMIZER = "Optimizer.step#"
_BACKWARD = "autograd::engine::evaluate_function: "
_GLOO = "gloo:"
_SHARDED = ("FSDP::", "FullyShardedDataParallel.")
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")

Span = tuple[int, int]
"""Start and end in Unix nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """One operation: its type, the numbers that its mark has, and when.

    Attributes
    ----------
    launched_ns
        On the host: tells the step that it is of.

    """

    optype: str
    numbers: Mapping[str, int]
    launched_ns: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """A rank's part in a collective; `ranks` are empty where the trace does not say whose it is (gloo's never do)."""

    op: str
    ranks: tuple[int, ...]
    launched_ns: int
    start_ns: int
    end_ns: int


@dataclass(slots=True, kw_only=True)
class RankRanges:
    """A file.

    Attributes
    ----------
    steps
        By number.
    backwards
        Nodes of the backward graph that autograd ran.
    has_pairs
        The rank sends to others, or receives.
    is_sharded
        It gathers parameters within its passes (FSDP).

    """

    path: Path
    rank: int
    world_size: int
    steps: dict[int, Span]
    marks: list[Range] = field(default_factory=list)
    optimizers: list[Range] = field(default_factory=list)
    backwards: list[Span] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    has_pairs: bool = False
    is_sharded: bool = False
    device: _Device = field(default_factory=lambda: _Device())


@dataclass(slots=True)
class _Device:
    """What ran on the device, each with the time of its launch; sorted by it once `sort` was called."""

    computes: list[tuple[int, int, int]] = field(default_factory=list)
    transfers: list[tuple[int, int, int]] = field(default_factory=list)

    def sort(self) -> None:
        self.computes.sort()
        self.transfers.sort()

    def compute(self, host: Span) -> Span:
        """From the first to the last that was launched within a range of the host; that range where none was."""
        within = _launched_within(self.computes, host)
        return (min(one[1] for one in within), max(one[2] for one in within)) if within else host

    def transfer(self, host: Span) -> Span:
        """The first that was launched within a range of the host; that range where none was."""
        within = _launched_within(self.transfers, host)
        return within[0][1:] if within else host


def _launched_within(work: list[tuple[int, int, int]], host: Span) -> list[tuple[int, int, int]]:
    return work[bisect.bisect_left(work, (host[0],)) : bisect.bisect_left(work, (host[1] + 1,))]


def read_ranges(path: Path) -> RankRanges:
    """Read a file.

    Raises
    ------
    RefusedFile
        It is no trace, or a mark, a number or a time in it is none.

    """
    recorded = recording_of(path)
    calls = kineto_calls.calls_of(path, recorded)
    found = RankRanges(
        path=path,
        rank=recorded.rank,
        world_size=recorded.world_size,
        steps={number: (start_ns, end_ns) for number, start_ns, end_ns in calls.steps},
        has_pairs=calls.pairs > 0,
    )
    for call in calls.calls:
        row = call.row
        launched_ns = row.launch_ns or row.start_ns
        one = Collective(
            op=row.op, ranks=call.group.ranks, launched_ns=launched_ns, start_ns=row.start_ns, end_ns=row.end_ns
        )
        found.collectives.append(one)
    _read_device(found, recorded)
    _read_host(found, recorded)
    return found


def _read_device(found: RankRanges, recorded: Recording) -> None:
    launches: dict[int, int] = {}
    work: list[tuple[object, str, Span]] = []
    for place, one in enumerate(recorded.events):
        if one.ph != "X" or not isinstance(one.name, str) or not isinstance(one.cat, str):
            continue
        where = f"traceEvents[{place}]"
        if one.cat in RUNTIME:
            correlation = args_of(one, where).get("correlation")
            if isinstance(correlation, int):
                launches[correlation] = span(one, where, recorded.base_ns)[0]
        elif one.cat in _DEVICE_WORK:
            correlation = args_of(one, where).get("correlation")
            work.append((correlation, one.name, span(one, where, recorded.base_ns)))
    for correlation, name, times_ns in work:
        launched_ns = launches.get(correlation) if isinstance(correlation, int) else None
        if launched_ns is None:
            continue
        if not name.startswith("nccl"):
            found.device.computes.append((launched_ns, *times_ns))
        elif "SendRecv" in name:
            found.device.transfers.append((launched_ns, *times_ns))
    found.device.sort()


def _read_host(found: RankRanges, recorded: Recording) -> None:
    for place, one in enumerate(recorded.events):
        if one.ph != "X" or not isinstance(one.name, str):
            continue
        where = f"traceEvents[{place}]"
        if one.cat == "cpu_op" and one.name.startswith(_BACKWARD):
            found.backwards.append(span(one, where, recorded.base_ns))
        elif one.cat != "user_annotation":
            continue
        elif one.name.startswith(PREFIX):
            found.marks.append(_mark(one.name, span(one, where, recorded.base_ns), found))
        elif one.name.startswith(_OPTIMIZER):
            host_ns = span(one, where, recorded.base_ns)
            start_ns, end_ns = found.device.compute(host_ns)
            found.optimizers.append(
                Range(optype="optimizer", numbers={}, launched_ns=host_ns[0], start_ns=start_ns, end_ns=end_ns)
            )
        elif one.name.startswith(_SHARDED):
            found.is_sharded = True
        elif one.name.startswith(_GLOO):
            start_ns, end_ns = span(one, where, recorded.base_ns)
            op = operation(one.name.removeprefix(_GLOO))
            if op in ("send", "recv"):
                found.has_pairs = True
            else:
                found.collectives.append(
                    Collective(op=op, ranks=(), launched_ns=start_ns, start_ns=start_ns, end_ns=end_ns)
                )


def _mark(name: str, host_ns: Span, found: RankRanges) -> Range:
    parsed = _NUMBERS.match(name.removeprefix(PREFIX))
    if parsed is None or parsed[1] not in OPTYPES:
        raise RefusedFile(
            f"the mark {printable(name[:80])!r} is none that what-if has a model of; marks are named "
            f"{PREFIX}OPTYPE stage=N chunk=N mb=N pipeline=N, where OPTYPE is one of {', '.join(OPTYPES)}"
        )
    pairs = (pair.split("=") for pair in parsed[2].split())
    numbers = {key: int(value) for key, value in pairs}
    if parsed[1] in (*COMPUTES, *TRANSFERS) and "mb" not in numbers:
        raise RefusedFile(f"the mark {printable(name[:80])!r} does not say of which micro-batch it is (mb=N)")
    times_ns = found.device.transfer(host_ns) if parsed[1] in TRANSFERS else found.device.compute(host_ns)
    return Range(optype=parsed[1], numbers=numbers, launched_ns=host_ns[0], start_ns=times_ns[0], end_ns=times_ns[1])
