"""Whether a sink is told of something now, later or never; pure, and every answer has its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from alerts.ledger import State
from alerts.orders import Orders
from alerts.severity import RANK, Level

Action = Literal["tell", "wait", "nothing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a sink is told of: an incident or an alert, as it stands now.

    Attributes
    ----------
    ended_ns
        When it was over, in the state `closed`.
    is_history
        It was over before this process began, and the sink had been told of nothing when it opened.

    """

    id: str
    level: Level
    state: State
    opened_ns: int
    jobs: frozenset[str]
    ended_ns: int = 0
    is_history: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What of the settings concerns one sink: from which level on it is told, and after how long."""

    lowest_level: Level = "ticket"
    tell_after_ns: int = 0
    escalate_after_ns: int | None = None
    """It is told of what nobody has acknowledged for so long; `None`: of everything at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done, and why; `due_ns` is when it is to be asked again."""

    action: Action
    reason: str
    due_ns: int | None = None


def decide(
    subject: Subject,
    told: Mapping[str, int],
    waits: Waits,
    orders: Orders,
    now_ns: int,
    *,
    first_told_ns: int | None = None,
    is_acknowledged: bool = False,
) -> Decision:
    """Whether one sink is told of a subject.

    Parameters
    ----------
    subject
        What it would be told of.
    told
        The states of it that the sink knows, and since when.
    waits
        When this sink is told.
    orders
        Silences.
    now_ns
        The time.
    first_told_ns
        When the first of the other sinks was told that it is open.
    is_acknowledged
        Somebody works on it.

    Examples
    --------
    >>> subject = Subject(id="i", level="page", state="open", opened_ns=0, jobs=frozenset({"j"}))
    >>> decide(subject, {}, Waits(), Orders(), now_ns=5)
    Decision(action='tell', reason='new state', due_ns=None)
    >>> decide(subject, {"open": 5}, Waits(), Orders(), now_ns=6).reason
    'already sent'

    """
    if subject.state in told:
        return Decision(action="nothing", reason="already sent")
    if "closed" in told:
        return Decision(action="nothing", reason="already told that it is over")
    if RANK[subject.level] < RANK[waits.lowest_level]:
        return Decision(action="nothing", reason=f"a {subject.level} is below {waits.lowest_level}")
    if told:
        return Decision(action="tell", reason="new state")
    if subject.is_history and subject.state != "open":
        return Decision(action="nothing", reason="over before anybody was told")
    # Of what is over it counts whether it would have been told while it went on, had everybody been there.
    asked_ns = min(now_ns, subject.ended_ns) if subject.state == "closed" else now_ns
    later = _later(subject, waits, orders, asked_ns, first_told_ns)
    if waits.escalate_after_ns is not None and is_acknowledged:
        return Decision(action="nothing", reason="acknowledged")
    if later is None:
        return Decision(action="tell", reason="new state")
    if subject.state == "closed":
        return Decision(action="nothing", reason=f"over before it was told: {later.reason}")
    return later


def _later(subject: Subject, waits: Waits, orders: Orders, now_ns: int, first_told_ns: int | None) -> Decision | None:
    silence = orders.silence(subject.jobs, now_ns)
    if silence is not None:
        return Decision(action="wait", reason=f"silenced: {silence.why}", due_ns=silence.until_ns)
    if now_ns < (due_ns := subject.opened_ns + waits.tell_after_ns):
        return Decision(action="wait", reason="it may pass by itself", due_ns=due_ns)
    if waits.escalate_after_ns is not None:
        if first_told_ns is None:
            return Decision(action="wait", reason="nobody else has been told yet", due_ns=None)
        if now_ns < (due_ns := first_told_ns + waits.escalate_after_ns):
            return Decision(action="wait", reason="it may be acknowledged yet", due_ns=due_ns)
    return None
