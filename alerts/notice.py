"""A notice, and what a sink says of its delivery."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Literal, Protocol

from alerts.advice import advice
from alerts.ledger import State
from alerts.severity import Level
from alerts.thresholds import SHOWN_CULPRITS, SHOWN_JOBS
from pacehound.model.events import HALTS, Decision, Finding, Incident, foremost
from pacehound.model.identity import event_id
from pacehound.model.plain import plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One state of an incident, or of an alert of several, that somebody is to be told of.

    Attributes
    ----------
    incident
        The incident, or the one that opened the alert.
    level, state
        How bad it is, and what is new.
    page_url
        Where the built-in page is; empty: there is no link.
    group
        Names the alert that the incident belongs to.
    jobs, n_incidents
        Of the whole alert, where all of it is told of at once.
    acknowledged_by
        Who, in the state `acknowledged`.
    ask, ask_link
        A decision about the incident that waits for a yes, of which is told instead, and where that can be said.

    """

    incident: Incident
    level: Level = "page"
    state: State = "open"
    page_url: str = ""
    group: str = ""
    jobs: tuple[str, ...] = ()
    n_incidents: int = 1
    acknowledged_by: str = ""
    ask: Decision | None = None
    ask_link: str = ""

    @property
    def dedup_key(self) -> str:
        """Names what it is about: the same from its opening to its end."""
        if self.ask is not None:
            return event_id("ask", self.ask.identity())
        return event_id("alert", self.incident.id, self.level)

    @property
    def idempotency_key(self) -> str:
        """Names (incident, level, state): a receiver that has seen it may drop the repeat."""
        if self.ask is not None:
            return self.dedup_key
        return event_id("notice", self.incident.id, self.level, self.state)

    @property
    def text(self) -> str:
        """What has happened, in one line."""
        if self.ask is not None:
            waits = f"job {self.ask.job}: {self.ask.action} waits for a yes: {self.ask.reason}"
            return plain(waits).replace("\n", " ")
        return plain(summary(self.incident, self.state)).replace("\n", " ") + self._others()

    @property
    def lines(self) -> tuple[str, str, str]:
        """What, who and since when; what it costs; what to do: the three lines that matter at night."""
        if self.ask is not None:
            return self._asks(self.ask)
        incident = self.incident
        since = _time(incident.opened_ns)
        if self.state == "closed":
            do = f"nothing: it is over ({incident.closed_why or 'closed'})"
        elif self.state == "acknowledged":
            do = f"{self.acknowledged_by or 'somebody'} works on it"
        else:
            do = advice(foremost(incident.findings))
        said = (f"{self.text}; since {since}", _cost(incident), do)
        what, cost, last = (plain(line).replace("\n", " ").replace("\t", " ") for line in said)
        return what, cost, last

    @property
    def link(self) -> str:
        """Its page; empty where none is known."""
        if self.ask_link:
            return self.ask_link
        return f"{self.page_url.rstrip('/')}/#/incident/{self.incident.id}" if self.page_url else ""

    def _asks(self, ask: Decision) -> tuple[str, str, str]:
        gain = "" if ask.promised_gain is None else f", and promises {ask.promised_gain:.0%} shorter iterations"
        cost = f"{ask.price_s:.3g} s for it{gain.replace('%', ' %')}; {ask.loss_s:.1f} s of the job's time lost so far"
        where = "by this link, or by " if self.ask_link else "by "
        do = f"say yes or no until {_time(ask.until_ns)}, {where}pacehound approve {ask.identity()[:12]}"
        return self.text, cost, do

    def _others(self) -> str:
        if self.n_incidents <= 1:
            return ""
        others = [job for job in self.jobs if job != self.incident.job]
        more = f"; with it {self.n_incidents - 1} more incidents"
        if not others:
            return f"{more} of the same job"
        named = ", ".join(others[:SHOWN_JOBS])
        rest = f" and {len(others) - SHOWN_JOBS} more" if len(others) > SHOWN_JOBS else ""
        return plain(f"{more}, in {len(others)} other jobs: {named}{rest}").replace("\n", " ")


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

    @property
    def name(self) -> str:
        """As in `pacehound alerts test NAME`, and in the notifications."""
        ...

    @property
    def lowest_level(self) -> Level:
        """It is told of nothing below it."""
        ...

    @property
    def groups(self) -> bool:
        """Whether it is told of alerts (once for all their incidents) rather than of each incident."""
        ...

    @property
    def acknowledges(self) -> bool:
        """Whether it is told that somebody works on an alert."""
        ...

    def deliver(self, notice: Notice) -> Delivery:
        """Try once, within a bounded time; never raises."""
        ...

    def reach(self) -> Delivery:
        """Whether the receiver is there, without telling anybody anything; never raises."""
        ...

    def close(self) -> None:
        """Give up connections."""
        ...


def summary(incident: Incident, state: str = "") -> str:
    """One line for a person.

    >>> from pacehound.model.events import Instant
    >>> slow = Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S1", culprits=(2,),
    ...                onset=Instant(step=200, time_ns=0), magnitude=0.4)
    >>> summary(Incident(id="i", version=0, job="j", attempt=0, time_ns=0, state="open", opened_ns=0, findings=(slow,)))
    'job j: slow, rank 2 (culprit, S1), +40 % since step 200; open'
    """
    said = [_sentence(finding) for finding in incident.findings] or ["no finding"]
    state = state or incident.state
    why = f" ({incident.closed_why})" if incident.closed_why and state == "closed" else ""
    # While it is open the cost is out of date as soon as it is said.
    lost = f", {incident.cost.excess_s:.1f} s lost in all" if incident.state == "closed" else ""
    return f"job {incident.job}: {'; '.join(said)}; {state}{why}{lost}"


def _cost(incident: Incident) -> str:
    cost = incident.cost
    halted = any(finding.kind in HALTS for finding in incident.findings)
    rate = f"all {cost.ranks} ranks stand still" if halted and cost.ranks else ""
    worst = max((f.magnitude for f in incident.findings if f.magnitude is not None), default=0.0)
    if not rate and worst > 0 and cost.ranks:
        rate = f"{worst / (1 + worst):.0%} of the work of {cost.ranks} ranks is lost".replace("%", " %")
    so_far = f"{cost.excess_s:.1f} s of the job's time so far"
    if cost.gpu_hours:
        so_far += f", {cost.gpu_hours:.3g} rank-hours"
    return "; ".join(filter(None, (rate, so_far)))


def _time(time_ns: int) -> str:
    at = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_ns // 1000)
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _sentence(finding: Finding) -> str:
    whom = [f"rank {rank}" for rank in finding.culprits] + [f"link {a}->{b}" for a, b in finding.links]
    if len(whom) > SHOWN_CULPRITS:
        whom = [*whom[:SHOWN_CULPRITS], f"{len(whom) - SHOWN_CULPRITS} more"]
    certainty = ", ".join(filter(None, (finding.verdict, finding.cause)))
    parts = [finding.kind, f"{', '.join(whom) or 'nobody named'} ({certainty})"]
    change = f"{finding.magnitude:+.0%}".replace("%", " %") if finding.magnitude is not None else ""
    since = f"since step {finding.onset.step}" if finding.onset and finding.onset.step is not None else ""
    if change or since:
        parts.append(f"{change} {since}".strip())
    return ", ".join(parts)
