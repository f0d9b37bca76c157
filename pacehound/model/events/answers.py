"""What those who read incidents did about them: notifications and questions of alerts, decisions of actuators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pacehound.model.events.stage_two import IncidentState
from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """Somebody has been told of a state of an incident: whoever tells the next time knows it from here.

    Or, of no sink, what people are told next: `grouped`, that an incident has opened an alert; `ended`, that this alert
    is over and nothing belongs to it any more.

    Attributes
    ----------
    incident
        The incident, or the one that opened the alert that several belong to.
    idempotency_key
        The one that the receiver was shown.
    sink
        Who was told; empty in those of versions that told all at once.
    level
        How bad it was said to be: `ticket`, `page` or `halt`; empty in those of the same versions.
    alert
        The incident that opened the alert which this one belonged to.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    incident: str
    state: IncidentState | Literal["acknowledged", "grouped", "ended"]
    idempotency_key: str
    sink: str = ""
    level: str = ""
    alert: str = ""

    def identity(self) -> str:
        """Names (incident, state), and which sink was told at which level."""
        whom = (self.sink, self.level) if self.level else ()
        return event_id("notification", self.incident, self.state, *whom)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Somebody was told of a decision that waits for a yes; or, of no sink, what came of the question.

    Attributes
    ----------
    decision
        The one that waits.
    sink
        Who was told; empty where it is over.
    outcome
        `told`, or `refused` by the sink; `answered` by somebody, or `over` without an answer.
    by
        Who has answered.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    incident: str
    decision: str
    outcome: Literal["told", "refused", "answered", "over"]
    sink: str = ""
    by: str = ""

    def identity(self) -> str:
        """Names (decision, sink, outcome)."""
        return event_id("asked", self.decision, self.sink, self.outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStep:
    """How far a restart has come, written down before and after each of the site's commands.

    Whoever goes on with it knows from here what was decided, what was begun, and what has ended.

    Attributes
    ----------
    step
        What it is about: the decision itself, one of the site's commands, or the end of all of it.
    restart
        The decision that it belongs to; empty in that one.
    state
        The command is about to be begun, or has ended.
    number
        Which try.
    status
        Its exit status; `None` where it has none, or nobody knows.
    by
        Who is about to begin it: whose record comes first does.
    where, host
        The folder in which it is seen how it goes, and that folder's host.
    without, n_ranks
        The hosts that are left out, and how many ranks the job has.
    before_s
        What an iteration took.
    stopped_ns
        When the job was to be stopped, as Unix time; 0: not yet.
    saved
        What is known of the checkpoint that was asked for.

    """

    step: Literal["decided", "drain", "stop", "start", "over"]
    restart: str = ""
    state: Literal["begins", "ended"] = "begins"
    number: Int64 = 0
    status: Int64 | None = None
    by: str = ""
    where: str = ""
    host: str = ""
    without: tuple[str, ...] = ()
    n_ranks: Int64 = 0
    before_s: float | None = None
    stopped_ns: Int64 = 0
    saved: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the actuators would do, or did, about an incident; recorded whether taken or not.

    Attributes
    ----------
    action
        `ignore`, `adjust_microbatches`, `adjust_topology`, `checkpoint_restart`, or `resume_rank` ….
    price_s
        What the action would cost the job, in seconds.
    loss_s
        What the incident had cost by then, in seconds.
    aimed_at
        The ranks that were named by then, and the ends of the links; whoever is named later is decided about anew.
    taken
        False in observe mode, always.
    is_last
        The incident is over: what waiting has cost in all, and what had been due by then.
    number
        Counts what was done about the incident by one who acts by himself; 0: it is not counted.
    alternatives
        What else there would have been, with its price.
    limit
        What stopped it; empty where nothing did.
    promised_gain, seen_gain
        The shares by which iterations should have become shorter, and have; `None` where that is not known.
    until_ns
        It waits for somebody's yes, until then (Unix time); 0: it does not wait.
    asked
        The decision that waited, of what was done or not done after it was asked.
    by
        Who has said yes or no to that.
    site
        Of a restart: how far it has come.
    joined
        Hosts that would take part besides, or again.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    incident: str
    incident_version: Int64
    mode: Literal["observe", "approve", "auto"]
    action: str
    reason: str
    price_s: float
    loss_s: float
    aimed_at: tuple[Int64, ...] = ()
    taken: bool = False
    is_last: bool = False
    number: Int64 = 0
    alternatives: tuple[str, ...] = ()
    limit: str = ""
    promised_gain: float | None = None
    seen_gain: float | None = None
    until_ns: Int64 = 0
    asked: str = ""
    by: str = ""
    site: SiteStep | None = None
    joined: tuple[str, ...] = ()

    def identity(self) -> str:
        """Names (incident, action, whom it is aimed at, who would join), of what is only recorded.

        What was done may be done again about the same incident, so its version counts too; and of a last one it says
        which end of the incident it is of. What is written down of a restart has its step's name: whoever goes on with
        it says the same.
        """
        if self.site is not None and self.site.restart:
            who = (self.site.by,) if self.site.state == "begins" else ()
            step = (self.site.step, self.site.number, self.site.state, *who)
            return event_id("decision", self.site.restart, *step)
        which = "last" if self.is_last else "taken" if self.taken else ""
        version = (which, self.incident_version) if which else ()
        if self.number:
            version = (*version, self.number, self.time_ns)
        joined = ("joined", *self.joined) if self.joined else ()
        return event_id("decision", self.incident, self.action, *self.aimed_at, *joined, *version)
