"""What every watch of a job has in common."""

from __future__ import annotations

from pacehound.model.events import (
    Changepoint,
    Finding,
    GroupOutlier,
    HostEvidence,
    HostSample,
    HostVitals,
    Instant,
    LearntRounds,
    Markers,
    Progress,
    SignatureMismatch,
    Topology,
    WhatIfPrice,
)
from pacehound.model.operations import Operations
from streams.rounds.round_table import RoundTable
from streams.watching.moment import Iteration, Moment

Heard = Topology | Progress | Markers | SignatureMismatch | HostSample | HostVitals | HostEvidence | Operations
Said = Finding | Changepoint | GroupOutlier | LearntRounds | WhatIfPrice


class Watch:
    """Looks for one kind of trouble in one attempt of a job.

    A watch hears what it cares for and is asked at fixed multiples of event time; what it is not interested in it does
    not override. It has no clock, and its state is bounded and part of snapshots. Within one step of time the order is:
    rounds, then what is heard and the iterations in order of their time, then the tick.
    `tests/jobs/test_contract_of_watches.py` says what every watch must keep to.
    """

    def on_rounds(self, arrived: RoundTable) -> None:
        """Closed rounds of all communicators: those of one step of time."""

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """One thing that a communicator or a host says, after a step of the job.

        Only what ends a finding is said before the next tick.
        """
        return []

    def on_iteration(self, iteration: Iteration, moment: Moment) -> list[Said]:
        """One finished iteration that says something about the pace of the job: no planned pause, no hang."""
        return []

    def on_new_iterations(self, at: Instant) -> list[Finding]:
        """What counts as an iteration has changed: nothing that was learnt of them holds any more."""
        return []

    def on_tick(self, moment: Moment) -> list[Said]:
        """A fixed multiple of event time."""
        return []

    def on_end(self, moment: Moment) -> list[Finding]:
        """The job has ended; it is the last moment to say anything."""
        return []

    def ongoing(self, now_ns: int) -> dict[str, float]:
        """What each finding that goes on has cost so far in seconds of the whole job, by its id."""
        return {}

    def excess_s(self, finding: Finding, now_ns: int) -> float:
        """What one of its findings has cost in seconds of the whole job, also when it has just ended."""
        return self.ongoing(now_ns).get(finding.id, 0.0)

    def unseen(self) -> tuple[str, ...]:
        """Sentences about what this watch cannot see."""
        return ()
