"""A notice, and what a sink says of its delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pacehound.model.events import Finding, Incident
from pacehound.model.identity import event_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One state of one incident that somebody is to be told of."""

    incident: Incident

    @property
    def idempotency_key(self) -> str:
        """Names (incident, state): a receiver that has seen it may drop the repeat."""
        return event_id("notice", self.incident.id, self.incident.state)

    @property
    def text(self) -> str:
        """The incident in one line."""
        return summary(self.incident)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What became of one attempt.

    Attributes
    ----------
    outcome
        `unavailable`: the same notice may be taken later. `refused`: it never will.
    detail
        What the receiver said; no part of its address that could be a secret.

    """

    outcome: Literal["delivered", "unavailable", "refused"]
    detail: str = ""


class Sink(Protocol):
    """One way of telling somebody."""

    def deliver(self, notice: Notice) -> Delivery:
        """Try once, within a bounded time; never raises."""
        ...

    def close(self) -> None:
        """Give up connections."""
        ...


def summary(incident: Incident) -> str:
    """One line for a person.

    >>> from pacehound.model.events import Instant
    >>> slow = Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,),
    ...                onset=Instant(step=200, time_ns=0), magnitude=0.4)
    >>> summary(Incident(id="i", version=0, job="j", attempt=0, time_ns=0, state="open", opened_ns=0, findings=(slow,)))
    'job j: slow, rank 2 (culprit, S1), +40 % since step 200; open'
    """
    said = [_sentence(finding) for finding in incident.findings] or ["no finding"]
    state = incident.state + (f" ({incident.closed_why})" if incident.closed_why else "")
    # While it is open the cost is out of date as soon as it is said.
    lost = f", {incident.cost.excess_s:.1f} s lost in all" if incident.state == "closed" else ""
    return f"job {incident.job}: {'; '.join(said)}; {state}{lost}"


def _sentence(finding: Finding) -> str:
    whom = [f"rank {rank}" for rank in finding.culprits] + [f"link {a}->{b}" for a, b in finding.links]
    certainty = ", ".join(filter(None, (finding.verdict, finding.cause)))
    parts = [finding.kind, f"{', '.join(whom) or 'nobody named'} ({certainty})"]
    change = f"{finding.magnitude:+.0%}".replace("%", " %") if finding.magnitude is not None else ""
    since = f"since step {finding.onset.step}" if finding.onset and finding.onset.step is not None else ""
    if change or since:
        parts.append(f"{change} {since}".strip())
    return ", ".join(parts)
