"""Attends to slowdowns by itself, in mode `auto`: incidents in; orders to agents, and decisions out.

One incident of a job at a time: it is looked into, each suspicion once and with so many validations an hour; and as
soon as its culprit is proven micro-batches are moved away from it, where scripts take orders for them. That costs less
than a validation, so it is due before it. Whoever is held by an attendant that has died goes on by itself, and an
incident that is open is looked into again when it is next heard of. What one has moved the next one gives back, by the
decisions that it is told of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from actuators.control.controlled_job import ControlledJob, Signs
from actuators.limits import Hourly, Limits
from actuators.looks import TRACK
from actuators.mitigating import Mitigating, may_be_moved
from actuators.mitigation.actions import ADJUST_MICROBATCHES
from actuators.mitigation.loss import aim_of
from actuators.mitigation.moving import KEEP_MICROBATCHES, RESTORE_MICROBATCHES
from actuators.phases import Now, Phases, unmeasured
from actuators.thresholds import AGAIN_AFTER_NS, MOST_JOBS, MOST_LOOKED_INTO, MOST_VALIDATIONS_PER_HOUR
from pacehound.bus.control import ControlWire
from pacehound.clock import Clock
from pacehound.errors import PacehoundError
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.orders import What

logger = logging.getLogger(__name__)

MOVING = (ADJUST_MICROBATCHES.name, KEEP_MICROBATCHES.name, RESTORE_MICROBATCHES.name)
"""After these decisions ranks may have another distribution than their own, until the job is only followed again."""

Reach = Callable[[str], AbstractContextManager[ControlWire]]
"""Opens the way to a job's agents; `Unavailable` where there is none."""

_Suspicion = tuple[str, tuple[int, ...]]
"""An incident, and whom it named."""


@dataclass(slots=True)
class _Job:
    """What is known of one job; `control` and `way` while one of its incidents is looked into, or acted upon.

    `acted_upon` are suspicions about which nothing more is done, `left` the incident about which micro-batches were
    moved by somebody who has gone.
    """

    phases: Phases | None = None
    mitigating: Mitigating | None = None
    control: ControlledJob | None = None
    way: ExitStack = field(default_factory=ExitStack)
    looked_into: dict[_Suspicion, None] = field(default_factory=dict)
    validations: Hourly = field(default_factory=lambda: Hourly(MOST_VALIDATIONS_PER_HOUR))
    acted_upon: dict[_Suspicion, None] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    left: str = ""
    again_ns: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is done about it."""
        return self.phases is None and self.mitigating is None

    def hang_up(self) -> None:
        """Close the way to its agents."""
        self.control = None
        self.way.close()


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
        if job.mitigating is not None and job.mitigating.incident.id == incident.id:
            job.mitigating.on_incident(incident)
        if job.phases is not None and job.phases.incident.id == incident.id:
            job.phases.on_incident(incident, now)
        if job.left == incident.id and job.mitigating is None:
            job.left = ""
            job.mitigating = Mitigating(incident, now.unix_ns, job.limits, was_left=True)
        finding = unmeasured(incident)
        if job.phases is None and finding is not None and self._may_look(job, incident, finding, now):
            job.looked_into[incident.id, aim_of(finding)] = None
            for oldest_one in list(job.looked_into)[:-MOST_LOOKED_INTO]:
                del job.looked_into[oldest_one]
            job.phases = Phases(incident, now.unix_ns, now)
        _begin_to_act(job, incident, now)

    def on_decided(self, decision: Decision) -> None:
        """What an attendant before this one has decided, in its order."""
        if decision.taken and decision.action in MOVING:
            self._jobs.setdefault(decision.job, _Job()).left = decision.incident
        elif decision.action == TRACK.name and decision.number and (job := self._jobs.get(decision.job)) is not None:
            job.left = job.left if job.left != decision.incident else ""

    def step(self) -> list[Decision]:
        """What is due in every job."""
        now = self._now()
        return [decision for name, job in self._jobs.items() for decision in self._step(name, job, now)]

    def forget(self) -> None:
        """Somebody else goes on; what is held here goes on by itself."""
        jobs, self._jobs = self._jobs, {}
        for name, job in jobs.items():
            job.hang_up()
            if job.mitigating is not None and job.mitigating.has_moved:
                self._jobs[name] = _Job(left=job.mitigating.incident.id)
            elif job.left:
                self._jobs[name] = _Job(left=job.left)

    def _forget_the_oldest(self) -> None:
        idle = [name for name, job in self._jobs.items() if job.is_idle]
        for name in idle[: max(len(self._jobs) - MOST_JOBS, 0)]:
            del self._jobs[name]

    def _may_look(self, job: _Job, incident: Incident, finding: Finding, now: Now) -> bool:
        is_new = (incident.id, aim_of(finding)) not in job.looked_into
        return is_new and not job.validations.is_reached(now.monotonic_ns)

    def _step(self, name: str, job: _Job, now: Now) -> list[Decision]:
        if job.is_idle or now.monotonic_ns < job.again_ns:
            return []
        phases, mitigating = job.phases, job.mitigating
        before = (phases.phase if phases else "", mitigating.state if mitigating else "")
        decisions: list[Decision] = []
        try:
            self._drive(name, job, now, decisions)
        except PacehoundError as error:
            logger.warning("job %s: its agents cannot be reached: %s", name, error)
            if phases is not None:
                # Nobody can be told anything: whoever is held goes on when the lease is over.
                decisions += phases.end(f"its agents cannot be reached: {error}", now)[1]
            # What was moved has to be given back, whenever they can be reached again.
            job.again_ns = now.monotonic_ns + AGAIN_AFTER_NS if mitigating is not None else 0
            job.hang_up()
        if phases is not None and phases.phase != before[0]:
            logger.info("job %s: %s: %s", name, phases.phase, phases.reason)
            if phases.phase == "validation":
                job.validations.note(now.monotonic_ns)
        if mitigating is not None and mitigating.state != before[1]:
            logger.info("job %s: micro-batches: %s: %s", name, mitigating.state, mitigating.reason)
        self._tidy(job, now)
        return decisions

    def _drive(self, name: str, job: _Job, now: Now, decisions: list[Decision]) -> None:
        """Never both: what is measured while ranks are held, or micro-batches move, says nothing."""
        phases, mitigating = job.phases, job.mitigating
        incident = phases.incident if phases is not None else None
        if mitigating is not None and mitigating.needs_agents:
            incident = mitigating.incident
        control = None if incident is None else self._reached(name, job, incident)
        results = [] if control is None else control.results()
        orders: list[What] = []
        if mitigating is not None and (phases is None or phases.phase != "validation"):
            more, decided = mitigating.step(results, now)
            orders += more
            decisions += decided
        if phases is not None and (mitigating is None or mitigating.is_calm(now)):
            more, decided = phases.step(results, now)
            orders += more
            decisions += decided
        if control is not None:
            for what in orders:
                control.order(what, now.unix_ns)

    def _tidy(self, job: _Job, now: Now) -> None:
        """Put away what is over."""
        phases, mitigating = job.phases, job.mitigating
        if mitigating is not None and mitigating.is_over:
            job.mitigating = None
            if not mitigating.may_act_again:
                job.acted_upon[mitigating.incident.id, mitigating.aim] = None
                for oldest_one in list(job.acted_upon)[:-MOST_LOOKED_INTO]:
                    del job.acted_upon[oldest_one]
        if phases is not None and phases.is_over:
            job.phases = None
            _begin_to_act(job, phases.incident, now)
        if job.is_idle:
            job.hang_up()

    def _reached(self, name: str, job: _Job, incident: Incident) -> ControlledJob:
        if job.control is None:
            wire = job.way.enter_context(self._reach(name))
            job.control = ControlledJob(
                wire,
                self._signer,
                name,
                f"incident {incident.id[:12]}: a slowdown",
                attempt=incident.attempt,
                incident=incident.id,
            )
        return job.control

    def _now(self) -> Now:
        return Now(monotonic_ns=round(self._clock.monotonic_s() * 1e9), unix_ns=self._clock.now_ns())


def _begin_to_act(job: _Job, incident: Incident, now: Now) -> None:
    """Where the culprit is proven, and nothing was done about it before."""
    against = may_be_moved(incident)
    if against is None or job.mitigating is not None:
        return
    if job.phases is not None and job.phases.incident.id != incident.id:
        return
    if (incident.id, aim_of(against.finding)) not in job.acted_upon:
        job.mitigating = Mitigating(incident, now.unix_ns, job.limits)
