"""What one part of a job costs it: the step time if that part were as the rest of the job is.

The published ideal is the mean over all workers, the slow one with them. In a job of thousands that is no matter; of
four workers one that takes twice as long makes the mean a quarter longer, and its price too small. So here a part is
set to what the others take: of each operation type the mean, of communication the median, without the part itself.
What has no others (an operation type as a whole) is set to the published ideal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pacehound.model.events import FixKind, FixPrice
from pacehound.model.whatif_result import WhatIf
from streams.whatif import optypes
from streams.whatif.scenarios import Job
from streams.whatif.tensor_groups import NO_GROUPS, TensorGroups

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

MOST_OF_A_KIND = 3
"""The dearest workers, stages and operation types that are priced."""


def prices(job: Job, found: WhatIf, groups: TensorGroups = NO_GROUPS) -> tuple[FixPrice, ...]:
    """The dearest workers (`groups` make up one each), stages and operation types; what gives back most comes first."""
    n_stages, n_dp = found.by_worker.shape
    everywhere = np.ones((len(job.ops), n_dp), dtype=bool)
    original_s = float(found.original_s.mean())
    answers = []
    if n_stages * n_dp > 1:
        for at in np.argsort(-found.by_worker, axis=None, kind="stable")[:MOST_OF_A_KIND].tolist():
            stage, dp = divmod(at, n_dp)
            is_part = (job.ops.stage == stage)[:, None] & (np.arange(n_dp) == dp)[None, :]
            ranks = groups.ranks(int(found.ranks[dp, stage]))
            answers.append(_price("worker", f"dp {dp}, stage {stage}", ranks, job, is_part, original_s))
    if n_stages > 1:
        for stage in np.argsort(-found.by_stage.slowdown, kind="stable")[:MOST_OF_A_KIND].tolist():
            is_part = everywhere & (job.ops.stage == stage)[:, None]
            ranks = tuple(sorted(rank for first in found.ranks[:, stage].tolist() for rank in groups.ranks(first)))
            answers.append(_price("stage", str(stage), ranks, job, is_part, original_s))
    for at in np.argsort(-found.by_optype.slowdown, kind="stable")[:MOST_OF_A_KIND].tolist():
        shown_as = found.by_optype.names[at]
        kinds = [kind for kind in range(len(optypes.NAMES)) if optypes.SHOWN_AS[kind] == shown_as]
        is_part = everywhere & np.isin(job.ops.optype, kinds)[:, None]
        answers.append(_price("optype", shown_as, (), job, is_part, original_s))
    return tuple(sorted(answers, key=lambda answer: (-answer.gain, answer.what, answer.name)))


def _price(
    what: FixKind, name: str, ranks: tuple[int, ...], job: Job, is_part: BoolArray, original_s: float
) -> FixPrice:
    step_time_s = float(job.with_durations(as_the_others(job, is_part)).end_s.mean())
    return FixPrice(what=what, name=name, ranks=ranks, step_time_s=step_time_s, gain=1 - step_time_s / original_s)


def as_the_others(job: Job, is_part: BoolArray) -> FloatArray:
    """The own durations of all operations, with those of a part set to what the others of their type take.

    `is_part` has shape `(n_ops, n_dp)`, the durations `(n_ops, n_steps, n_dp)`.
    """
    own_s = job.own_s.astype(np.float64)
    for kind in np.unique(job.ops.optype[is_part.any(axis=1)]).tolist():
        is_kind = job.ops.optype == kind
        is_mine = is_kind[:, None] & is_part
        others_s = own_s.transpose(0, 2, 1)[is_kind[:, None] & ~is_part]
        if not others_s.size:
            typical_s = float(job.ideal_s[np.argmax(is_kind)])
        elif kind in optypes.IDEAL_IS_MEDIAN:
            typical_s = float(np.median(others_s))
        else:
            typical_s = float(others_s.mean())
        own_s.transpose(0, 2, 1)[is_mine] = typical_s
    return own_s
