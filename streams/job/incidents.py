"""Findings -> incidents: what belongs together, with one life from open to closed and what it has cost."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pacehound.model.events import HALTS, Cost, Finding, Incident, IncidentState, Instant, WhatIfPrice
from pacehound.model.evidence import merged
from pacehound.model.evidence.life import Episode
from pacehound.model.identity import event_id
from pacehound.settings import IncidentSettings
from streams.job.short_slowdowns import IsCrowded, ShortSlowdowns
from streams.job.thresholds import (
    COST_UPDATE_FACTOR,
    COST_UPDATE_FROM_S,
    MAX_EPISODES_TOLD,
    QUIET_NS,
    REPEAT_NS,
)

_LEFT_OUT = ""
"""Stands among the ids of findings for those that are not told any more."""


@dataclass(slots=True)
class _Open:
    incident: Incident
    relieved_ns: int | None
    excess_s: dict[str, float]  # by finding
    price: WhatIfPrice | None = None  # of the last window of recorded steps since it opened
    n_before: dict[str, int] = field(default_factory=dict)  # of each episode of one cause, how many came before it
    n_spells: int = 0

    @property
    def total_s(self) -> float:
        """Of slowness that is told in several ways at once, what costs most."""
        total_s, most_s, until_ns = self.excess_s.get(_LEFT_OUT, 0.0), 0.0, -1
        for finding in self.incident.findings:  # in order of their onsets
            cost_s = self.excess_s.get(finding.id, 0.0)
            if finding.kind != "slow" or finding.onset is None:
                total_s += cost_s
                continue
            if finding.onset.time_ns >= until_ns:
                total_s, most_s = total_s + most_s, 0.0
            most_s = max(most_s, cost_s)
            until_ns = max(until_ns, sys.maxsize if finding.relief is None else finding.relief.time_ns)
        return total_s + most_s


class IncidentTracker:
    """The incidents of one job.

    A finding joins the open incident that shares a culprit with it, or of whose stall or exit it is the next
    chapter; else it opens a new one, if it concerns somebody. Slowness does so once it has lasted and cost enough; what
    is over before is counted. Slowness of the same ranks or links for the same cause that comes back within
    `REPEAT_NS` opens none either: its incident goes on, also if it was closed.
    """

    def __init__(self, job: str, attempt: int, settings: IncidentSettings) -> None:
        self._job = job
        self._attempt = attempt
        self._settings = settings
        self._open: list[_Open] = []
        self._over: list[_Open] = []  # closed a short while ago
        self._waiting: dict[str, Finding] = {}  # slowness that is yet too short, or costs too little
        self._short = ShortSlowdowns(job, attempt, settings.min_loss)
        self.ranks = 0

    def open_ids(self) -> list[str]:
        """Of those that are not closed."""
        return [entry.incident.id for entry in self._open]

    def on_finding(self, finding: Finding, now_ns: int, excess_s: float) -> list[Incident]:
        """A new finding, or a new version of one.

        `excess_s` is what the finding has cost the job so far.
        """
        entry = self._of(finding)
        if entry is None:
            self._waiting.pop(finding.id, None)
            is_much = self._is_much(finding, now_ns, excess_s)
            if not _concerns_somebody(finding) or not is_much:
                self._wait(finding, excess_s, is_much=is_much)
                return []  # it stays a finding
            incident = Incident(
                id=event_id("incident", self._job, self._attempt, finding.id),
                version=0,
                job=self._job,
                attempt=self._attempt,
                time_ns=now_ns,
                state="open",
                opened_ns=now_ns,
                findings=(finding,),
                cost=self._cost(excess_s),
            )
            self._open.append(_count_spell(_Open(incident, None, {finding.id: excess_s}), finding))
            return [incident]
        if entry in self._over:
            self._over.remove(entry)
            self._open.append(entry)
            entry.incident = replace(entry.incident, closed_ns=None, closed_why=None)
        others = (f for f in entry.incident.findings if f.id != finding.id)
        findings = tuple(sorted((*others, finding), key=lambda f: (f.onset.time_ns if f.onset else 0, f.id)))
        entry.excess_s[finding.id] = excess_s
        findings = _without_middle(_count_spell(entry, finding), findings)
        relieved = all(f.relief is not None for f in findings)
        entry.relieved_ns = now_ns if relieved else None
        return [self._next(entry, now_ns, "relieved" if relieved else "open", findings)]

    def on_tick(self, now_ns: int, ongoing_s: Mapping[str, float]) -> list[Incident]:
        """Close what has been quiet for long enough; say the cost again when it has doubled.

        `ongoing_s` holds what each finding that lasts has cost so far, by its id.
        """
        incidents = []
        self._over = [entry for entry in self._over if now_ns - entry.incident.time_ns < REPEAT_NS]
        for finding in list(self._waiting.values()):
            incidents += self.on_finding(finding, now_ns, ongoing_s.get(finding.id, 0.0))
        for entry in list(self._open):
            if entry.relieved_ns is not None:
                if now_ns - entry.relieved_ns >= QUIET_NS:
                    incidents.append(self._close(entry, now_ns, "relieved"))
                    self._over.append(entry)
                continue
            _update(entry, ongoing_s)
            said_s = max(COST_UPDATE_FROM_S, COST_UPDATE_FACTOR * entry.incident.cost.excess_s)
            if entry.total_s >= said_s:
                incidents.append(self._next(entry, now_ns, "open", entry.incident.findings))
        return incidents

    def adding_up(self, at: Instant, is_crowded: IsCrowded = lambda _since_ns, _share: False) -> list[Finding]:
        """What there is to say of slowdowns that were too short to be told by themselves."""
        return self._short.on_tick(at, is_crowded)

    def short_in_all(self, at: Instant) -> list[Finding]:
        """How many of them there were, when the job ends."""
        return self._short.on_end(at)

    def short_excess_s(self, finding: Finding) -> float:
        """What those cost of which such a finding tells."""
        return self._short.excess_s(finding)

    def _is_much(self, finding: Finding, now_ns: int, excess_s: float) -> bool:
        """Whether it has lasted and cost enough to be looked at; what is not slowness always has."""
        if finding.kind not in ("slow", "intermittent") or finding.onset is None:
            return True
        lasted_s = ((now_ns if finding.relief is None else finding.relief.time_ns) - finding.onset.time_ns) / 1e9
        lost = finding.magnitude or 0.0 if finding.kind == "intermittent" else excess_s / max(lasted_s, 1e-9)
        return lasted_s >= self._settings.min_duration_s and lost >= self._settings.min_loss

    def _wait(self, finding: Finding, excess_s: float, *, is_much: bool) -> None:
        """Look at it again with every tick while it lasts; count it when it is over."""
        if finding.relief is None and not is_much:
            self._waiting[finding.id] = finding
        elif finding.relief is not None and finding.kind == "slow":
            self._short.add(finding, excess_s)

    def on_price(self, price: WhatIfPrice) -> list[Incident]:
        """What the job's stragglers cost in the last window of recorded steps: open slowdowns carry it."""
        updated = []
        for entry in self._open:
            is_slow = any(finding.kind == "slow" for finding in entry.incident.findings)
            if is_slow and entry.relieved_ns is None:
                entry.price = price
                updated.append(self._next(entry, price.time_ns, "open", entry.incident.findings))
        return updated

    def on_end(self, now_ns: int, why: str, ongoing_s: Mapping[str, float]) -> list[Incident]:
        """The job has ended: nothing stays open."""
        closed = []
        for entry in list(self._open):
            _update(entry, ongoing_s)
            closed.append(self._close(entry, now_ns, why))
        return closed

    def _of(self, finding: Finding) -> _Open | None:
        for entry in self._open:
            for known in entry.incident.findings:
                same_culprit = bool(set(known.culprits) & set(finding.culprits))
                same_stall = known.kind in HALTS and finding.kind in HALTS
                if known.id == finding.id or same_culprit or same_stall or _is_same_again(known, finding):
                    return entry
        for entry in self._over:
            if any(known.id == finding.id or _is_same_again(known, finding) for known in entry.incident.findings):
                return entry
        return None

    def with_spells(self, finding: Finding) -> Finding:
        """The finding, which says so where it is not the first episode of its incident."""
        entry = self._of(finding)
        if entry is None:
            return finding
        before = entry.n_before.get(finding.id, entry.n_spells if _is_spell(entry, finding) else 0)
        if not before:
            return finding
        earlier_s = sum(excess_s for id_, excess_s in entry.excess_s.items() if id_ != finding.id)
        episode = Episode(number=before + 1, lost_before_s=earlier_s)
        return replace(finding, evidence=merged(finding.evidence, (episode,)))

    def _next(self, entry: _Open, now_ns: int, state: IncidentState, findings: tuple[Finding, ...]) -> Incident:
        entry.incident = replace(
            entry.incident,
            version=entry.incident.version + 1,
            time_ns=now_ns,
            state=state,
            findings=findings,
        )
        entry.incident = replace(entry.incident, cost=self._cost(entry.total_s, entry.price))
        return entry.incident

    def _close(self, entry: _Open, now_ns: int, why: str) -> Incident:
        self._open.remove(entry)
        closed = self._next(entry, now_ns, "closed", entry.incident.findings)
        entry.incident = replace(closed, closed_ns=now_ns, closed_why=why)
        return entry.incident

    def _cost(self, excess_s: float, price: WhatIfPrice | None = None) -> Cost:
        return Cost(excess_s=excess_s, ranks=self.ranks, gpu_hours=excess_s * self.ranks / 3600.0, what_if=price)


def _concerns_somebody(finding: Finding) -> bool:
    """Whether it opens an incident: not what was meant, and slowness only when it would wake somebody or has a name.

    A shared machine makes every job slow now and then; a finding says so to who looks, an incident to everybody.
    """
    if finding.kind in ("planned", "change"):
        return False
    if finding.kind == "intermittent" and finding.lasting:
        return True
    return finding.kind not in ("slow", "intermittent") or finding.pages or bool(finding.culprits or finding.links)


def _is_same_again(known: Finding, finding: Finding) -> bool:
    """Slowness of the same ranks, or the same links, for the same cause."""
    same_who = set(known.culprits) & set(finding.culprits) or set(known.links) & set(finding.links)
    return known.kind == finding.kind == "slow" and known.cause == finding.cause and bool(same_who)


def _is_spell(entry: _Open, finding: Finding) -> bool:
    return any(known.id != finding.id and _is_same_again(known, finding) for known in entry.incident.findings)


def _count_spell(entry: _Open, finding: Finding) -> _Open:
    is_first = entry.incident.findings == (finding,)
    if finding.id not in entry.n_before and (is_first or _is_spell(entry, finding)):
        entry.n_before[finding.id] = max(entry.n_spells, 0 if is_first else 1)
        entry.n_spells = entry.n_before[finding.id] + 1
    return entry


def _without_middle(entry: _Open, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The first and the latest, where they are many; what the others have cost stays in the cost."""
    if len(findings) <= MAX_EPISODES_TOLD or findings[1].relief is None:
        return findings
    left_out = findings[1]
    entry.n_before.pop(left_out.id, None)
    entry.excess_s[_LEFT_OUT] = entry.excess_s.get(_LEFT_OUT, 0.0) + entry.excess_s.pop(left_out.id, 0.0)
    return (findings[0], *findings[2:])


def _update(entry: _Open, ongoing_s: Mapping[str, float]) -> None:
    for finding in entry.incident.findings:
        if finding.id in ongoing_s:
            entry.excess_s[finding.id] = ongoing_s[finding.id]
