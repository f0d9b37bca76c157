"""Single computes that take far longer than the same worker's others: garbage collection, or memory fragmentation.

Python launches the forward pass and stands still while it collects garbage; C++ launches the backward pass and does
not. So stalls of the collector are in forward computes alone, and wander over the workers, for each process collects
when it likes (section 5.4). An allocator that returns memory to the device and asks for it again stalls both passes
(section 5.5). A long micro-batch is long in both, at the same micro-batch: that is no stall.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.model.evidence import Evidence
from pacehound.model.evidence.straggling import Explains, Stalled, StallsLookLike, StallsOnWorkers
from pacehound.model.whatif_result import Pattern
from streams.whatif.metrics import pairs_of
from streams.whatif.patterns.case import Case, FloatArray
from streams.whatif.thresholds import EXPLAINS, FEWEST_STALLS, MOST_ON_ONE, OTHER_PASS, STALL, STALL_SPREADS

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Stalls of the forward and of the backward pass."""

    own_s: FloatArray  # own durations without them, shape `(n_ops, n_steps, n_dp)`
    counts: npt.NDArray[np.int64]  # of either pass and each worker, shape `(2, n_stages, n_dp)`
    mean_s: float  # how long one takes; NaN without any


def stalls_of(case: Case) -> Stalls:
    """The stalls of a trace: long in one pass, and not in the other pass of the same micro-batch."""
    ops, own_s = case.job.ops, case.job.own_s.copy()
    counts = np.zeros((2, ops.n_stages, case.job.n_dp), dtype=np.int64)
    lost_s = 0.0
    for stage in range(ops.n_stages):
        pairs = pairs_of(ops, stage)
        if not pairs[0]:
            continue
        excess, is_long, median_s = zip(*(_long(own_s[rows]) for rows in pairs), strict=True)
        for at in (0, 1):
            # The other pass of a long micro-batch is longer by about as much, in proportion.
            is_stall = is_long[at] & (excess[1 - at] < excess[at] / 3) & ~_is_usual(own_s[pairs[at]])
            counts[at, stage] = is_stall.sum(axis=(0, 1))
            values_s = own_s[pairs[at]]
            usual_s = np.broadcast_to(median_s[at], values_s.shape)
            lost_s += float((values_s - usual_s)[is_stall].sum(dtype=np.float64))
            own_s[pairs[at]] = np.where(is_stall, usual_s, values_s)
    total = int(counts.sum())
    return Stalls(own_s=own_s, counts=counts, mean_s=lost_s / total if total else float("nan"))


def _is_usual(values_s: FloatArray) -> BoolArray:
    """Whether a compute is long in most steps: no accident, whatever it is; shape `(n_ops, 1, n_dp)`."""
    of_op_s = np.median(values_s, axis=1, keepdims=True)
    is_long: BoolArray = of_op_s > (1 + STALL) * np.median(values_s, axis=(0, 1), keepdims=True)
    return is_long


def _long(values_s: FloatArray) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Relative excess over the median of each worker (the last axis), whether that is long, and the median."""
    median_s = np.median(values_s, axis=(0, 1), keepdims=True)
    spread_s = np.median(np.abs(values_s - median_s), axis=(0, 1), keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess: FloatArray = values_s / median_s - 1
    return excess, (excess > STALL) & (values_s - median_s > STALL_SPREADS * spread_s), median_s


def stalls(case: Case) -> Pattern | None:
    """Garbage collection or memory fragmentation, where stalls explain enough of the slowdown."""
    found = stalls_of(case)
    total = int(found.counts.sum())
    if total < FEWEST_STALLS:
        return None
    without_s = case.step_time_s(found.own_s)
    removed = case.removed(without_s)
    if removed < EXPLAINS:
        return None
    forward, backward = (int(count) for count in found.counts.sum(axis=(1, 2)))
    by_worker = found.counts.sum(axis=0)
    on_most = int(by_worker.max()) / total
    evidence = (
        Stalled(n_forward=forward, n_backward=backward, least_share=STALL, mean_s=float(found.mean_s)),
        StallsOnWorkers(n_workers=int((by_worker > 0).sum()), of=by_worker.size, most_share=on_most),
        Explains(share=float(removed), without="stalls"),
    )
    if backward <= OTHER_PASS * total and (by_worker.size == 1 or on_most <= MOST_ON_ONE):
        return _collection(case, found, evidence, without_s, removed)
    if backward > OTHER_PASS * total:
        return _fragmentation(case, evidence, without_s, removed)
    return None


def _collection(case: Case, found: Stalls, evidence: tuple[Evidence, ...], without_s: float, removed: float) -> Pattern:
    """Each worker collects every so many steps now: collecting together as often needs no more memory than today."""
    per_worker_and_step = found.counts[0].sum() / (found.counts[0].size * len(case.trace.steps))
    interval = max(1, round(1 / per_worker_and_step))
    planned_s = without_s + found.mean_s / interval
    return Pattern(
        name="garbage collection",
        evidence=(*evidence, StallsLookLike(cause="collection")),
        remedies=(
            case.remedy(
                f"collect as planned: gc.disable(), then gc.collect() on all ranks every {interval} steps (a worker "
                f"collects that often now, so memory stays as it is; collecting more seldom costs memory)",
                planned_s,
            ),
        ),
        score=removed,
    )


def _fragmentation(case: Case, evidence: tuple[Evidence, ...], without_s: float, removed: float) -> Pattern:
    return Pattern(
        name="memory fragmentation",
        evidence=(
            *evidence,
            StallsLookLike(cause="fragmentation"),
            StallsLookLike(cause="fragmentation unseen"),
        ),
        remedies=(
            case.remedy(
                "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or lower the peak of memory "
                "(smaller micro-batch, more recomputation)",
                without_s,
            ),
        ),
        score=removed,
    )
