"""A month of a fleet: what the pipeline would publish about many jobs, and what happened to each.

The calls of a month cannot be simulated. These are the events that are concluded from calls: topologies, thinned
iterations, findings, incidents, notifications, decisions and readings of GPUs. How often, how long and how much is in
the range of Falcon's characterization study (its section 3); some hosts and cards are worse than others. 200 jobs are
about 15,000 events, which are made in less than a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pacehound.model.events import (
    Cause,
    Cost,
    Decision,
    Finding,
    FindingKind,
    GpuReading,
    HostVitals,
    Incident,
    Instant,
    IterationSample,
    Notification,
    Topology,
)
from pacehound.model.evidence import Evidence
from pacehound.model.evidence.machines import Gpu, LacksProcessor
from pacehound.model.identity import event_id
from pacehound.model.routing import Event

SECOND_NS = 1_000_000_000
MINUTE_NS, HOUR_NS = 60 * SECOND_NS, 3600 * SECOND_NS
MONTH_NS = 30 * 24 * HOUR_NS
RANKS_PER_HOST = 8
SIZES = {16: 0.38, 64: 0.34, 256: 0.16, 512: 0.07, 1024: 0.03, 2048: 0.02}
"""Ranks of a job, and how many of the jobs have so many."""
BAD_HOSTS = 12
"""Hosts that are at fault more often than others."""
SAMPLES = 40
"""Iterations that are kept of a run; around an action there are more, one in `AROUND_NS`."""
AROUND_NS = 100 * SECOND_NS
NOISE = 0.01
"""Standard deviation of a step time, relative."""
QUIET_NS = MINUTE_NS
"""An incident is closed so long after its relief."""

# What happens, how often, and how long the middle one of it lasts. The times of Falcon: 10 minutes for computation,
# 24 and 72 minutes for communication.
_KINDS: tuple[tuple[FindingKind, Cause | None, str, float, float], ...] = (
    ("slow", "S2", "network congestion", 0.56, 24.0),
    ("slow", "S1", "CPU contention", 0.12, 10.0),
    ("slow", "S1", "GPU degradation", 0.14, 12.0),
    ("slow", None, "not named", 0.06, 15.0),
    ("hang", "H1", "hang", 0.08, 20.0),
    ("hang", "H3", "hang", 0.04, 30.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthAction:
    """What was done about an incident, and how much slower than usual the job was from then on."""

    name: str
    acted_ns: int
    magnitude: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthIncident:
    """What happened.

    Attributes
    ----------
    reason
        In the words of Falcon's table 1.
    culprits, links
        World ranks; the host of a culprit is `hosts[rank // RANKS_PER_HOST]` of its job.
    episodes
        From when to when, the last one without an end where it goes on when the month is over.
    is_over
        It ended by itself, and not with its job.
    told_ns
        When somebody was told; 0 where nobody was.

    """

    id: str
    kind: FindingKind
    cause: Cause | None
    reason: str
    culprits: tuple[int, ...]
    links: tuple[tuple[int, int], ...]
    magnitude: float | None
    episodes: tuple[tuple[int, int | None], ...]
    is_over: bool
    detected_ns: int
    opened_ns: int
    told_ns: int
    lost_s: float
    action: MonthAction | None = None

    @property
    def onset_ns(self) -> int:
        """When it began."""
        return self.episodes[0][0]

    @property
    def end_ns(self) -> int | None:
        """When it was over."""
        return self.episodes[-1][1]

    def slowdown(self, time_ns: int) -> float:
        """By how much, relatively, the job is slower then."""
        inside = any(onset <= time_ns and (end is None or time_ns < end) for onset, end in self.episodes)
        if not inside or self.magnitude is None:
            return 0.0
        return self.action.magnitude if self.action and time_ns >= self.action.acted_ns else self.magnitude


@dataclass(frozen=True, kw_only=True)
class MonthJob:
    """A job: its shape, when it ran and what happened to it."""

    job: str
    ranks: int
    hosts: tuple[str, ...]
    is_on_gpus: bool
    first_ns: int
    last_ns: int
    step_time_s: float
    incidents: tuple[MonthIncident, ...]
    seed: int

    def host(self, rank: int) -> str:
        """Where a rank runs."""
        return self.hosts[rank // RANKS_PER_HOST]

    def events(self) -> Iterator[Event]:
        """What is published about it."""
        yield from self._topology()
        yield from self._iterations()
        for incident in self.incidents:
            yield from self._life(incident)

    def _topology(self) -> Iterator[Event]:
        members = tuple(range(self.ranks))
        for place, host in enumerate(self.hosts):
            yield Topology(
                job=self.job,
                attempt=0,
                time_ns=self.first_ns,
                host=host,
                communicator=f"world of {self.job}",
                name="world",
                is_world=True,
                members=members,
                host_ranks=members[place * RANKS_PER_HOST : (place + 1) * RANKS_PER_HOST],
                world_size=self.ranks,
                backend="nccl" if self.is_on_gpus else "gloo",
            )

    def _iterations(self) -> Iterator[Event]:
        rng = np.random.default_rng(self.seed)
        times = {self.last_ns - n * (self.last_ns - self.first_ns) // SAMPLES for n in range(SAMPLES)}
        for incident in self.incidents:
            if incident.action is not None:
                first, last = incident.onset_ns - HOUR_NS // 2, incident.action.acted_ns + HOUR_NS // 2
                times |= set(range(max(first, self.first_ns + AROUND_NS), min(last, self.last_ns), AROUND_NS))
        for time_ns in sorted(times):
            slowdown = sum(incident.slowdown(time_ns) for incident in self.incidents)
            yield IterationSample(
                job=self.job,
                attempt=0,
                time_ns=time_ns,
                communicator=f"world of {self.job}",
                step=self._step(time_ns),
                ranks=(0,),
                ends_ns=(time_ns,),
                step_time_s=float(self.step_time_s * (1 + slowdown) * (1 + NOISE * rng.standard_normal())),
                boundary="optimizer_step",
            )

    def _step(self, time_ns: int) -> int:
        return round((time_ns - self.first_ns) / SECOND_NS / self.step_time_s)

    def _instant(self, time_ns: int) -> Instant:
        return Instant(step=self._step(time_ns), time_ns=time_ns)

    def _life(self, one: MonthIncident) -> Iterator[Event]:
        first, *more = (self._finding(one, number, is_over=False) for number in range(len(one.episodes)))
        last = tuple(self._finding(one, number, is_over=True) for number in range(len(one.episodes)))
        yield first
        yield self._incident(one, 0, (first,), one.opened_ns)
        if one.told_ns:
            yield Notification(
                job=self.job, attempt=0, time_ns=one.told_ns, incident=one.id, state="open", idempotency_key=one.id,
                sink="pagerduty", level="page", alert=one.id,
            )  # fmt: skip
        yield from self._decisions(one)
        yield from more
        yield from (finding for finding in last if finding.relief is not None)
        if one.end_ns is None:
            yield self._incident(one, 1, last, self.last_ns)
        else:
            closed_ns = min(one.end_ns + QUIET_NS, self.last_ns)
            yield self._incident(one, 1, last, closed_ns, "relieved" if one.is_over else "job ended")
        if self.is_on_gpus:
            yield from self._vitals(one)

    def _finding(self, one: MonthIncident, number: int, *, is_over: bool) -> Finding:
        onset_ns, end_ns = one.episodes[number]
        has_relief = is_over and end_ns is not None and (one.is_over or number + 1 < len(one.episodes))
        return Finding(
            id=event_id("finding", one.id, number),
            job=self.job,
            attempt=0,
            kind=one.kind,
            verdict="culprit" if one.culprits or one.links else "unknown",
            cause=one.cause,
            culprits=one.culprits,
            links=one.links,
            onset=self._instant(onset_ns),
            detected=self._instant(onset_ns + one.detected_ns - one.onset_ns),
            relief=self._instant(end_ns) if has_relief and end_ns is not None else None,
            magnitude=one.magnitude,
            lasting=True,
            pages=bool(one.told_ns),
            evidence=self._evidence(one),
            version=int(is_over),
        )

    def _evidence(self, one: MonthIncident) -> tuple[Evidence, ...]:
        if one.reason == "CPU contention":
            rank = one.culprits[0]
            return (LacksProcessor(rank=rank, host=self.host(rank), cause="other work", now=0.6, before=1.0),)
        if one.reason == "GPU degradation":
            rank = one.culprits[0]
            return (Gpu(rank=rank, name=self.gpu(rank), problem="hot", value=88),)
        return ()

    def gpu(self, rank: int) -> str:
        """The UUID of the card of a rank: it stays with the host."""
        return f"GPU-{self.host(rank)}-{rank % RANKS_PER_HOST}"

    def _incident(
        self, one: MonthIncident, version: int, found: tuple[Finding, ...], time_ns: int, why: str | None = None
    ) -> Incident:
        lost_s = one.lost_s if version else one.lost_s / 10  # what it had cost when it was opened
        return Incident(
            id=one.id,
            version=version,
            job=self.job,
            attempt=0,
            time_ns=time_ns,
            state="closed" if why else "open",
            opened_ns=one.opened_ns,
            closed_ns=time_ns if why else None,
            closed_why=why,
            findings=found,
            cost=Cost(excess_s=lost_s, ranks=self.ranks, gpu_hours=lost_s * self.ranks / 3600),
        )

    def _decisions(self, one: MonthIncident) -> Iterator[Event]:
        aimed_at = one.culprits or tuple(rank for link in one.links for rank in link)
        yield Decision(
            job=self.job, attempt=0, time_ns=one.opened_ns, incident=one.id, incident_version=0, mode="observe",
            action="ignore", reason="it may pass", price_s=0.0, loss_s=one.lost_s / 10, aimed_at=aimed_at,
        )  # fmt: skip
        if one.action is not None:
            yield Decision(
                job=self.job, attempt=0, time_ns=one.action.acted_ns, incident=one.id, incident_version=0, mode="auto",
                action=one.action.name, reason="its price is reached", price_s=60.0, loss_s=60.0, aimed_at=aimed_at,
                taken=True,
            )  # fmt: skip

    def _vitals(self, one: MonthIncident) -> Iterator[Event]:
        for host in dict.fromkeys(self.host(rank) for rank in one.culprits):
            first = self.hosts.index(host) * RANKS_PER_HOST
            ranks = range(first, first + RANKS_PER_HOST)
            gpus = tuple(GpuReading(uuid=self.gpu(r), index=r - first, ranks=(r,)) for r in ranks)
            yield HostVitals(job=self.job, attempt=0, time_ns=one.opened_ns, host=host, gpus=gpus)


@dataclass(frozen=True, kw_only=True)
class Month:
    """All jobs of a month; of one seed always the same."""

    seed: int
    n_jobs: int
    n_hosts: int
    start_ns: int

    @property
    def end_ns(self) -> int:
        """When it is over."""
        return self.start_ns + MONTH_NS

    @cached_property
    def jobs(self) -> tuple[MonthJob, ...]:
        """What ran, and what happened to it."""
        return tuple(self._job(number) for number in range(self.n_jobs))

    def events(self) -> Iterator[Event]:
        """What the pipeline publishes, job by job."""
        for job in self.jobs:
            yield from job.events()

    def _job(self, number: int) -> MonthJob:
        rng = np.random.default_rng([self.seed, number])
        # Sizes in fixed shares: a rare size is there in a small fleet, too.
        bounds = np.cumsum(list(SIZES.values()))
        ranks = list(SIZES)[min(int(np.searchsorted(bounds, (number * 0.618034) % 1.0)), len(SIZES) - 1)]
        n_hosts = min(ranks // RANKS_PER_HOST, self.n_hosts)
        ranks = n_hosts * RANKS_PER_HOST
        hosts = tuple(f"node{host:03}" for host in rng.permutation(self.n_hosts)[:n_hosts])
        length_ns = int(min(rng.lognormal(np.log(10.0), 0.6), 60.0) * HOUR_NS) + 2 * HOUR_NS
        # One of twenty is still running when the month is over.
        first_ns = self.end_ns - length_ns if number % 20 == 19 else self.start_ns + int(rng.uniform(0, MONTH_NS))
        first_ns = max(min(first_ns, self.end_ns - 2 * HOUR_NS), self.start_ns)
        last_ns = min(first_ns + length_ns, self.end_ns - 1)
        job = f"job-{number:03}"
        return MonthJob(
            job=job,
            ranks=ranks,
            hosts=hosts,
            is_on_gpus=number % 10 != 9,  # one of ten is a test of somebody on processors
            first_ns=first_ns,
            last_ns=last_ns,
            step_time_s=float(rng.uniform(0.5, 8.0)),
            incidents=tuple(_incidents(rng, job, ranks, hosts, first_ns, last_ns, self.end_ns)),
            seed=self.seed * self.n_jobs + number,
        )


def _incidents(
    rng: np.random.Generator, job: str, ranks: int, hosts: tuple[str, ...], first_ns: int, last_ns: int, end_ns: int
) -> Iterator[MonthIncident]:
    """One after the other, with an hour of quiet before each; larger jobs have more."""
    is_running = last_ns >= end_ns - 1
    bad = {f"node{host:03}" for host in range(BAD_HOSTS)}
    worse = [place for place, host in enumerate(hosts) if host in bad]
    at_ns = first_ns + HOUR_NS
    for number in range(int(rng.poisson(0.5 if ranks < 512 else 1.3))):
        onset_ns = at_ns + int(rng.exponential(2.0) * HOUR_NS)
        kind, cause, reason, _, middle_min = _KINDS[int(rng.choice(len(_KINDS), p=[kind[3] for kind in _KINDS]))]
        place = int(rng.choice(worse)) if worse and rng.random() < 0.8 else int(rng.integers(len(hosts)))
        # A bad host has a bad card.
        rank = place * RANKS_PER_HOST + (3 if hosts[place] in bad else int(rng.integers(RANKS_PER_HOST)))
        other = (rank + RANKS_PER_HOST) % ranks
        scale = 3.0 if ranks >= 512 else 1.0
        length_ns = int(rng.lognormal(np.log(middle_min * scale), 0.8) * MINUTE_NS) + 2 * MINUTE_NS
        noticed_ns = int(rng.uniform(10, 90) * SECOND_NS)
        opened_ns = onset_ns + noticed_ns + int(rng.uniform(0, 20) * SECOND_NS)
        relief_ns = onset_ns + length_ns
        if opened_ns >= last_ns - MINUTE_NS:
            return
        episodes: list[tuple[int, int | None]] = [(onset_ns, relief_ns)]
        if kind == "slow" and cause and rng.random() < 0.2:
            again_ns = relief_ns + 10 * MINUTE_NS
            episodes.append((again_ns, again_ns + length_ns))
        episodes = [(begun, end) for begun, end in episodes if begun < last_ns - MINUTE_NS]
        until_ns = episodes[-1][1] or 0
        is_over = until_ns < last_ns and not (is_running and rng.random() < 0.5)
        if not is_over:
            episodes[-1] = (episodes[-1][0], None if is_running else last_ns)
        magnitude = None if kind == "hang" else float(rng.uniform(0.15, 1.2))
        action = None
        if magnitude is not None and cause is not None and length_ns > 12 * MINUTE_NS and rng.random() < 0.5:
            action = MonthAction(
                name="adjust_microbatches" if cause == "S1" else "adjust_topology",
                # In the middle between two samples, and while the first episode lasts.
                acted_ns=onset_ns + 5 * AROUND_NS + AROUND_NS // 2,
                magnitude=magnitude * float(rng.uniform(0.1, 0.9)),
            )
            action = action if action.acted_ns < last_ns - 10 * MINUTE_NS else None
        yield MonthIncident(
            id=event_id("incident", job, number),
            kind=kind,
            cause=cause,
            reason=reason,
            culprits=(rank,) if cause in ("S1", "H1") else (),
            links=((rank, other),) if cause in ("S2", "H3") else (),
            magnitude=magnitude,
            episodes=tuple(episodes),
            is_over=is_over,
            detected_ns=onset_ns + noticed_ns,
            opened_ns=opened_ns,
            told_ns=opened_ns + int(rng.uniform(1, 5) * SECOND_NS) if rng.random() < 0.8 else 0,
            lost_s=_lost_s(episodes, last_ns, magnitude, action),
            action=action,
        )
        at_ns = until_ns + HOUR_NS
        if not is_over or at_ns >= last_ns:
            return


def _lost_s(
    episodes: list[tuple[int, int | None]], last_ns: int, magnitude: float | None, action: MonthAction | None
) -> float:
    """Excess time: all of it in a hang; while the job is slower by m, m of every 1 + m seconds."""
    lost_s = 0.0
    for onset_ns, relief_ns in episodes:
        until_ns = last_ns if relief_ns is None else relief_ns
        acted_ns = min(max(action.acted_ns, onset_ns), until_ns) if action else until_ns
        for length_ns, slowdown in (
            (acted_ns - onset_ns, magnitude),
            (until_ns - acted_ns, action.magnitude if action else magnitude),
        ):
            lost_s += length_ns / SECOND_NS * (1.0 if slowdown is None else slowdown / (1 + slowdown))
    return lost_s
