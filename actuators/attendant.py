"""Attends to slowdowns by itself, in mode `auto`: incidents in; orders to agents, and decisions out.

One incident of a job at a time, each suspicion once, and only so many validations an hour. It needs no memory of an
attendant before it: whoever is held by one that has died goes on by itself, and an incident that is open is looked into
again when it is next heard of.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from actuators.control.controlled_job import ControlledJob, Signs
from actuators.mitigation.loss import aim_of
from actuators.phases import Now, Phases, unmeasured
from actuators.thresholds import MOST_JOBS, MOST_LOOKED_INTO, MOST_VALIDATIONS_PER_HOUR
from pacehound.bus.control import ControlWire
from pacehound.clock import Clock
from pacehound.errors import PacehoundError
from pacehound.model.events import Decision, Finding, Incident

logger = logging.getLogger(__name__)

HOUR_NS = 3_600_000_000_000

Reach = Callable[[str], AbstractContextManager[ControlWire]]
"""Opens the way to a job's agents; `Unavailable` where there is none."""

_Suspicion = tuple[str, tuple[int, ...]]
"""An incident, and whom it named."""


@dataclass(slots=True)
class _Job:
    """What is known of one job; `control` and `way` while one of its incidents is looked into."""

    phases: Phases | None = None
    control: ControlledJob | None = None
    way: ExitStack = field(default_factory=ExitStack)
    looked_into: dict[_Suspicion, None] = field(default_factory=dict)
    validated_ns: deque[int] = field(default_factory=deque)


class Attendant:
    """All jobs of one worker.

    Parameters
    ----------
    signer
        Whose orders agents obey.
    clock
        The time.
    reach
        Opens the way to a job's agents.

    """

    def __init__(self, signer: Signs, clock: Clock, reach: Reach) -> None:
        self._signer, self._clock, self._reach = signer, clock, reach
        self._jobs: dict[str, _Job] = {}

    def on_incident(self, incident: Incident) -> None:
        """Remember it; what comes of it is said in `step`."""
        job = self._jobs[incident.job] = self._jobs.pop(incident.job) if incident.job in self._jobs else _Job()
        self._forget_the_oldest()
        now = self._now()
        if job.phases is not None:
            if job.phases.incident.id == incident.id:
                job.phases.on_incident(incident, now)
            return
        finding = unmeasured(incident)
        if finding is None or not self._may_look(job, incident, finding, now):
            return
        job.looked_into[incident.id, aim_of(finding)] = None
        for oldest_one in list(job.looked_into)[:-MOST_LOOKED_INTO]:
            del job.looked_into[oldest_one]
        job.phases = Phases(incident, now.unix_ns, now)

    def step(self) -> list[Decision]:
        """What is due in every job."""
        now = self._now()
        return [decision for name, job in self._jobs.items() for decision in self._step(name, job, now)]

    def forget(self) -> None:
        """Somebody else goes on; what is held here goes on by itself."""
        for job in self._jobs.values():
            job.way.close()
        self._jobs.clear()

    def _forget_the_oldest(self) -> None:
        idle = [name for name, job in self._jobs.items() if job.phases is None]
        for name in idle[: max(len(self._jobs) - MOST_JOBS, 0)]:
            del self._jobs[name]

    def _may_look(self, job: _Job, incident: Incident, finding: Finding, now: Now) -> bool:
        while job.validated_ns and now.monotonic_ns - job.validated_ns[0] >= HOUR_NS:
            job.validated_ns.popleft()
        is_new = (incident.id, aim_of(finding)) not in job.looked_into
        return is_new and len(job.validated_ns) < MOST_VALIDATIONS_PER_HOUR

    def _step(self, name: str, job: _Job, now: Now) -> list[Decision]:
        if job.phases is None:
            return []
        before = job.phases.phase
        try:
            decisions = self._drive(name, job, job.phases, now)
        except PacehoundError as error:
            # Nobody can be told anything: whoever is held goes on when the lease is over.
            _, decisions = job.phases.end(f"its agents cannot be reached: {error}", now)
        if job.phases.phase != before:
            logger.info("job %s: %s: %s", name, job.phases.phase, job.phases.reason)
        if job.phases.phase == "validation" and before != "validation":
            job.validated_ns.append(now.monotonic_ns)
        if job.phases.is_over:
            job.phases = job.control = None
            job.way.close()
        return decisions

    def _drive(self, name: str, job: _Job, phases: Phases, now: Now) -> list[Decision]:
        if job.control is None:
            why = f"incident {phases.incident.id[:12]}: a slowdown that has not been measured"
            wire = job.way.enter_context(self._reach(name))
            attempt, incident = phases.incident.attempt, phases.incident.id
            job.control = ControlledJob(wire, self._signer, name, why, attempt=attempt, incident=incident)
        orders, decisions = phases.step(job.control.results(), now)
        for what in orders:
            job.control.order(what, now.unix_ns)
        return decisions

    def _now(self) -> Now:
        return Now(monotonic_ns=round(self._clock.monotonic_s() * 1e9), unix_ns=self._clock.now_ns())
