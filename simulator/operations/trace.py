"""Operation traces of pipeline-parallel training with known truth, in the columns that NDTimeline records."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from simulator.operations.job import OpFaults, OpJob
from simulator.operations.run import Recorded, Run

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTruth:
    """What happened, and what would have happened without the faults; shape `(n_steps,)`."""

    step_s: FloatArray
    healthy_step_s: FloatArray


def generate(job: OpJob) -> tuple[pa.Table, OpTruth]:
    """The trace of a job and the truth about it."""
    recorded = Run(job).run()
    healthy = Run(replace(job, faults=OpFaults())).run()
    return _table(job, recorded), OpTruth(step_s=_step_s(recorded), healthy_step_s=_step_s(healthy))


def _step_s(recorded: Recorded) -> FloatArray:
    first_s = np.min([launch_s.min(axis=1) for *_, launch_s, _ in recorded.rows], axis=0)
    last_s = np.max([end_s.max(axis=1) for *_, end_s in recorded.rows], axis=0)
    step_s: FloatArray = last_s - first_s
    return step_s


def _table(job: OpJob, recorded: Recorded) -> pa.Table:
    """One row per operation; operations of a type are numbered by their launch, per worker and step."""
    starts_s = np.stack([row[5] for row in recorded.rows])
    durations_s = np.stack([row[6] for row in recorded.rows]) - starts_s
    starts_s = starts_s - starts_s.min(axis=(0, 2), keepdims=True)
    numbers = np.empty(starts_s.shape, dtype=np.int64)
    kinds: dict[tuple[int, str], list[int]] = {}
    for op, row in enumerate(recorded.rows):
        kinds.setdefault((row[0], row[1]), []).append(op)
    for ops in kinds.values():
        numbers[ops] = np.argsort(np.argsort(starts_s[ops], axis=0, kind="stable"), axis=0)
    op, step, dp = (one.ravel() for one in np.indices(starts_s.shape))

    def of_op(at: int) -> npt.NDArray[np.int64]:
        by_op = np.array([row[at] for row in recorded.rows], dtype=np.int64)
        of_rows: npt.NDArray[np.int64] = by_op[op]
        return of_rows

    stage = of_op(0)
    names = pa.array([row[1] for row in recorded.rows])
    return pa.table(
        {
            "dp_rank": dp,
            "stage": stage,
            "rank": stage * job.n_dp + dp,
            "step": 10 * step,
            "optype": names.take(pa.array(op)).dictionary_encode(),
            "start_ts": starts_s.ravel(),
            "duration": durations_s.ravel(),
            "seq_id": numbers.ravel(),
            "mc": of_op(2),
            "gmc": of_op(4),
            "mb_id": of_op(3),
        }
    )
