"""Traces of torch.profiler of all ranks of a job -> the operations of its steps, for what-if.

The rules, none of which is left out silently:

- A step is a profiler step (`profiler.step()`), and counts where every rank has it with an optimizer in it.
- Marked micro-batches (`call_files/kineto_ranges.py`) are the operations; ranges of one name in one step are one.
- Without marks a job is taken for a data-parallel one, of one stage and one micro-batch: forward from the beginning of
  the step to the first node of a backward graph, backward to the last one before the optimizer. A job that sends or
  receives is none, and refused without marks.
- Reductions that begin between the beginning of the last backward pass and the optimizer synchronise gradients, unless
  the trace says that their ranks are of several stages. A gather before the first forward pass of a rank gathers
  parameters; where the trace does not say whose it is (gloo), too.
- The n-th ranks of all stages make a pipeline, where marks do not tell.
- Every rank of the job must be there, and none gather its parameters within its passes (FSDP).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from collector.importers.call_files.content import head_of
from collector.importers.call_files.kineto_calls import looks_like_one
from collector.importers.call_files.kineto_ranges import COMPUTES, TRANSFERS, Collective, Range, RankRanges, read_ranges
from collector.importers.call_files.refusal import RefusedFile
from pacehound.errors import InvalidEvent
from pacehound.model.calls import OPS, Sees
from pacehound.model.operations import OPERATION_SCHEMA, OPTYPES, Operations
from pacehound.model.rounds import Rounds

SUFFIXES: Final = (".json", ".json.gz")
_REDUCTIONS = ("all_reduce", "reduce_scatter")
_SAID_AT_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KinetoJob:
    """A job's operations, one event per rank, and its collectives, one event per rank as well."""

    operations: tuple[Operations, ...]
    rounds: tuple[Rounds, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a rank works."""

    stage: int
    pipeline: int


def read_kineto(path: Path) -> KinetoJob:
    """Read a trace, or the traces of a directory, one per rank.

    Raises
    ------
    RefusedFile
        A file cannot be read, a rank is missing, or the traces do not tell what ran when; with what would.

    """
    return job_of([_read(file) for file in _files(path)], path.name.split(".")[0] or "job")


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    named = sorted(file for file in path.iterdir() if file.is_file() and file.name.endswith(SUFFIXES))
    files = [file for file in named if looks_like_one(head_of(file))]
    if not files:
        raise RefusedFile(
            f"{path} has no trace of torch.profiler in it: no file {' or '.join('*' + one for one in SUFFIXES)}"
        )
    return files


def _read(file: Path) -> RankRanges:
    try:
        return read_ranges(file)
    except RefusedFile as error:
        raise RefusedFile(f"{file}: {error}") from error


def job_of(ranks: Sequence[RankRanges], job: str) -> KinetoJob:
    """The operations of a job.

    Raises
    ------
    RefusedFile
        A rank is missing, or the traces do not tell what ran when.

    """
    by_rank = _all_ranks(ranks)
    sharded = [one.rank for one in ranks if one.is_sharded]
    if sharded:
        raise RefusedFile(
            f"ranks {_some(sharded)} gather their parameters within their passes (FSDP): waiting for others cannot be "
            "told from computing there. Watch such a job while it runs, with --set ops.every_steps=N"
        )
    is_marked = any(mark.optype in COMPUTES for one in ranks for mark in one.marks)
    if not is_marked:
        _refuse_pipelines(ranks)
    steps = _common_steps(by_rank)
    ops = {
        rank: [(step, op) for step in steps for op in _operations(one, step, is_marked)]
        for rank, one in by_rank.items()
    }
    places = _places(ops)
    for rank, one in by_rank.items():
        ops[rank] += [(step, op) for step in steps for op in _gathers(one, step, ops[rank], places)]
    return KinetoJob(
        operations=tuple(_event(ops[rank], rank, places[rank], by_rank[rank].path, job) for rank in ops),
        rounds=tuple(_rounds(one, ops[rank], places, job) for rank, one in by_rank.items()),
    )


def _all_ranks(ranks: Sequence[RankRanges]) -> dict[int, RankRanges]:
    """By rank, in order; every rank once, and all of the world."""
    for rank, count in Counter(one.rank for one in ranks).items():
        if count > 1:
            files = ", ".join(one.path.name for one in ranks if one.rank == rank)
            raise RefusedFile(f"rank {rank} has {count} traces ({files}): one directory is one job, each rank once")
    sizes = sorted({one.world_size for one in ranks if one.world_size})
    if len(sizes) > 1:
        raise RefusedFile(f"the traces are of jobs of {_some(sizes)} ranks: they are not of one job")
    by_rank = {one.rank: one for one in sorted(ranks, key=lambda one: one.rank)}
    n_ranks = sizes[0] if sizes else max(by_rank) + 1
    missing = [rank for rank in range(n_ranks) if rank not in by_rank]
    if missing or len(by_rank) > n_ranks:
        raise RefusedFile(
            f"of {n_ranks} ranks {len(by_rank)} have a trace; missing: {_some(missing)}. "
            "What others wait for cannot be told without all of them"
        )
    return by_rank


def _refuse_pipelines(ranks: Sequence[RankRanges]) -> None:
    pairs = [one.rank for one in ranks if one.has_pairs]
    if pairs:
        raise RefusedFile(
            f"ranks {_some(pairs)} send and receive, so this is no data-parallel job, and nothing in their traces says "
            "which micro-batch a range is of: trace the job under `pacehound run`, which marks what "
            "torch.distributed.pipelining does, or put record_function('pacehound:forward-compute stage=0 mb=0') and "
            "its like around what it does"
        )


def _common_steps(by_rank: dict[int, RankRanges]) -> list[int]:
    """The steps that every rank has with an optimizer in it."""
    common: set[int] | None = None
    for rank, one in by_rank.items():
        if not one.steps:
            raise RefusedFile(
                f"the trace of rank {rank} has no profiler step: call profiler.step() after each step of the training"
            )
        ended = {
            step
            for step, (first_ns, last_ns) in one.steps.items()
            if any(first_ns <= op.launched_ns < last_ns for op in (*one.optimizers, *_marked(one, "optimizer")))
        }
        if not ended:
            raise RefusedFile(
                f"none of the {len(one.steps)} profiler steps of rank {rank} has an optimizer's step in it"
            )
        common = ended if common is None else common & ended
    if not common:
        raise RefusedFile("there is no profiler step with an optimizer's step that all ranks have")
    return sorted(common)


def _marked(one: RankRanges, optype: str) -> list[Range]:
    return [mark for mark in one.marks if mark.optype == optype]


def _operations(one: RankRanges, step: int, is_marked: bool) -> list[Range]:
    """The operations of a rank's step, in order, joined where they have one name; without the collectives."""
    first_ns, last_ns = one.steps[step]
    optimizer = [op for op in one.optimizers if first_ns <= op.launched_ns < last_ns]
    if is_marked:
        marks = [mark for mark in one.marks if first_ns <= mark.launched_ns < last_ns]
        lacking = [name for name in COMPUTES if not any(mark.optype == name for mark in marks)]
        if lacking:
            raise RefusedFile(
                f"rank {one.rank} has no {lacking[0]} marked in profiler step {step}, though micro-batches are marked"
            )
        return _joined([*marks, *optimizer])
    host_ns = min(op.launched_ns for op in optimizer)
    nodes = [node for node in one.backwards if first_ns <= node[0] < host_ns]
    if not nodes:
        raise RefusedFile(
            f"rank {one.rank} has no backward pass before the optimizer in profiler step {step}: the profiler must "
            "record the CPU too (ProfilerActivity.CPU)"
        )
    begin_ns, end_ns = min(node[0] for node in nodes), max(node[1] for node in nodes)
    computes = [
        Range(optype=name, numbers={"mb": 0}, launched_ns=host[0], start_ns=start_ns, end_ns=stop_ns)
        for name, host in zip(COMPUTES, ((first_ns, begin_ns), (begin_ns, end_ns)), strict=True)
        for start_ns, stop_ns in [one.device.compute(host)]
    ]
    return _joined([*computes, *optimizer])


def _joined(ops: Iterable[Range]) -> list[Range]:
    """One operation of each name: a loss is marked apart from the forward pass that it is of."""
    by_name: dict[tuple[object, ...], Range] = {}
    for op in ops:
        key = op.optype, *sorted(op.numbers.items())
        before = by_name.get(key, op)
        by_name[key] = replace(
            before,
            launched_ns=min(before.launched_ns, op.launched_ns),
            start_ns=min(before.start_ns, op.start_ns),
            end_ns=max(before.end_ns, op.end_ns),
        )
    return sorted(by_name.values(), key=lambda op: (op.start_ns, op.end_ns))


def _places(ops: dict[int, list[tuple[int, Range]]]) -> dict[int, _Place]:
    """The stage and the pipeline of each rank."""
    stages: dict[int, int] = {}
    told: dict[int, int] = {}
    for rank, of_rank in ops.items():
        for name, found in (("stage", stages), ("pipeline", told)):
            numbers = {op.numbers[name] for _, op in of_rank if name in op.numbers}
            if len(numbers) > 1:
                raise RefusedFile(f"rank {rank} is marked to be of {name} {_some(sorted(numbers))} at once")
            if numbers:
                found[rank] = numbers.pop()
    if told and len(told) < len(ops):
        raise RefusedFile("some ranks have marks with pipeline=N and others have none")
    of_stage: defaultdict[int, list[int]] = defaultdict(list)
    for rank in sorted(ops):
        of_stage[stages.get(rank, 0)].append(rank)
    sizes = {len(members) for members in of_stage.values()}
    if not told and len(sizes) > 1:
        raise RefusedFile(f"stages of {_some(sorted(sizes))} ranks make no pipelines")
    first = of_stage[min(of_stage)]
    return {
        rank: _Place(stage=stage, pipeline=told.get(rank, first[at] if at < len(first) else rank))
        for stage, members in of_stage.items()
        for at, rank in enumerate(members)
    }


def _gathers(one: RankRanges, step: int, ops: list[tuple[int, Range]], places: dict[int, _Place]) -> list[Range]:
    """The gathers of a step that begin before its first forward pass does, unless marks tell of any."""
    of_step = [op for number, op in ops if number == step]
    if any(op.optype == "params-all-gather" for op in of_step):
        return []
    first_ns = min(op.start_ns for op in of_step if op.optype == "forward-compute")
    return [
        Range(
            optype="params-all-gather",
            numbers={},
            launched_ns=call.launched_ns,
            start_ns=call.start_ns,
            end_ns=call.end_ns,
        )
        for call in sorted(_of_one_stage(one, ("all_gather",), places), key=lambda call: call.start_ns)
        if one.steps[step][0] <= call.launched_ns < one.steps[step][1] and call.start_ns < first_ns
    ]


def _event(ops: list[tuple[int, Range]], rank: int, place: _Place, path: Path, job: str) -> Operations:
    numbers: Counter[tuple[int, str]] = Counter()
    rows = []
    for step, op in ops:
        seq = numbers[step, op.optype]
        numbers[step, op.optype] += 1
        rows.append(
            {
                "rank": rank,
                "step": step,
                "optype": OPTYPES.index(op.optype),
                "stage": place.stage,
                "chunk": op.numbers.get("chunk", place.stage),
                "micro_batch": op.numbers.get("mb", -1) if op.optype in (*COMPUTES, *TRANSFERS) else -1,
                "pipeline": place.pipeline,
                "seq": seq,
                "start_ns": op.start_ns,
                "end_ns": op.end_ns,
            }
        )
    try:
        batch = pa.RecordBatch.from_pylist(rows, schema=OPERATION_SCHEMA)
        return Operations(job=job, attempt=0, host=path.name, rows=batch)
    except (pa.ArrowException, OverflowError, InvalidEvent) as error:
        raise RefusedFile(f"{path}: {error}") from error


def _rounds(one: RankRanges, ops: list[tuple[int, Range]], places: dict[int, _Place], job: str) -> Rounds:
    """The reductions of a rank that may be of gradients, as its own part in rounds of which no more is known."""
    is_told = any(op.optype == "grads-reduce-scatter" for _, op in ops)
    calls = [] if is_told else sorted(_of_one_stage(one, _REDUCTIONS, places), key=lambda call: call.start_ns)
    n = len(calls)
    times_ns = np.array([(call.start_ns, call.end_ns) for call in calls], dtype=np.int64).reshape(n, 2)
    return Rounds(
        job=job,
        attempt=0,
        communicator=one.path.name,
        source="kineto",
        sees=Sees.START | Sees.END,
        ranks=(one.rank,),
        seq=np.arange(n),
        op=np.array([OPS.index(call.op) for call in calls], dtype=np.int8),
        size_bytes=np.zeros(n, dtype=np.int64),
        arrival_ns=times_ns[:, :1],
        start_ns=times_ns[:, :1],
        end_ns=times_ns[:, 1:],
    )


def _of_one_stage(one: RankRanges, ops: Sequence[str], places: dict[int, _Place]) -> list[Collective]:
    stage = places[one.rank].stage
    return [
        call
        for call in one.collectives
        if call.op in ops
        and len(call.ranks) != 1
        and all(rank in places and places[rank].stage == stage for rank in call.ranks)
    ]


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_SAID_AT_MOST])) + (", …" if len(numbers) > _SAID_AT_MOST else "")
