"""How bad an incident is: whether it wakes somebody, can wait until the morning, or is no alert at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from alerts.importance import Importance
from pacehound.model.events import HALTS, Finding, Incident

Level = Literal["none", "ticket", "page", "halt"]
RANK: Mapping[Level, int] = {"none": 0, "ticket": 1, "page": 2, "halt": 3}
"""`ticket` can wait until the morning, `page` wakes somebody, `halt` does even where a page is being worked on."""

# Work that was meant: a checkpoint, an evaluation, another batch size.
_MEANT = {"planned", "change"}
_MAY_WAIT = {"slow", "intermittent", "blind"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Severity:
    """A level and its reason.

    `lost_ranks`: so many ranks' worth of work is lost while it lasts; `None` where that is not known.
    """

    level: Level
    reason: str
    lost_ranks: float | None = None


def severity(incident: Incident, importance: Importance, page_lost_ranks: float) -> Severity:
    """How bad this version of an incident is.

    Parameters
    ----------
    incident
        Any version.
    importance
        How much jobs matter: what is lost counts as many times.
    page_lost_ranks
        From so many ranks' worth of lost work on somebody is woken. What is lost but not measured wakes, too.

    Examples
    --------
    >>> slow = Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,),
    ...                magnitude=0.25, pages=True)
    >>> from pacehound.model.events import Cost
    >>> incident = Incident(id="i", version=0, job="j", attempt=0, time_ns=0, state="open", opened_ns=0,
    ...                     findings=(slow,), cost=Cost(ranks=64))
    >>> severity(incident, Importance(), 8.0)
    Severity(level='page', reason='12.8 of 64 ranks are lost', lost_ranks=12.8)

    """
    findings = incident.findings
    if findings and all(finding.kind in _MEANT for finding in findings):
        return Severity(level="none", reason="only planned")
    waking = [finding for finding in findings if _wakes(finding)]
    if findings and not waking:
        return Severity(level="none", reason="wakes nobody")
    weight = importance.of(incident.job)
    if weight == 0:
        return Severity(level="none", reason="its job is of no importance")
    halts = any(finding.kind in HALTS for finding in waking)
    lost = _lost_ranks(waking, incident.cost.ranks, halts=halts)
    said = f"{lost:.3g} of {incident.cost.ranks} ranks are lost" if lost is not None else "what is lost is not known"
    if weight != 1:
        said += f", times {weight:g}"
    if lost is not None and lost * weight < page_lost_ranks:
        return Severity(level="ticket", reason=f"{said}: less than {page_lost_ranks:g}", lost_ranks=lost)
    return Severity(level="halt" if halts else "page", reason=said, lost_ranks=lost)


def worse(one: Level, other: Level) -> Level:
    """The worse of two."""
    return one if RANK[one] >= RANK[other] else other


def _wakes(finding: Finding) -> bool:
    """A halt always does; slowness, and not being able to see, say of themselves whether they would."""
    return finding.kind not in _MEANT and (finding.pages or finding.kind not in _MAY_WAIT)


def _lost_ranks(waking: list[Finding], ranks: int, *, halts: bool) -> float | None:
    """A job that stands loses all its ranks; a slower iteration the share of it that was not there before."""
    if ranks <= 0:
        return None
    if halts:
        return float(ranks)
    magnitudes = [finding.magnitude for finding in waking if finding.magnitude is not None and finding.magnitude > 0]
    if not magnitudes:
        return None
    worst = max(magnitudes)
    return ranks * worst / (1 + worst)
