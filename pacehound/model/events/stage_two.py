"""What stage two of the streams concludes of a job: changes, findings, prices, incidents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pacehound.errors import InvalidEvent
from pacehound.model.evidence import Evidence, merged
from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64

FindingKind = Literal["slow", "hang", "exit", "intermittent", "change", "planned", "blind"]
VerdictWord = Literal["culprit", "suspected", "unknown"]
SURENESS: Mapping[VerdictWord, int] = {"unknown": 0, "suspected": 1, "culprit": 2}
"""A surer verdict has a higher number."""
HALTS: frozenset[FindingKind] = frozenset({"hang", "exit"})
"""The kinds of findings by which a job stands still."""
Cause = Literal["H1", "H2", "H3", "S1", "S2", "S3"]
IncidentState = Literal["open", "relieved", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """A moment of a job: its iteration, where one is known, and its event time."""

    step: Int64 | None
    time_ns: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Changepoint:
    """A verified, lasting change of a series' level (onset of a slowdown, or its relief)."""

    job: str
    attempt: Int64
    series: str
    at: Instant
    detected: Instant
    before_s: float
    after_s: float
    probability: float

    @property
    def magnitude(self) -> float:
        """Relative change: +0.4 is 40 % slower; NaN from a level of zero, for the ratio to it is no number."""
        return self.after_s / self.before_s - 1.0 if self.before_s else math.nan

    @property
    def time_ns(self) -> int:
        """When it could first be said."""
        return self.detected.time_ns

    def identity(self) -> str:
        """Names (job, attempt, series, where it was found)."""
        return event_id("changepoint", self.job, self.attempt, self.series, self.detected.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutlier:
    """A communicator whose transfers take more than 1.1 x the median of its peers (Falcon 4.3)."""

    job: str
    attempt: Int64
    time_ns: Int64
    communicator: str
    peers: Int64
    transfer_s: float
    median_s: float

    def identity(self) -> str:
        """Names (job, attempt, communicator, time)."""
        return event_id("group", self.job, self.attempt, self.communicator, self.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntRounds:
    """What rounds of one kind take in this attempt, from its first ones (CCL-D's T_base, 4.2.1); of many communicators
    that make the same rounds, their median. The fields are those of `UsualRounds`.
    """

    job: str
    attempt: Int64
    time_ns: Int64
    op: str
    size_bytes: Int64
    source: str
    n_ranks: Int64
    n_hosts: Int64
    host_kind: str
    longest_s: float

    def identity(self) -> str:
        """Names (job, attempt, operation, size, source, shape)."""
        return event_id(
            "learnt", self.job, self.attempt, self.op, self.size_bytes, self.source, self.n_ranks, self.n_hosts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was concluded, how sure that is, and from what (DESIGN section 10).

    Attributes
    ----------
    id
        The same through all its versions: it names (job, attempt, kind, onset).
    verdict
        `culprit` needs positive evidence; `suspected` names the likeliest; `unknown` names nobody.
    culprits, candidates, victims
        World ranks; `culprits` is empty where the verdict is `unknown`.
    relief
        When it ended; `None` while it lasts.
    magnitude
        Relative change of the iteration time (+0.10 is 10 % slower); `None` for a hang.
    unseen
        What could not be seen and might change the verdict.

    """

    id: str
    job: str
    attempt: Int64
    kind: FindingKind
    verdict: VerdictWord
    cause: Cause | None
    culprits: tuple[Int64, ...] = ()
    candidates: tuple[Int64, ...] = ()
    victims: tuple[Int64, ...] = ()
    links: tuple[tuple[Int64, Int64], ...] = ()
    onset: Instant | None = None
    detected: Instant | None = None
    relief: Instant | None = None
    magnitude: float | None = None
    lasting: bool = False
    pages: bool = False
    evidence: tuple[Evidence, ...] = ()
    unseen: tuple[str, ...] = ()
    source: str = ""
    version: Int64 = 0

    def __post_init__(self) -> None:
        if self.verdict == "unknown" and self.culprits:
            raise InvalidEvent(f"finding {self.id} names culprits {list(self.culprits)} with the verdict 'unknown'")
        if self.verdict != "unknown" and not self.culprits and not self.links:
            raise InvalidEvent(f"finding {self.id} says {self.verdict!r} and names nobody")

    @property
    def time_ns(self) -> int:
        """When this version of it was said."""
        latest = [i.time_ns for i in (self.onset, self.detected, self.relief) if i is not None]
        return max(latest, default=0)

    def next_version(self, *more_evidence: Evidence, **changes: Any) -> Finding:
        """The next thing to say of it: some fields have changed, and there may be more evidence, or newer."""
        evidence = changes.pop("evidence", self.evidence)
        return replace(self, version=self.version + 1, evidence=merged(evidence, more_evidence), **changes)

    def identity(self) -> str:
        """Names the finding and its version."""
        return event_id("finding", self.id, self.version)


FixKind = Literal["worker", "stage", "optype"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixPrice:
    """What a job would gain if one part of it were as the rest.

    Attributes
    ----------
    what, name
        `worker` (its DP rank and stage), `stage` or `optype`, and which.
    ranks
        World ranks of the part; empty for an operation type.
    step_time_s
        Mean simulated step time with it.
    gain
        Relative reduction of the mean step time: the share of the job's GPU-hours that it would give back.

    """

    what: FixKind
    name: str
    ranks: tuple[Int64, ...]
    step_time_s: float
    gain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfPrice:
    """What the stragglers of a job cost it in a window of sampled steps (the what-if analysis, live).

    Attributes
    ----------
    first_step, last_step, n_steps
        The window; sampled steps are not consecutive.
    ranks
        World size.
    recorded_s, original_s, ideal_s
        Mean step times: as recorded; simulated as it was, without launch delays; simulated without stragglers.
    slowdown, waste
        Original over ideal, and the share of the GPU-hours that is lost by it.
    discrepancy
        How far the simulated original lies from what was recorded; beyond 0.05 the rest should not be believed.
    fixes
        What fixing one part would give back, the best first.
    patterns
        Known causes that the window shows.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    first_step: Int64
    last_step: Int64
    n_steps: Int64
    ranks: Int64
    recorded_s: float
    original_s: float
    ideal_s: float
    slowdown: float
    waste: float
    discrepancy: float
    fixes: tuple[FixPrice, ...] = ()
    patterns: tuple[str, ...] = ()

    def identity(self) -> str:
        """Names (job, attempt, window)."""
        return event_id("what-if", self.job, self.attempt, self.first_step, self.last_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an incident has cost so far: excess time x ranks.

    `what_if` is the price of the job's stragglers in the last window of sampled steps, where operations are recorded.
    """

    excess_s: float = 0.0
    ranks: Int64 = 0
    gpu_hours: float = 0.0
    what_if: WhatIfPrice | None = None


def foremost(findings: Sequence[Finding]) -> Finding | None:
    """The finding that an incident is told by: a hang or an exit before slowness, and of those the surest.

    >>> slow = Finding(id="a", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,))
    >>> hang = Finding(id="b", job="j", attempt=0, kind="hang", verdict="suspected", cause="H1", culprits=(2,))
    >>> foremost((slow, hang)).kind
    'hang'
    """
    return max(findings, key=lambda one: (one.kind in HALTS, SURENESS[one.verdict]), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Findings that belong together, with a life: open, updated, relieved, closed.

    `id` stays for its life (job, attempt, first finding); `version` counts what was said about it.
    """

    id: str
    version: Int64
    job: str
    attempt: Int64
    time_ns: Int64
    state: IncidentState
    opened_ns: Int64
    closed_ns: Int64 | None = None
    closed_why: str | None = None
    findings: tuple[Finding, ...] = ()
    cost: Cost = field(default_factory=Cost)

    def identity(self) -> str:
        """Names the incident and its version."""
        return event_id("incident", self.id, self.version)
