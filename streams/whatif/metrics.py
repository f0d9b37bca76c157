"""The figures of the paper: S, S_t, S_w, waste, M_W, M_S, correlation, discrepancy (sections 3.3, 5.1-5.3, 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.whatif_result import Blame, Share
from streams.whatif import optypes
from streams.whatif.layout import Ops, Trace
from streams.whatif.scenarios import Job, StepEnds
from streams.whatif.thresholds import SLOWEST_PERCENT

FloatArray = npt.NDArray[np.floating[Any]]
Float64Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def recorded_step_times_s(trace: Trace) -> Float64Array:
    """From the first start to the last end of each step, shape `(n_steps,)`."""
    spans_s = np.nanmax(trace.ends_s, axis=(0, 2)) - np.nanmin(trace.starts_s, axis=(0, 2))
    return np.asarray(spans_s, dtype=np.float64)


def blame(names: Sequence[str], ends_s: Float64Array, ideal_s: Float64Array) -> Blame:
    """Slowdowns from simulated step times of shape `(n_steps, n_parts)` and `(n_steps,)`."""
    return Blame(names=tuple(names), slowdown=ends_s.mean(axis=0) / ideal_s.mean(), per_step=ends_s / ideal_s[:, None])


def by_dp_rank(job: Job, ideal: StepEnds) -> Blame:
    """One DP rank keeps its stragglers (equation 4, for a DP rank)."""
    ends = job.keeping_each_dp_rank(np.ones(len(job.ops), dtype=bool))
    return blame([str(dp) for dp in range(job.n_dp)], ends.optimizer_end_s, ideal.optimizer_end_s)


def by_stage(job: Job, ideal: StepEnds) -> tuple[Blame, StepEnds]:
    """One stage keeps its stragglers; and when the steps of the last one's scenario end."""
    ends = [job.keeping(job.ops.stage == stage) for stage in range(job.ops.n_stages)]
    columns_s = np.stack([one.optimizer_end_s for one in ends], axis=1)
    return blame([str(stage) for stage in range(len(ends))], columns_s, ideal.optimizer_end_s), ends[-1]


def by_optype(job: Job, ideal: StepEnds) -> Blame:
    """One type of operation keeps its stragglers (equation 2); sends and receives of a direction count as one."""
    groups = type_groups(job.ops)
    columns_s = np.stack([job.keeping(is_of_type).optimizer_end_s for is_of_type in groups.values()], axis=1)
    return blame(list(groups), columns_s, ideal.optimizer_end_s)


def type_groups(ops: Ops) -> dict[str, BoolArray]:
    """The operations of each type under which slowdowns are told, shape `(n_ops,)` each."""
    present = np.unique(ops.optype)
    names = dict.fromkeys(optypes.SHOWN_AS[kind] for kind in present)
    return {name: np.isin(ops.optype, [kind for kind in present if optypes.SHOWN_AS[kind] == name]) for name in names}


def launch_groups(ops: Ops) -> dict[str, BoolArray]:
    """As `type_groups`, with the first operation of each worker apart: it waits for data, not for the launch."""
    is_first = (ops.seq_id == 0) & np.where(
        ops.stage == 0, ops.optype == optypes.FORWARD_COMPUTE, ops.optype == optypes.FORWARD_RECV
    )
    groups = {name: is_of_type & ~is_first for name, is_of_type in type_groups(ops).items()}
    return {"first-op": is_first} | {name: one for name, one in groups.items() if one.any()}


def by_worker(job: Job, ideal: StepEnds) -> tuple[Float64Array, Float64Array]:
    """Each worker by itself keeps its stragglers (equation 4), exactly.

    The paper takes the lesser of the DP rank's and the stage's slowdown, because it simulates each worker on all
    lanes. One companion for all ideal DP ranks makes the exact value as cheap (`longest.alone`).

    Mean slowdowns of shape `(n_stages, n_dp)`, and those per step of shape `(n_steps, n_stages, n_dp)`.
    """
    stages = range(job.ops.n_stages)
    ends_s = np.stack([job.keeping_each_dp_rank(job.ops.stage == stage).optimizer_end_s for stage in stages], axis=1)
    ideal_s = ideal.optimizer_end_s
    return ends_s.mean(axis=0) / ideal_s.mean(), ends_s / ideal_s[:, None, None]


def slowest_workers(cells: Float64Array, ranks: npt.NDArray[np.int64]) -> BoolArray:
    """The slowest 3 % of the workers, rounded up; of equals the one with the lowest rank.

    `cells` are slowdowns of shape `(n_stages, n_dp)`, as is the mask; `ranks` are world ranks of shape `(n_dp,
    n_stages)`.
    """
    n_slowest = -(-cells.size * SLOWEST_PERCENT // 100)
    order = np.lexsort((ranks.T.ravel(), -cells.ravel()))
    is_slowest = np.zeros(cells.size, dtype=bool)
    is_slowest[order[:n_slowest]] = True
    return is_slowest.reshape(cells.shape)


def share_of_workers(job: Job, is_of_them: BoolArray, original: StepEnds, ideal: StepEnds) -> Share:
    """How much of the slowdown some workers explain (equation 5); `is_of_them` has shape `(n_stages, n_dp)`."""
    return Share(
        original_s=float(original.end_s.mean()),
        ideal_s=float(ideal.end_s.mean()),
        fixed_s=float(job.keeping_workers(~is_of_them).end_s.mean()),
        alone_s=float(job.keeping_workers(is_of_them).end_s.mean()),
    )


def share_of_last_stage(job: Job, last_alone: StepEnds, original: StepEnds, ideal: StepEnds) -> Share:
    """How much of the slowdown the last stage explains (section 5.2); without a pipeline it is everything."""
    fixed = job.keeping(job.ops.stage != job.ops.n_stages - 1)
    return Share(
        original_s=float(original.end_s.mean()),
        ideal_s=float(ideal.end_s.mean()),
        fixed_s=float(fixed.end_s.mean()),
        alone_s=float(last_alone.end_s.mean()),
    )


def forward_backward_correlation(ops: Ops, own_s: FloatArray) -> Float64Array:
    """How alike forward and backward of a micro-batch vary, per worker, over micro-batches and steps.

    Sequence lengths move both; what hits one operation does not (section 5.3). Over the workers together it would say
    how different they are. With virtual stages the first one is left out where there are others: it holds the
    embeddings.

    Pearson's, shape `(n_stages, n_dp)`; NaN where nothing varies or micro-batches are not told apart.
    """
    n_dp = own_s.shape[2]
    found = np.full((ops.n_stages, n_dp), np.nan)
    for stage in range(ops.n_stages):
        forward, backward = pairs_of(ops, stage)
        if len(forward) < 1 or len(forward) * own_s.shape[1] < 3:
            continue
        x_s = own_s[forward].reshape(-1, n_dp).astype(np.float64)
        y_s = own_s[backward].reshape(-1, n_dp).astype(np.float64)
        x_s -= x_s.mean(axis=0)
        y_s -= y_s.mean(axis=0)
        spread = np.sqrt((x_s**2).sum(axis=0) * (y_s**2).sum(axis=0))
        with np.errstate(invalid="ignore", divide="ignore"):
            found[stage] = (x_s * y_s).sum(axis=0) / spread
    return found


def pairs_of(ops: Ops, stage: int) -> tuple[list[int], list[int]]:
    """Forward and backward operations of the same micro-batch and model chunk at a stage."""
    at = {}
    for kind in optypes.COMPUTE:
        rows = np.flatnonzero((ops.stage == stage) & (ops.optype == kind))
        if ops.mc.max() > 0:
            rows = rows[ops.mc[rows] > 0]
        at[kind] = {(int(ops.mc[row]), int(ops.mb_id[row])): int(row) for row in rows}
    forward, backward = at[optypes.FORWARD_COMPUTE], at[optypes.BACKWARD_COMPUTE]
    shared = [key for key in forward if key in backward]
    return [forward[key] for key in shared], [backward[key] for key in shared]
