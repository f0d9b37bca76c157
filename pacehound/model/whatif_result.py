"""What a what-if analysis of a trace found.

Source: Understanding Stragglers in Large Model Training Using What-if Analysis, sections 3.3, 5.1, 5.2 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pacehound.model.evidence import Evidence
from pacehound.model.trace_defects import Defect

if TYPE_CHECKING:  # who shows an incident needs the limits below and no array
    import numpy as np
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]
    Int64Array = npt.NDArray[np.int64]

MOST_DISCREPANCY = 0.05
"""Beyond this the simulation is not believed (section 6)."""
LEAST_SLOWDOWN_TOLD = 1.03
"""A smaller one is not decomposed in the published results: what is left is noise."""
STRAGGLING = 1.1
"""From this slowdown on a job counts as straggling (section 4.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMeta:
    """The shape of a job; `tp_size` and `dsp_size` are 1 where nothing tells them."""

    trial_name: str
    run_id: int = 0
    dp_size: int
    pp_size: int
    tp_size: int = 1
    dsp_size: int = 1
    vpp_size: int = 1
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The slowdown that remains if all but one part of the job were ideal, for each part.

    Attributes
    ----------
    names
        The parts: DP ranks, stages or operation types.
    slowdown
        Equations 2 and 4: mean step time over that of the ideal, shape `(n_parts,)`.
    per_step
        The same per step, shape `(n_steps, n_parts)`.

    """

    names: tuple[str, ...]
    slowdown: FloatArray
    per_step: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of a slowdown some operations explain (equation 5), in mean step times.

    Attributes
    ----------
    original_s, ideal_s
        Simulated with everybody's own durations, and with ideal ones.
    fixed_s
        The original with these operations ideal.
    alone_s
        The ideal with these operations as they were.

    """

    original_s: float
    ideal_s: float
    fixed_s: float
    alone_s: float

    @property
    def removed(self) -> float:
        """Share of the slowdown that goes if they are fixed: M_W and M_S. May exceed 1 or be negative; NaN if none."""
        return _ratio(self.original_s - self.fixed_s, self.original_s - self.ideal_s)

    @property
    def added(self) -> float:
        """Share of the slowdown that they bring by themselves."""
        return _ratio(self.alone_s - self.ideal_s, self.original_s - self.ideal_s)


def _ratio(part_s: float, whole_s: float) -> float:
    return part_s / whole_s if whole_s else float("nan")


PatternName = Literal[
    "single worker",
    "last stage",
    "sequence length",
    "garbage collection",
    "memory fragmentation",
    "false kernel dependency",
    "none of these",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Something to do, and what it would bring.

    Attributes
    ----------
    action
        In words.
    step_time_s
        Mean simulated step time with it; NaN where it cannot be simulated.
    gain
        Relative reduction of the mean step time; NaN where it cannot be simulated.

    """

    action: str
    step_time_s: float = float("nan")
    gain: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A known cause that the trace shows, what says so, and what to do.

    `ranks` are the world ranks of the workers that it is about, where it is about some and not about all.
    """

    name: PatternName
    evidence: tuple[Evidence, ...]
    ranks: tuple[int, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    score: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The answer to one's own question: the original with what `--fix` names ideal.

    Attributes
    ----------
    what
        As asked.
    step_time_s, slowdown
        Mean simulated step time, and that over the ideal's.
    removed
        Share of the job's slowdown that goes.

    """

    what: str
    step_time_s: float
    slowdown: float
    removed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Everything; step times in seconds of shape `(n_steps,)`.

    Attributes
    ----------
    recorded_s, original_s, ideal_s
        As recorded; simulated with own durations and no launch delays; simulated with ideal durations.
    slowdown, step_slowdown
        S of equation 1, and per step.
    launch_slowdown, launch_step_slowdown
        Recorded over original: what the simulation does not see.
    by_dp_rank, by_stage, by_optype
        Where the slowdown comes from.
    launch_by_dp_rank, launch_by_stage, launch_by_optype
        Where the launch delays matter; None where they are too small to ask.
    by_worker, by_worker_per_step
        Exact S_w, each worker by itself, shapes `(n_stages, n_dp)` and `(n_steps, n_stages, n_dp)`.
    ranks
        World ranks, shape `(n_dp, n_stages)`.
    correlation
        Of forward and backward of a micro-batch, per worker, shape `(n_stages, n_dp)`; NaN where nothing varies.
    slowest_workers, last_stage
        What M_W and M_S are about.

    """

    meta: JobMeta
    steps: Int64Array
    recorded_s: FloatArray
    original_s: FloatArray
    ideal_s: FloatArray
    slowdown: float
    step_slowdown: FloatArray
    launch_slowdown: float
    launch_step_slowdown: FloatArray
    by_dp_rank: Blame
    by_stage: Blame
    by_optype: Blame
    by_worker: FloatArray
    by_worker_per_step: FloatArray
    ranks: Int64Array
    correlation: FloatArray
    slowest_workers: Share
    last_stage: Share
    launch_by_dp_rank: Blame | None = None
    launch_by_stage: Blame | None = None
    launch_by_optype: Blame | None = None
    defects: tuple[Defect, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    fixes: tuple[Fixed, ...] = ()

    @property
    def waste(self) -> float:
        """Share of the GPU-hours that stragglers waste (equation 3)."""
        return wasted(self.slowdown)

    @property
    def discrepancy(self) -> float:
        """How far the simulated original lies from what was recorded, relative to the latter (section 6)."""
        return float(abs(self.original_s.mean() / self.recorded_s.mean() - 1))

    @property
    def is_trusted(self) -> bool:
        """Whether the simulation is close enough to what was recorded."""
        return self.discrepancy <= MOST_DISCREPANCY

    @property
    def cells(self) -> FloatArray:
        """The published worker slowdown: the lesser of its DP rank's and its stage's, shape `(n_stages, n_dp)`."""
        import numpy as np

        return np.minimum(self.by_stage.slowdown[:, None], self.by_dp_rank.slowdown[None, :])


def wasted(slowdown: float) -> float:
    """Share of the GPU-hours that a slowdown wastes (equation 3).

    >>> wasted(2.0), wasted(1.0)
    (0.5, 0.0)
    """
    return 1 - 1 / slowdown
