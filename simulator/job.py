"""A synthetic hybrid-parallel training job with faults and their ground truth.

>>> from simulator.faults import SlowCompute
>>> slow = SlowCompute(ranks=(2,), factor=1.5, from_step=20)
>>> simulation = simulate(JobSpec(iterations=40, faults=(slow,)))
>>> [(f.kind, f.cause, f.culprits, f.onset.step) for f in simulation.truth.findings]
[('slow', 'S1', (2,), 20)]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pacehound.model.routing import Event
from simulator import emit
from simulator.faults import Truth
from simulator.observed import Observed, observe
from simulator.source import Source
from simulator.spec import JobSpec
from simulator.timing import Timeline, run
from simulator.truth import iteration_times, truth_of

__all__ = ["JobSpec", "Simulation", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A job that has been simulated."""

    spec: JobSpec
    truth: Truth  # what a perfect observer would find
    # time from the end of each iteration to the end of the next (the first: from the start), over all ranks, pauses
    # included; shape `(n_completed_steps,)`. Entry `i` belongs to the optimizer-step marker of step `i`
    iteration_times_s: npt.NDArray[np.float64]
    timeline: Timeline = field(repr=False)  # when everything happened, in true time
    observed: Observed = field(repr=False)

    def events(self) -> Iterator[Event]:
        """The events that the agents of its hosts publish, in order; the same ones at each call."""
        return emit.events(self.spec, self.timeline, self.observed)

    def seen_by(self, source: Source) -> Simulation:
        """The same run of the job, as another source sees it."""
        return _seen(replace(self.spec, source=source), self.timeline)


def simulate(spec: JobSpec) -> Simulation:
    """Run a job; the same spec gives the same simulation."""
    return _seen(spec, run(spec))


def _seen(spec: JobSpec, timeline: Timeline) -> Simulation:
    observed = observe(spec, timeline)
    return Simulation(
        spec=spec,
        truth=truth_of(spec, timeline, observed),
        iteration_times_s=iteration_times(timeline),
        timeline=timeline,
        observed=observed,
    )
