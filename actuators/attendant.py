"""Attends to incidents by itself, in modes `approve` and `auto`: incidents in; orders to agents, and decisions out.

One incident of a job at a time: it is looked into, each suspicion once and with so many validations an hour; and as
soon as its culprit is proven the cheapest action that may help waits for its moment, and the next one after it.
Whoever is held by an attendant that has died goes on by itself, and an incident that is open is looked into again when
it is next heard of. What one has moved the next one gives back, by the decisions that it is told of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from actuators.acting.act import Act, Terms
from actuators.acting.choosing import GIVES_BACK, acts_against, given_back, gone_on_with
from actuators.acting.commanding import LeftRestart, left_restarts
from actuators.acting.limits import Hourly, Limits
from actuators.acting.site import Site
from actuators.answers import Answers, Trusts
from actuators.control.controlled_job import ControlledJob, Signs
from actuators.looks import TRACK, VALIDATE
from actuators.mitigation.actions import Action
from actuators.mitigation.loss import aim_of
from actuators.mitigation.prices import Measured
from actuators.modes import Modes
from actuators.now import Now
from actuators.phases import Phases, unmeasured
from actuators.site_commands import SiteCommands
from actuators.thresholds import AGAIN_AFTER_NS, MOST_JOBS, MOST_LOOKED_INTO, MOST_VALIDATIONS_PER_HOUR
from pacehound.bus.control import AttendedWire
from pacehound.clock import Clock
from pacehound.errors import PacehoundError
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.orders import ANY_ATTEMPT, What
from pacehound.model.topics import INCIDENTS, partition_of
from pacehound.settings import ActuatorSettings

logger = logging.getLogger(__name__)

Reach = Callable[[str], AbstractContextManager[AttendedWire]]
"""Opens the way to a job's agents; `Unavailable` where there is none."""

_Suspicion = tuple[str, tuple[int, ...]]
"""An incident, and whom it named."""

_Tried = tuple[str, tuple[int, ...], str]
"""A suspicion, and what was done about it."""


@dataclass(slots=True)
class _Job:
    """What is known of one job; `control` and `way` while one of its incidents is looked into, or acted upon.

    `tried` is what is not done again, `left` the incident about which something was done by somebody who has gone, and
    what; `restart` what somebody who has gone has begun; `to_note` what nothing may follow from before it is written.
    """

    site: Site
    phases: Phases | None = None
    act: Act | None = None
    control: ControlledJob | None = None
    answers: Answers | None = None
    speaks_to: int = 0
    way: ExitStack = field(default_factory=ExitStack)
    looked_into: dict[_Suspicion, None] = field(default_factory=dict)
    validations: Hourly = field(default_factory=lambda: Hourly(MOST_VALIDATIONS_PER_HOUR))
    tried: dict[_Tried, None] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    left: tuple[str, str] | None = None
    restart: LeftRestart | None = None
    to_note: list[Decision] = field(default_factory=list)
    again_ns: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is done about it."""
        return self.phases is None and self.act is None and self.restart is None

    def hang_up(self) -> None:
        """Close the way to its agents."""
        self.control = self.answers = None
        self.way.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a site wants.

    Attributes
    ----------
    modes
        What may be done by itself, and for what somebody is asked.
    trusts
        Whose yes counts.
    measured
        The prices of a job, as its history has them.
    site
        Makes whoever runs the site's commands, for one job.
    noted
        What was written down of restarts by whoever had the same folder.

    """

    modes: Modes = field(default_factory=Modes)
    trusts: Trusts = field(default=lambda _: False)
    measured: Callable[[str], Measured] = field(default=lambda _: Measured())
    site: Callable[[], Site] = field(default=lambda: SiteCommands(ActuatorSettings()))
    noted: Callable[[], Iterable[Decision]] = field(default=lambda: ())


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
    rules
        What the site wants.

    """

    def __init__(self, signer: Signs, clock: Clock, reach: Reach, rules: Rules | None = None) -> None:
        self._signer, self._clock, self._reach = signer, clock, reach
        self._rules = rules or Rules()
        self._jobs: dict[str, _Job] = {}

    def on_incident(self, incident: Incident) -> None:
        """Remember it; what comes of it is said in `step`."""
        known = self._jobs.pop(incident.job) if incident.job in self._jobs else None
        job = self._jobs[incident.job] = known or _Job(self._rules.site())
        self._forget_the_oldest()
        now = self._now()
        self._go_on(job, now)
        if job.act is not None and job.act.incident.id == incident.id:
            job.act.on_incident(incident)
        if job.phases is not None and job.phases.incident.id == incident.id:
            job.phases.on_incident(incident, now)
        if job.left is not None and job.left[0] == incident.id and job.act is None:
            job.act = given_back(job.left[1], incident, now.unix_ns, Terms(limits=job.limits))
            job.left = None
        finding, how = unmeasured(incident), self._rules.modes.acting(incident.job, VALIDATE.name)
        if job.phases is None and finding and how and self._may_look(job, incident, finding, now):
            job.looked_into[incident.id, aim_of(finding)] = None
            for oldest_one in list(job.looked_into)[:-MOST_LOOKED_INTO]:
                del job.looked_into[oldest_one]
            hold_s = self._rules.measured(incident.job).hold_s or 0.0  # the least that a hold has cost this job
            job.phases = Phases(incident, now.unix_ns, now, how, max(VALIDATE.price_s, hold_s))
        self._begin_to_act(job, incident, now)

    def on_decided(self, decision: Decision) -> None:
        """What an attendant before this one has decided, in its order."""
        if decision.taken and decision.action in GIVES_BACK:
            job = self._jobs.setdefault(decision.job, _Job(self._rules.site()))
            job.left = (decision.incident, decision.action)
        elif decision.action == TRACK.name and decision.number and (known := self._jobs.get(decision.job)) is not None:
            known.left = None if known.left is None or known.left[0] == decision.incident else known.left

    def take_up(self, log: Iterable[Decision], partitions: set[int]) -> list[Decision]:
        """Go on with the restarts of these partitions that are not over; what of them the log lacks is to be said."""
        standing = [one for one in log if one.site is not None]
        known = {one.identity() for one in standing}
        lost = [
            one
            for one in self._rules.noted()
            if one.identity() not in known and partition_of(one.job.encode(), INCIDENTS.partitions) in partitions
        ]
        found = [*standing, *lost]
        left = {one.ordered.identity(): one for one in left_restarts(found)}
        now = self._now()
        for one in found:
            if one.site is None or one.site.restart:
                continue
            job = self._jobs.setdefault(one.job, _Job(self._rules.site()))
            ago_ns = now.unix_ns - one.time_ns
            job.limits.acted(now.monotonic_ns - ago_ns)
            job.tried[one.incident, one.aimed_at, one.action] = None
            if one.identity() in left:
                if job.restart is not None:
                    logger.error("job %s: two restarts are not over; the later one is gone on with", one.job)
                job.restart = left[one.identity()]
        return lost

    def on_settled(self) -> None:
        """What was decided so far is durable."""
        now = self._now()
        for name, job in self._jobs.items():
            self._note(name, job)
            if job.act is not None and not job.to_note:
                job.act.on_settled(now)

    @property
    def is_idle(self) -> bool:
        """Nothing is done about any job."""
        return all(job.is_idle and not job.to_note for job in self._jobs.values())

    def step(self) -> list[Decision]:
        """What is due in every job."""
        now = self._now()
        return [decision for name, job in self._jobs.items() for decision in self._step(name, job, now)]

    def forget(self) -> None:
        """Somebody else goes on; what is held here goes on by itself."""
        jobs, self._jobs = self._jobs, {}
        for name, job in jobs.items():
            job.hang_up()
            left = job.left
            if job.act is not None and job.act.has_moved:
                left = (job.act.incident.id, job.act.action.name)
            if left is not None:
                self._jobs[name] = _Job(self._rules.site(), left=left)

    def _go_on(self, job: _Job, now: Now) -> None:
        """With what somebody who has gone has begun."""
        left, job.restart = job.restart, None
        if left is None:
            return
        how = self._rules.modes.acting(left.ordered.job, left.ordered.action)
        terms = Terms(mode=how or "auto", limits=job.limits, measured=self._rules.measured(left.ordered.job))
        job.act = gone_on_with(left, now.unix_ns, terms, job.site, is_allowed=how is not None)

    def _note(self, name: str, job: _Job) -> None:
        """Write down what nothing may follow from before."""
        try:
            while job.to_note:
                job.site.note(job.to_note[0])
                del job.to_note[0]
        except OSError as error:
            logger.error("job %s: its restart waits, for what is done cannot be written down: %s", name, error)

    def _forget_the_oldest(self) -> None:
        idle = [name for name, job in self._jobs.items() if job.is_idle]
        for name in idle[: max(len(self._jobs) - MOST_JOBS, 0)]:
            del self._jobs[name]

    def _may_look(self, job: _Job, incident: Incident, finding: Finding, now: Now) -> bool:
        is_new = (incident.id, aim_of(finding)) not in job.looked_into
        return is_new and not job.validations.is_reached(now.monotonic_ns)

    def _begin_to_act(self, job: _Job, incident: Incident, now: Now) -> None:
        """The cheapest action that may help and was not tried, where none is under way."""
        if job.act is not None or (job.phases is not None and job.phases.incident.id != incident.id):
            return
        measured: list[Measured] = []

        def terms_of(action: Action) -> Terms | None:
            how = self._rules.modes.acting(incident.job, action.name)
            if how is None:
                return None
            if not measured:
                measured.append(self._rules.measured(incident.job))
            return Terms(mode=how, limits=job.limits, measured=measured[0])

        acts = acts_against(incident, now.unix_ns, terms_of, job.site)
        job.act = next((one for one in acts if (incident.id, one.aim, one.action.name) not in job.tried), None)

    def _step(self, name: str, job: _Job, now: Now) -> list[Decision]:
        if job.is_idle or now.monotonic_ns < job.again_ns:
            return []
        self._go_on(job, now)
        phases, act = job.phases, job.act
        before = (phases.phase if phases else "", act.state if act else "")
        decisions: list[Decision] = []
        try:
            self._drive(name, job, now, decisions)
        except PacehoundError as error:
            logger.warning("job %s: its agents cannot be reached: %s", name, error)
            if phases is not None:
                # Nobody can be told anything: whoever is held goes on when the lease is over.
                decisions += phases.end(f"its agents cannot be reached: {error}", now)[1]
            # What was moved has to be given back, whenever they can be reached again.
            job.again_ns = now.monotonic_ns + AGAIN_AFTER_NS if act is not None else 0
            job.hang_up()
        if phases is not None and phases.phase != before[0]:
            logger.info("job %s: %s: %s", name, phases.phase, phases.reason)
            if phases.phase == "validation":
                job.validations.note(now.monotonic_ns)
        if act is not None and act.state != before[1]:
            logger.info("job %s: %s: %s: %s", name, act.action.name, act.state, act.reason)
        job.to_note += [one for one in decisions if one.site is not None]
        self._note(name, job)
        self._tidy(job, now)
        return decisions

    def _drive(self, name: str, job: _Job, now: Now, decisions: list[Decision]) -> None:
        """Never both: what is measured while ranks are held, or something is applied, says nothing."""
        phases, act = job.phases, job.act
        incident = phases.incident if phases is not None else None
        is_any = False
        if act is not None and act.needs_agents:
            incident, is_any = act.incident, act.is_for_any_attempt
        control = None if incident is None else self._reached(name, job, incident, is_any=is_any)
        results = [] if control is None else control.results()
        for answer in [] if job.answers is None else job.answers.new(now.unix_ns):
            for one in (act, phases):
                if one is not None:
                    one.on_answer(answer)
        orders: list[What] = []
        if act is not None and (phases is None or phases.phase != "validation"):
            more, decided = act.step(results, now)
            orders += more
            decisions += decided
        if phases is not None and (act is None or act.is_calm(now)):
            more, decided = phases.step(results, now)
            orders += more
            decisions += decided
        if control is not None:
            for what in orders:
                control.order(what, now.unix_ns)

    def _tidy(self, job: _Job, now: Now) -> None:
        """Put away what is over."""
        phases, act = job.phases, job.act
        if act is not None and act.is_over:
            job.act = None
            if not act.may_act_again:
                job.tried[act.incident.id, act.aim, act.action.name] = None
                for oldest_one in list(job.tried)[:-MOST_LOOKED_INTO]:
                    del job.tried[oldest_one]
                self._begin_to_act(job, act.incident, now)
        if phases is not None and phases.is_over:
            job.phases = None
            self._begin_to_act(job, phases.incident, now)
        if job.is_idle:
            job.hang_up()

    def _reached(self, name: str, job: _Job, incident: Incident, *, is_any: bool) -> ControlledJob:
        attempt = ANY_ATTEMPT if is_any else incident.attempt
        if job.control is not None and job.speaks_to != attempt:
            job.hang_up()
        if job.control is None:
            wire = job.way.enter_context(self._reach(name))
            why = f"incident {incident.id[:12]}"
            job.control = ControlledJob(wire, self._signer, name, why, attempt=attempt, incident=incident.id)
            job.answers, job.speaks_to = Answers(wire, name, self._rules.trusts), attempt
        return job.control

    def _now(self) -> Now:
        return Now(monotonic_ns=round(self._clock.monotonic_s() * 1e9), unix_ns=self._clock.now_ns())
