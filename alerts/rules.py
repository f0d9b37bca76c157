"""Which versions of an incident somebody is told of; pure, and every answer has a reason."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from pacehound.model.events import Finding, Incident

Reason = Literal["new state", "already sent", "only planned", "wakes nobody", "over before anybody was told"]

# Work that was meant: a checkpoint, an evaluation, another batch size.
_MEANT = {"planned", "change"}
_MAY_WAIT = {"slow", "intermittent", "blind"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether to tell, and why (not)."""

    tells: bool
    reason: Reason


def rule(incident: Incident, sent: Collection[tuple[str, str]], *, is_history: bool = False) -> Ruling:
    """Whether somebody is told of this version.

    Parameters
    ----------
    incident
        Any version.
    sent
        (incident, state) pairs that were delivered or are on their way.
    is_history
        The incident is read from the store at a start rather than heard of as it happens. What ended while
        nobody had been told is then left alone, or whoever configures a webhook would get the whole past.

    Examples
    --------
    >>> incident = Incident(id="i", version=3, job="j", attempt=0, time_ns=0, state="open", opened_ns=0)
    >>> rule(incident, sent=set())
    Ruling(tells=True, reason='new state')
    >>> rule(incident, sent={("i", "open")})
    Ruling(tells=False, reason='already sent')

    """
    if (incident.id, incident.state) in sent:
        return Ruling(tells=False, reason="already sent")
    if incident.findings and all(finding.kind in _MEANT for finding in incident.findings):
        return Ruling(tells=False, reason="only planned")
    if incident.findings and not any(_wakes(finding) for finding in incident.findings):
        return Ruling(tells=False, reason="wakes nobody")
    if is_history and incident.state != "open" and not any(told == incident.id for told, _ in sent):
        return Ruling(tells=False, reason="over before anybody was told")
    return Ruling(tells=True, reason="new state")


def untold(incidents: Iterable[Incident], sent: Collection[tuple[str, str]]) -> list[Incident]:
    """Of the latest versions from before these alerts began, those that somebody is still to be told of, oldest first.

    Somebody who sets up alerts on a pipeline that has been running must not get the pages of the last month: what is
    over is not told.
    """
    known = sorted(incidents, key=lambda incident: (incident.time_ns, incident.id))
    return [incident for incident in known if rule(incident, sent, is_history=True).tells]


def _wakes(finding: Finding) -> bool:
    """A halt always does; slowness, and not being able to see, say of themselves whether they would."""
    return finding.pages or finding.kind not in _MAY_WAIT
