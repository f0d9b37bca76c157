"""From rows to tensors: one value per operation, step and DP rank (the OpDuration tensors of section 3.2).

All steps and DP ranks run the same operations. An operation is therefore named once, by stage, type and number, and
the trace becomes tensors of shape `(n_ops, n_steps, n_dp)`. What most of the (step, DP rank) pairs have is what
belongs to the job; the rest is damage, and `defects` says what happens to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidInput
from pacehound.model.trace_defects import Defect, Kind
from streams.whatif import optypes, packing
from streams.whatif.reader import OpTable
from streams.whatif.thresholds import FEWEST_STEPS, MOST_MISSING

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]

_LARGEST_NUMBER = 1 << 20
_MOST_KEYS = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Ops:
    """The operations that every step and DP rank runs."""

    # shape `(n_ops,)`, sorted by type, stage and number: the operations of a type lie side by side
    stage: Int64Array
    optype: Int64Array
    seq_id: Int64Array
    mc: Int64Array
    gmc: Int64Array
    mb_id: Int64Array

    def __len__(self) -> int:
        return len(self.stage)

    @property
    def n_stages(self) -> int:
        """Pipeline stages."""
        return int(self.stage.max()) + 1

    def name(self, op: int) -> str:
        """What an operation is called in messages."""
        return f"{optypes.NAMES[self.optype[op]]} {self.seq_id[op]} of stage {self.stage[op]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace in tensors."""

    ops: Ops
    steps: Int64Array  # shape `(n_steps,)`, ascending
    # shape `(n_ops, n_steps, n_dp)`, in the precision of the file; starts count from the first start of their step.
    # NaN where the operation is missing
    starts_s: FloatArray
    durations_s: FloatArray
    # shape `(n_dp, n_stages)`: the world rank of each worker (of the first of its tensor-parallel group)
    ranks: Int64Array
    defects: tuple[Defect, ...] = ()  # what was wrong so far

    @property
    def n_dp(self) -> int:
        """DP ranks."""
        return int(self.starts_s.shape[2])

    @property
    def ends_s(self) -> FloatArray:
        """Shape as the starts, and in their precision: a start and an end that were one moment stay one."""
        return self.starts_s + self.durations_s

    def only(self, kept: BoolArray | slice, *defects: Defect) -> Trace:
        """Some steps, and what was wrong with the others; the mask has shape `(n_steps,)`."""
        return replace(
            self,
            steps=self.steps[kept],
            starts_s=self.starts_s[:, kept],
            durations_s=self.durations_s[:, kept],
            defects=(*self.defects, *defects),
        )


def lay_out(table: OpTable, name: str) -> Trace:
    """The tensors of a trace; `name` is what the file is called in messages.

    Raises
    ------
    InvalidInput
        The rows are not those of one job whose workers run the same operations.
    """
    n_dp, n_stages, n_seq = (_size(table, column, name) for column in ("dp_rank", "stage", "seq_id"))
    if n_stages * n_seq > _MOST_KEYS:
        raise InvalidInput(f"{name}: {n_stages} stages with operations numbered up to {n_seq - 1} are no pipeline")
    seen = np.zeros((len(optypes.NAMES), n_stages, n_seq), dtype=np.int64)
    refused = np.zeros(4, dtype=np.int64)
    packing.count_keys(table, seen, refused)
    steps = _distinct(table.step)
    n_cells = len(steps) * n_dp
    is_op = 2 * seen > n_cells
    op_of_key = np.where(is_op, np.cumsum(is_op).reshape(is_op.shape) - 1, -1)
    n_ops = int(is_op.sum())
    if not n_ops or not is_op[optypes.FORWARD_COMPUTE].any(axis=1).all():
        lacking = [stage for stage in range(n_stages) if not is_op[optypes.FORWARD_COMPUTE, stage].any()]
        raise InvalidInput(
            f"{name}: most of {len(steps)} steps x {n_dp} DP ranks have no forward-compute at stage {_some(lacking)}; "
            "a trace needs the same operations on every DP rank, and DP ranks and stages that count from 0"
        )
    starts_s = np.full((n_ops, len(steps), n_dp), np.nan, dtype=table.start_s.dtype)
    durations_s = np.full_like(starts_s, np.nan)
    first_row = np.full(n_ops, -1, dtype=np.int64)
    ranks = np.full((n_dp, n_stages), -1, dtype=np.int64)
    surplus, moved = np.zeros((2, len(steps)), dtype=np.int64)
    packing.scatter(table, steps, op_of_key, starts_s, durations_s, first_row, ranks, surplus, moved, refused)
    optype, stage, seq_id = np.nonzero(is_op)
    ops = Ops(
        stage=stage,
        optype=optype,
        seq_id=seq_id,
        mc=table.mc[first_row].astype(np.int64),
        gmc=table.gmc[first_row].astype(np.int64),
        mb_id=table.mb_id[first_row].astype(np.int64),
    )
    trace = Trace(
        ops=ops,
        steps=steps,
        starts_s=starts_s,
        durations_s=durations_s,
        ranks=ranks,
        defects=tuple(_row_defects(table, refused)),
    )
    is_whole = int(seen.sum()) == int(seen[is_op].sum()) == n_ops * n_cells and not refused[packing.TWICE]
    return _from_step_start(trace if is_whole else without_bad_steps(trace, surplus, moved, name))


def _size(table: OpTable, column: str, name: str) -> int:
    largest = int(getattr(table, column).max())
    if largest < 0:
        raise InvalidInput(f"{name}: column {column} has no number from 0 on")
    if largest >= _LARGEST_NUMBER:
        raise InvalidInput(f"{name}: column {column} goes up to {largest}; that is no number of this kind")
    return largest + 1


def _distinct(step: npt.NDArray[Any]) -> Int64Array:
    """The distinct steps, ascending. Files have long runs of one step: only where it changes is sorted."""
    changes = np.flatnonzero(step[1:] != step[:-1]) + 1
    return np.unique(step[np.concatenate([[0], changes])]).astype(np.int64)


def _row_defects(table: OpTable, refused: Int64Array) -> list[Defect]:
    if not refused.any():
        return []
    names = ", ".join(f"{name} x {count}" for name, count in sorted(table.unknown_optypes.items()))
    is_negative = ~(table.duration_s >= 0) | ~np.isfinite(table.duration_s)
    is_impossible = (table.stage < 0) | (table.dp_rank < 0) | (table.seq_id < 0) | ~np.isfinite(table.start_s)
    found: tuple[tuple[Kind, int, str, str], ...] = (
        ("unknown optype", packing.OF_UNKNOWN_TYPE, names, "left out"),
        ("negative duration", packing.NEGATIVE, _first_rows(table, is_negative), "treated as missing"),
        ("impossible row", packing.IMPOSSIBLE, _first_rows(table, is_impossible), "treated as missing"),
        ("operation twice", packing.TWICE, "same worker, step, type and seq_id", "the one that started first counts"),
    )
    return [
        Defect(kind=kind, count=int(refused[reason]), where=where, repair=repair)
        for kind, reason, where, repair in found
        if refused[reason]
    ]


def _first_rows(table: OpTable, is_bad: BoolArray, most: int = 3) -> str:
    rows = np.flatnonzero(is_bad & (table.optype >= 0))
    sentences = [
        f"row {i}: {optypes.NAMES[table.optype[i]]} of dp {table.dp_rank[i]}, stage {table.stage[i]}"
        for i in rows[:most]
    ]
    return "; ".join(sentences) + (f"; and {len(rows) - most} more" if len(rows) > most else "")


def without_bad_steps(trace: Trace, surplus: Int64Array, moved: Int64Array, name: str) -> Trace:
    """Leave out the steps of another shape or with too much missing; say what is missing in the others.

    Raises
    ------
    InvalidInput
        A worker has no operation at all, or too few steps are left.
    """
    is_missing = np.isnan(trace.durations_s)
    _refuse_absent_workers(trace, is_missing, name)
    missing = is_missing.sum(axis=(0, 2))
    cells_of_step = is_missing.shape[0] * trace.n_dp
    is_damaged = missing > 0
    is_other = (surplus > 0) | (missing > MOST_MISSING * cells_of_step)
    # Rows that were numbered anew after a loss tell by their micro-batches; traces whose numbers always vary do not.
    if np.median(moved) == 0:
        is_other |= is_damaged & (moved > 0)
    defects = []
    if is_other.any():
        steps = trace.steps[is_other].tolist()
        if len(steps) > (1 - FEWEST_STEPS) * len(trace.steps):
            raise InvalidInput(
                f"{name}: only {len(trace.steps) - len(steps)} of {len(trace.steps)} steps have the operations that "
                f"most steps and DP ranks have; among those that do not: {_some(steps)}"
            )
        where = f"steps {_some(steps)}"
        defects.append(Defect(kind="step of another shape", count=len(steps), where=where, repair="left out"))
    is_missing = is_missing[:, ~is_other]
    if is_missing.any():
        by_op = is_missing.sum(axis=(1, 2))
        worst = np.argsort(-by_op, kind="stable")[:3]
        where = "; ".join(f"{trace.ops.name(op)} x {by_op[op]}" for op in worst if by_op[op])
        defects.append(
            Defect(
                kind="missing operation",
                count=int(by_op.sum()),
                where=where + ("; …" if (by_op > 0).sum() > len(worst) else ""),
                repair="filled with the median of the same operation in other steps and DP ranks",
            )
        )
    return trace.only(~is_other, *defects)


def _refuse_absent_workers(trace: Trace, is_missing: BoolArray, name: str) -> None:
    for stage in range(trace.ops.n_stages):
        is_absent = is_missing[trace.ops.stage == stage].all(axis=(0, 1))
        if is_absent.any():
            raise InvalidInput(
                f"{name}: nothing was recorded of the worker at dp {np.flatnonzero(is_absent)[0]}, stage {stage}; "
                "without it the others cannot be simulated"
            )


def _some(steps: list[int], most: int = 8) -> str:
    return ", ".join(map(str, steps[:most])) + (", …" if len(steps) > most else "")


def _from_step_start(trace: Trace) -> Trace:
    origins_s = np.nanmin(trace.starts_s, axis=(0, 2), keepdims=True)
    return trace if not origins_s.any() else replace(trace, starts_s=trace.starts_s - origins_s)
