"""Own durations with one thing repaired and all else as it was: what a cause is worth is what its repair brings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from streams.whatif import optypes
from streams.whatif.patterns.case import Case, FloatArray

BoolArray = npt.NDArray[np.bool_]


def balanced(case: Case, own_s: FloatArray) -> FloatArray:
    """Every compute of a worker at the mean of its kind: micro-batches are alike.

    A worker keeps its own mean over micro-batches and steps, so that slow workers and stages stay slow.
    """
    ops, own_s = case.job.ops, own_s.copy()
    for stage in range(ops.n_stages):
        for kind in optypes.COMPUTE:
            rows = case.rows(stage, kind)
            for chunk in np.unique(ops.mc[rows]):
                of_chunk = rows[ops.mc[rows] == chunk]
                own_s[of_chunk] = own_s[of_chunk].mean(axis=(0, 1), keepdims=True, dtype=np.float64)
    return own_s


def sped_up(case: Case, own_s: FloatArray, is_worker: BoolArray) -> FloatArray:
    """Some workers compute as fast as the median DP rank of their stage; `is_worker` has shape `(n_stages, n_dp)`.

    Their computes are scaled, so that what varies over micro-batches stays.
    """
    own_s = own_s.copy()
    usual_s = case.compute_s()
    ratios = usual_s / np.median(usual_s, axis=2, keepdims=True)
    for stage, dp in np.argwhere(is_worker):
        for at, kind in enumerate(optypes.COMPUTE):
            own_s[case.rows(stage, kind), :, dp] /= ratios[at, stage, dp]
    return own_s


def slow_workers(case: Case, least_ratio: float) -> BoolArray:
    """Workers whose usual compute is longer than that of their stage's median DP rank by a ratio.

    Shape `(n_stages, n_dp)`; nobody where there is one DP rank.
    """
    usual_s = case.compute_s().sum(axis=0)
    is_slow: BoolArray = usual_s >= least_ratio * np.median(usual_s, axis=1, keepdims=True)
    return is_slow & (case.job.n_dp > 1)


def dealt_out(case: Case, own_s: FloatArray, stage: int) -> FloatArray:
    """Micro-batches dealt out anew among the DP ranks of each step: the longest first, each to the rank with least.

    Every rank gets as many as before. A micro-batch takes its cost with it to all stages; a worker keeps its speed.

    `own_s` has shape `(n_ops, n_steps, n_dp)`; the computes of `stage` say what a micro-batch costs.
    """
    ops, n_dp = case.job.ops, case.job.n_dp
    numbers = np.unique(ops.mb_id[np.isin(ops.optype, optypes.COMPUTE)])
    usual_s = balanced(case, own_s)[:, 0]
    at_stage = (ops.stage == stage) & np.isin(ops.optype, optypes.COMPUTE)
    costs = np.stack([own_s[at_stage & (ops.mb_id == number)].sum(axis=0) for number in numbers])
    into = own_s.copy()
    rows = [np.flatnonzero(np.isin(ops.optype, optypes.COMPUTE) & (ops.mb_id == number)) for number in numbers]
    if len({len(one) for one in rows}) != 1:
        return into  # some micro-batches are not recorded everywhere: nothing to deal out
    of_number = np.stack(rows)  # (n_micro_batches, n_operations of each), in the same order of stages and types
    relative = own_s[of_number] / usual_s[of_number][:, :, None]
    for step in range(own_s.shape[1]):
        taken, load = np.zeros(n_dp, dtype=np.int64), np.zeros(n_dp)
        for one in np.argsort(-costs[:, step], axis=None, kind="stable"):
            number, dp = divmod(int(one), n_dp)
            to = int(np.argmin(np.where(taken < len(numbers), load, np.inf)))
            target = of_number[taken[to]]
            into[target, step, to] = relative[number, :, step, dp] * usual_s[target, to]
            taken[to] += 1
            load[to] += costs[number, step, dp]
    return into
