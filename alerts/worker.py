"""Tells each receiver what it is to be told of, and remembers it in the log; the same on Kafka and in a head.

The log is the queue. Who was told of what is the topic `notifications`, with the partitions and the key of `incidents`:
whoever is given a partition of the one reads the same partition of both first, and so knows what there is and who has
been told of it; a head asks its store. What is in the one and not in the other is told. A notice is sent, then noted,
then the offset is committed. A process that dies between the first two tells again when it comes back, with the same
keys; nothing else is told twice, and nothing is left out.

Of one subject a receiver is told the next state when the last one is noted for good: else a process that dies after the
resolving of a page could open it again. And of an alert people are told that it is open when it is noted which incident
has opened it, and that it is over when it is noted that nothing joins it any more: else the next process, which may
hear of incidents in another order, could leave a page open for ever, or take what comes for part of a page that is
closed, so that nobody wakes.

A receiver that is away is tried again with growing pauses, and holds up no other one: each has a queue of its own,
which holds what there is to be told of and not each state of it. Who comes back after an hour is told once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from alerts.asking import Asking
from alerts.grouping import Alert, Book
from alerts.heartbeat import Heartbeat
from alerts.importance import Importance
from alerts.ledger import Ledger, State
from alerts.notice import Delivery, Notice, Sink
from alerts.orders import Acknowledgement, OrdersFile
from alerts.policy import Subject, Waits, decide
from alerts.severity import RANK, Level, severity, worse
from alerts.thresholds import DELIVERIES_PER_TURN, OLD_NEWS_NS, ORDERS_LOOKED_AT_S, TRIED_AGAIN_S
from pacehound.bus import Message, Place
from pacehound.clock import Clock
from pacehound.errors import RejectedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.events import Decision, Incident, Notification
from pacehound.model.identity import event_id
from pacehound.model.routing import Event
from pacehound.model.topics import INCIDENTS
from pacehound.runtime.backoff import Backoff
from pacehound.runtime.dead_letter import dead_letter_of
from pacehound.runtime.event_loop import FIRST_RETRY_S, LONGEST_RETRY_S, EventWorker
from pacehound.runtime.metric_names import AWAY, NOTICES
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)


class NoticeRefused(RejectedMessage):
    """The receiver will never take this notice; it can be replayed once the receiver has been put right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is in the log of some partitions.

    Attributes
    ----------
    incidents
        The latest version of each, as far as they were dealt with, and its partition.
    notifications
        Who was told.

    """

    incidents: Sequence[tuple[Incident, int]] = ()
    notifications: Sequence[Notification] = ()


ReadPast = Callable[[frozenset[int]], Past]
"""The past of some partitions; it may tell of others, too. Raises `Unavailable` where it cannot be read now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What of the settings concerns all sinks, and when each of them is told."""

    importance: Importance = field(default_factory=Importance)
    page_lost_ranks: float = 1.0
    page_url: str = ""
    waits: Mapping[str, Waits] = field(default_factory=dict)


Key = tuple[str, Level]
"""An incident's id, or that of the incident which opened an alert, and the level at which it is told."""


@dataclass(slots=True, eq=False)
class _Receiver:
    """A sink, what it is still to be told of, and when it is tried again."""

    sink: Sink
    waits: Waits
    due: dict[Key, None] = field(default_factory=dict)
    unsettled: set[Key] = field(default_factory=set)
    """What it was told of and the log may not have yet."""
    later: dict[Key, int] = field(default_factory=dict)
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_RETRY_S, LONGEST_RETRY_S))
    not_before_s: float = 0.0


class AlertWorker(EventWorker):
    """Incidents in, notices out.

    Parameters
    ----------
    sinks
        Who is told.
    past
        Reads what was told before, when a partition is met for the first time.
    clock, telemetry
        The time, and what is counted.
    policy
        Who is told of what, and when.
    orders
        What people have said.
    heartbeat
        Who is told that all is well.
    asking
        Who tells of decisions that wait for a yes.

    """

    kinds: tuple[type, ...] = (Incident, Decision)

    def __init__(
        self,
        sinks: Sequence[Sink],
        past: ReadPast,
        clock: Clock,
        telemetry: Telemetry,
        *,
        policy: Policy | None = None,
        orders: OrdersFile | None = None,
        heartbeat: Heartbeat | None = None,
        asking: Asking | None = None,
    ) -> None:
        self._asking = asking or Asking((), clock)
        self._policy = policy or Policy()
        self._receivers = [
            _Receiver(sink, self._policy.waits.get(sink.name, Waits(lowest_level=sink.lowest_level))) for sink in sinks
        ]
        self._groups = [one.sink.name for one in self._receivers if one.sink.groups]
        self._past = past
        self._clock = clock
        self._telemetry = telemetry
        self._orders = orders or OrdersFile(None)
        self._heartbeat = heartbeat
        self._book = Book()
        self._ledger = Ledger()
        self._partitions: set[int] = set()
        self._to_read: set[int] = set()
        self._incidents: dict[Key, tuple[Incident, Message]] = {}
        self._ended_before: set[str] = set()
        self._to_note: list[Notification] = []
        self._unnoted: set[Key] = set()
        self._refused: dict[tuple[str, Key, State], int] = {}

    def on_assigned(self, places: Iterable[Place]) -> None:
        """These partitions are ours from now on; their past is read at the next turn."""
        ours = {partition for topic, partition in places if topic == INCIDENTS.name}
        self._to_read |= ours - self._partitions

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """Tell of a version of an incident those who are to be told of it now.

        Raises
        ------
        Unavailable
            What was told before cannot be read: the same version comes again.

        """
        if isinstance(event, Decision):
            self._asking.on_decision(event)
            return []
        assert isinstance(event, Incident)
        self.on_assigned([(message.topic, message.partition)])
        self._read_past()
        if event.version < self._book.version(event.id):
            return []  # it has been read as the past of its partition, or comes again
        for refused in [key for key, version in self._refused.items() if key[1][0] == event.id]:
            if self._refused[refused] == event.version:  # somebody replays what was refused
                del self._refused[refused]
        self._take(event, message, is_history=False)
        return self._tell()

    def on_turn(self) -> list[Event]:
        """Tell of what has become due, and those who have come back."""
        asked: list[Event] = list(self._asking.turn())
        try:
            self._read_past()
        except Unavailable as error:
            logger.warning("what was told before cannot be read yet: %s", error)
            return asked
        if self._orders.look():
            self._ask_all_again()
        if self._heartbeat is not None:
            self._heartbeat.turn(self._clock.monotonic_s())
        self._ask_later(self._clock.now_ns())
        told = self._tell()
        self._forget_told(self._clock.now_ns())
        return [*asked, *told]

    def may_wait_s(self) -> float:
        """Until somebody is to be told of something, a heartbeat is due, or the orders of people are looked at."""
        is_busy = bool(self._to_read or self._to_note) or self._asking.is_waiting
        if is_busy or any(one.due or one.unsettled for one in self._receivers):
            return TRIED_AGAIN_S
        waits_s = [math.inf]
        if later_ns := [due_ns for one in self._receivers for due_ns in one.later.values()]:
            waits_s.append((min(later_ns) - self._clock.now_ns()) / 1e9)
        if self._heartbeat is not None:
            waits_s.append(self._heartbeat.may_wait_s(self._clock.monotonic_s()))
        if self._orders.is_watched:
            waits_s.append(ORDERS_LOOKED_AT_S)
        return max(min(waits_s), TRIED_AGAIN_S)

    def on_settled(self) -> None:
        """All that was told is noted."""
        self._unnoted.clear()
        for receiver in self._receivers:
            receiver.unsettled.clear()

    def on_revoked(self, places: list[Place]) -> None:
        """Somebody else goes on there, and knows better from then on."""
        gone = {partition for topic, partition in places if topic == INCIDENTS.name}
        self._partitions -= gone
        self._to_read -= gone
        self._book.forget_partitions(gone)
        for key in [key for key, (_, message) in self._incidents.items() if message.partition in gone]:
            del self._incidents[key]

    def close(self) -> None:
        """Give up all connections."""
        for receiver in self._receivers:
            receiver.sink.close()
        if self._heartbeat is not None:
            self._heartbeat.close()

    def _read_past(self) -> None:
        if not self._to_read:
            return
        past = self._past(frozenset(self._to_read))
        self._partitions |= self._to_read
        self._to_read.clear()
        self._ledger.note(past.notifications)
        now_ns = self._clock.now_ns()
        news = [one for one in past.incidents if not self._is_old_news(one[0], now_ns)]
        for incident, partition in sorted(news, key=lambda one: self._order(one[0])):
            if incident.version > self._book.version(incident.id):
                message = Message(topic=INCIDENTS.name, key=incident.job, partition=partition, offset=0, value=b"")
                self._take(incident, message, is_history=True)

    def _is_old_news(self, incident: Incident, now_ns: int) -> bool:
        if incident.state != "closed" or self._ledger.is_open(incident.id):
            return False
        if self._ledger.is_under_way(incident.id, self._groups):
            return False  # what belongs to its alert may go on
        return (incident.closed_ns or incident.time_ns) < now_ns - OLD_NEWS_NS

    def _order(self, incident: Incident) -> tuple[bool, int, str]:
        """What opened an alert comes before what joined it."""
        is_lead = self._ledger.lead(incident.id, self._ledger.level(incident.id)) == incident.id
        return not is_lead, incident.opened_ns, incident.id

    def _take(self, incident: Incident, message: Message, *, is_history: bool) -> None:
        found = severity(incident, self._policy.importance, self._policy.page_lost_ranks)
        level = worse(found.level, self._ledger.level(incident.id))
        if is_history and incident.state != "open":
            self._ended_before.add(incident.id)
        else:
            self._ended_before.discard(incident.id)
        changed = self._book.note(incident, level, message.partition, self._ledger.lead(incident.id, level))
        for alert in changed:
            key = (alert.lead_id, alert.level)
            alert.has_ended |= self._ledger.is_ended(*key)
            if not self._ledger.is_begun(*key) and self._pages(alert.level):
                self._note_ahead(alert, "grouped")
            if alert.lead_id == incident.id or key not in self._incidents:
                self._incidents[key] = (alert.lead, message)
            self._ask(key, groups=True)
            key = (incident.id, alert.level)
            self._incidents[key] = (incident, message)
            self._ask(key, groups=False)

    def _pages(self, level: Level) -> bool:
        """Whether somebody is told of alerts of this level."""
        return any(one.sink.groups and RANK[level] >= RANK[one.waits.lowest_level] for one in self._receivers)

    def _note_ahead(self, alert: Alert, state: Literal["grouped", "ended"]) -> None:
        """What people are told only when this is noted for good."""
        lead = alert.lead
        note = Notification(
            job=lead.job,
            attempt=lead.attempt,
            time_ns=self._clock.now_ns(),
            incident=alert.lead_id,
            state=state,
            idempotency_key=event_id(alert.key, state),
            level=alert.level,
            alert=alert.lead_id,
        )
        self._ledger.note([note])
        self._to_note.append(note)
        self._unnoted.add((alert.lead_id, alert.level))

    def _ask(self, key: Key, *, groups: bool) -> None:
        for receiver in self._receivers:
            if receiver.sink.groups == groups:
                receiver.later.pop(key, None)
                receiver.due[key] = None

    def _ask_all_again(self) -> None:
        for receiver in self._receivers:
            receiver.due |= dict.fromkeys(receiver.later)
            receiver.later.clear()
            if receiver.sink.groups:
                receiver.due |= {(alert.lead_id, alert.level): None for alert in self._book.alerts()}

    def _tell(self) -> list[Event]:
        """Whatever is due now, to whoever is there."""
        events: list[Event] = []
        now_ns = self._clock.now_ns()
        for receiver in self._receivers:
            if receiver.due and self._clock.monotonic_s() >= receiver.not_before_s:
                events += self._tell_one(receiver, now_ns)
        events += self._to_note
        self._to_note.clear()
        return events

    def _ask_later(self, now_ns: int) -> None:
        for receiver in self._receivers:
            for key in [key for key, due_ns in receiver.later.items() if due_ns <= now_ns]:
                del receiver.later[key]
                receiver.due[key] = None

    def _tell_one(self, receiver: _Receiver, now_ns: int) -> list[Event]:
        events: list[Event] = []
        held = receiver.unsettled | self._unnoted if receiver.sink.groups else receiver.unsettled
        for key in [key for key in receiver.due if key not in held]:
            if len(events) >= DELIVERIES_PER_TURN:
                break
            notice = self._due(receiver, key, now_ns)
            if notice is None:
                receiver.due.pop(key, None)
                continue
            alert = self._book.alert_of(*key)
            if receiver.sink.groups and notice.state == "closed" and alert is not None and not alert.has_ended:
                alert.has_ended = True
                self._note_ahead(alert, "ended")
                continue
            delivery = receiver.sink.deliver(notice)
            if delivery.outcome == "unavailable":
                self._away(receiver, delivery)
                break
            receiver.backoff.reset()
            receiver.not_before_s = 0.0
            self._telemetry.set(AWAY, 0.0, worker=f"alerts to {receiver.sink.name}")
            events.append(self._noted(receiver, key, notice, delivery))
            receiver.unsettled.add(key)
            if notice.state != "open" or not receiver.sink.acknowledges:
                receiver.due.pop(key, None)  # else it is asked once more whether somebody works on it already
            self._ask_escalations(key)
        return events

    def _due(self, receiver: _Receiver, key: Key, now_ns: int) -> Notice | None:
        """What the sink is to be told of this subject now; what is to come later is put aside for then."""
        held = self._incidents.get(key)
        if held is None:
            return None
        incident = held[0]
        name, level = key
        sink = receiver.sink
        told = self._ledger.told(sink.name, name, level)
        alert = self._book.alert_of(name, level)
        if alert is None:
            return None
        state: State = incident.state
        if sink.groups:
            state = "closed" if alert.has_ended or alert.is_over(now_ns) else "open"
        has_left = not alert.ids if sink.groups else incident.id not in alert.ids
        if has_left:  # for a worse level, at which it is told
            if not told:
                return None
            state = "closed"
        if (sink.name, key, state) in self._refused:
            return None
        acknowledged = self._acknowledged(alert)
        if acknowledged and sink.groups and sink.acknowledges and state == "open" and "open" in told:
            state = "acknowledged"
        since_ns = self._ledger.since_ns(sink.name)
        is_new = since_ns is None or incident.opened_ns < since_ns
        if sink.groups and self._ledger.is_under_way(alert.lead_id, self._groups):
            is_new = False  # the process before may have told of it
        subject = Subject(
            id=name,
            level=level,
            state=state,
            opened_ns=incident.opened_ns,
            jobs=frozenset(alert.jobs if sink.groups else (incident.job,)),
            ended_ns=alert.last_change_ns if sink.groups else incident.closed_ns or incident.time_ns,
            is_history=is_new and incident.id in self._ended_before,
        )
        others = [one.sink.name for one in self._receivers if one is not receiver]
        decision = decide(
            subject,
            told,
            receiver.waits,
            self._orders.orders,
            now_ns,
            first_told_ns=self._ledger.first_told_ns(name, level, others),
            is_acknowledged=acknowledged is not None,
        )
        if sink.groups and state != "closed" and (ends_ns := alert.ends_ns) is not None:
            receiver.later[key] = ends_ns
        if decision.action == "wait" and decision.due_ns is not None:
            receiver.later[key] = min(decision.due_ns, receiver.later.get(key, decision.due_ns))
        if decision.action != "tell":
            return None
        return Notice(
            incident=incident,
            level=level,
            state=state,
            page_url=self._policy.page_url,
            group=alert.key,
            jobs=tuple(alert.jobs) if sink.groups else (incident.job,),
            n_incidents=alert.n_incidents if sink.groups else 1,
            acknowledged_by=acknowledged.by if acknowledged is not None else "",
        )

    def _acknowledged(self, alert: Alert) -> Acknowledgement | None:
        names = [one.sink.name for one in self._receivers]
        first_ns = self._ledger.first_told_ns(alert.lead_id, alert.level, names)
        return None if first_ns is None else self._orders.orders.acknowledgement(alert.ids, first_ns)

    def _ask_escalations(self, key: Key) -> None:
        """Who is told after others have been is asked about now that they have."""
        for receiver in self._receivers:
            if receiver.waits.escalate_after_ns is not None and key not in receiver.later:
                receiver.due[key] = None

    def _away(self, receiver: _Receiver, delivery: Delivery) -> None:
        pause_s = receiver.backoff.next_s()
        receiver.not_before_s = self._clock.monotonic_s() + pause_s
        self._telemetry.add(NOTICES, outcome="retried")
        self._telemetry.set(AWAY, 1.0, worker=f"alerts to {receiver.sink.name}")
        logger.warning(
            "%s is away; %d notices wait, tried again in %g s: %s",
            receiver.sink.name,
            len(receiver.due),
            pause_s,
            delivery.detail,
        )

    def _noted(self, receiver: _Receiver, key: Key, notice: Notice, delivery: Delivery) -> Event:
        incident, message = self._incidents[key]
        name = receiver.sink.name
        if delivery.outcome == "refused":
            self._refused[name, key, notice.state] = incident.version
            self._telemetry.add(NOTICES, outcome="refused")
            error = NoticeRefused(f"the notice of incident {incident.id} ({notice.state}) to {name}: {delivery.detail}")
            logger.warning("%s", error)
            value = message.value or codec.encode(incident)
            return dead_letter_of(replace(message, value=value), error, self._clock.now_ns())
        self._telemetry.add(NOTICES, outcome="delivered")
        alert = self._book.alert_of(*key)
        notification = Notification(
            job=incident.job,
            attempt=incident.attempt,
            time_ns=self._clock.now_ns(),
            incident=key[0],
            state=notice.state,
            idempotency_key=notice.idempotency_key,
            sink=name,
            level=notice.level,
            alert=alert.lead_id if alert is not None else "",
        )
        self._ledger.note([notification])
        return notification

    def _forget_told(self, now_ns: int) -> None:
        """What is over, and nobody is still to be told of."""
        wanted = {key for receiver in self._receivers for key in (*receiver.due, *receiver.later)}
        self._book.forget_over(now_ns, wanted)
        for key in [key for key in self._incidents if key not in wanted]:
            alert = self._book.alert_of(*key)
            if alert is None or alert.is_over(now_ns):
                del self._incidents[key]
        self._ended_before &= {incident for incident, _ in self._incidents}
        self._refused = {place: version for place, version in self._refused.items() if place[1] in self._incidents}
