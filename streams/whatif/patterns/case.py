"""What the patterns look at: a trace small enough to simulate many times, and what its steps cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.model.whatif_result import Remedy, WhatIf
from streams.whatif import optypes
from streams.whatif.layout import Trace
from streams.whatif.scenarios import Job

FloatArray = npt.NDArray[np.floating[Any]]
Float64Array = npt.NDArray[np.float64]
Int64Array = npt.NDArray[np.int64]

_MOST_VALUES = 4_000_000
"""Larger traces are looked at in evenly spaced steps: a pattern holds in most of them (section 4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One trace."""

    found: WhatIf  # what the whole trace gave
    # of the steps that are looked at
    trace: Trace
    job: Job
    # mean simulated step times of those steps
    original_s: float
    ideal_s: float

    @classmethod
    def of(cls, found: WhatIf, trace: Trace, job: Job) -> Case:
        """The case of a trace."""
        every = -(-job.own_s.size // _MOST_VALUES)
        if every > 1:
            at = slice(None, None, every)
            job = replace(job, own_s=np.ascontiguousarray(job.own_s[:, at]))
            trace = trace.only(at)
        everything = np.ones(len(job.ops), dtype=bool)
        return cls(
            found=found,
            trace=trace,
            job=job,
            original_s=float(job.keeping(everything).end_s.mean()),
            ideal_s=float(job.keeping(~everything).end_s.mean()),
        )

    def step_time_s(self, own_s: FloatArray) -> float:
        """Mean simulated step time if operations took `own_s`, shape `(n_ops, n_steps, n_dp)`."""
        return float(self.job.with_durations(own_s).end_s.mean())

    def removed(self, step_time_s: float) -> float:
        """Share of the slowdown that is gone at this mean step time."""
        return (self.original_s - step_time_s) / (self.original_s - self.ideal_s)

    def remedy(self, action: str, step_time_s: float) -> Remedy:
        """Something to do, with what it brings."""
        return Remedy(action=action, step_time_s=step_time_s, gain=1 - step_time_s / self.original_s)

    def rows(self, stage: int, kind: int) -> Int64Array:
        """Operations of a type at a stage."""
        ops = self.job.ops
        return np.flatnonzero((ops.stage == stage) & (ops.optype == kind))

    def compute_s(self) -> Float64Array:
        """Usual computation of a micro-batch on each worker, forward and backward; shape `(2, n_stages, n_dp)`.

        Medians over micro-batches and steps, summed over model chunks: single long computes do not count.
        """
        usual_s = np.zeros((len(optypes.COMPUTE), self.job.ops.n_stages, self.job.n_dp))
        for kind, stage in np.ndindex(*usual_s.shape[:2]):
            rows = self.rows(stage, optypes.COMPUTE[kind])
            for chunk in np.unique(self.job.ops.mc[rows]):
                usual_s[kind, stage] += np.median(self.job.own_s[rows[self.job.ops.mc[rows] == chunk]], axis=(0, 1))
        return usual_s
