"""Computes that stand still while gradients are scattered beside them: a false kernel dependency (section 5.5).

Kernels of unrelated streams that share one of the device's hardware queues wait for each other. In the trace, computes
that run beside a reduce-scatter of their own worker take longer than the same computes do otherwise.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pacehound.model.evidence.straggling import BesideScatters, Explains, LostInEach
from pacehound.model.whatif_result import Pattern
from streams.whatif import optypes
from streams.whatif.patterns.case import Case, FloatArray
from streams.whatif.thresholds import BESIDE, EXPLAINS, FEWEST_STALLS, HELD_UP

BoolArray = npt.NDArray[np.bool_]


def false_dependency(case: Case) -> Pattern | None:
    """Computes held up by reduce-scatters, where that explains enough of the slowdown."""
    own_s = case.job.own_s.copy()
    ratios: list[FloatArray] = []
    held_s = 0.0
    for stage in range(case.job.ops.n_stages):
        scatters = case.rows(stage, optypes.GRADS_SCATTER)
        if not len(scatters):
            continue
        for kind in optypes.COMPUTE:
            rows = case.rows(stage, kind)
            is_beside = _beside(case, rows, scatters)
            if not is_beside.any():
                continue
            usual_s = np.nanmedian(np.where(is_beside, np.nan, own_s[rows]), axis=(0, 1), keepdims=True)
            usual_s = np.broadcast_to(usual_s, is_beside.shape)
            ratios.append((own_s[rows] / usual_s)[is_beside])
            held_s += float((own_s[rows] - usual_s)[is_beside].sum(dtype=np.float64))
            own_s[rows] = np.where(is_beside & (own_s[rows] > usual_s), usual_s, own_s[rows])
    beside = np.concatenate(ratios) if ratios else np.empty(0)
    beside = beside[np.isfinite(beside)]
    if len(beside) < FEWEST_STALLS or float(np.median(beside)) < HELD_UP:
        return None
    freed_s = case.step_time_s(np.where(np.isfinite(own_s), own_s, case.job.own_s))
    removed = case.removed(freed_s)
    if removed < EXPLAINS:
        return None
    return Pattern(
        name="false kernel dependency",
        evidence=(
            BesideScatters(n=len(beside), ratio=float(np.median(beside))),
            LostInEach(mean_s=held_s / len(beside)),
            Explains(share=float(removed), without="dependency"),
        ),
        remedies=(
            case.remedy(
                "raise CUDA_DEVICE_MAX_CONNECTIONS (8, then 32: more hardware queues), or scatter gradients after the "
                "backward pass",
                freed_s,
            ),
        ),
        score=removed,
    )


def _beside(case: Case, rows: npt.NDArray[np.int64], scatters: npt.NDArray[np.int64]) -> BoolArray:
    """Whether each compute runs beside a reduce-scatter of its worker; shape `(n_rows, n_steps, n_dp)`."""
    trace = case.trace
    starts_s, durations_s = trace.starts_s[rows], trace.durations_s[rows]
    is_beside = np.zeros(starts_s.shape, dtype=bool)
    for scatter in scatters:
        first_s = np.maximum(starts_s, trace.starts_s[scatter])
        last_s = np.minimum(starts_s + durations_s, trace.starts_s[scatter] + trace.durations_s[scatter])
        is_beside |= last_s - first_s > BESIDE * durations_s
    return is_beside
