"""Jobs at the level of calls, with one fault each: what the whole pipeline, and whom it blames, is scored on.

>>> CALL_JOBS["stopped_rank"](0).faults
(StopRank(rank=5, step=100, resume_after_s=None),)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pacehound.model.topology import Layout
from pacehound.model.truth.steps import StepTruth, TrueChange
from simulator.faults import ExitRank, Fault, Pause, SlowCompute, SlowLink, StopRank
from simulator.job import JobSpec, Simulation

_LAYOUT = Layout(tp=2, dp=2, pp=2)
_FROM, _TO, _STEPS = 100, 160, 220


def _job(seed: int, *faults: Fault) -> JobSpec:
    # A hang goes on for longer than the pipeline waits before it says so.
    return JobSpec(layout=_LAYOUT, iterations=_STEPS, faults=faults, seed=seed, hang_s=60.0)


def _rank(seed: int) -> int:
    """Another rank for each seed; 5 and 8 have no common divisor."""
    return (5 + 5 * seed) % _LAYOUT.world_size


CALL_JOBS: Mapping[str, Callable[[int], JobSpec]] = {
    "clean": lambda seed: _job(seed),
    "checkpoints": lambda seed: _job(seed, Pause(kind="checkpoint", every_steps=50, duration_s=2.0)),
    "slow_rank": lambda seed: _job(seed, SlowCompute(ranks=(_rank(seed),), factor=1.5, from_step=_FROM, to_step=_TO)),
    "slow_rank_to_the_end": lambda seed: _job(seed, SlowCompute(ranks=(_rank(seed),), factor=2.0, from_step=_FROM)),
    "slow_link": lambda seed: _job(seed, SlowLink(link=(0, 2), bandwidth_factor=0.1, from_step=_FROM, to_step=_TO)),
    "stopped_rank": lambda seed: _job(seed, StopRank(rank=_rank(seed), step=_FROM)),
    "killed_rank": lambda seed: _job(seed, ExitRank(rank=_rank(seed), step=_FROM, signal=9)),
    "dead_link": lambda seed: _job(seed, SlowLink(link=(0, 2), bandwidth_factor=0.0, from_step=_FROM)),
}
"""By name; each makes the job of a seed."""


def step_truth_of(simulation: Simulation) -> StepTruth:
    """What happened in a job, by step. Pauses that the job itself announces need no finding, and excuse none."""
    changes = []
    for fault in simulation.truth.findings:
        onset = fault.onset.step or 0
        relief = None if fault.relief is None else fault.relief.step
        is_fault = fault.kind in ("slow", "hang", "exit")
        changes.append(
            TrueChange(
                kind=fault.kind if fault.kind != "blind" else "planned",
                onset=onset,
                end=None if relief is None else max(relief, onset + 1),
                magnitude=fault.magnitude,
                is_required=is_fault,
                is_explained=not is_fault,
                culprits=fault.culprits,
                links=fault.links,
            )
        )
    last = max(simulation.spec.iterations - 1, 0)
    return StepTruth(first_step=0, last_step=last, changes=tuple(sorted(changes, key=lambda change: change.onset)))
