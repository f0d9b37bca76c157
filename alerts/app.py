"""Alerts: incidents in, notices out, on a thread of their own so that a receiver who is away holds up nobody."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from alerts.notice import Delivery, Notice, Sink
from alerts.rules import Ruling, rule
from alerts.sinks.webhook import Webhook
from pacehound.clock import Clock, SystemClock
from pacehound.errors import Unavailable
from pacehound.model.events import Incident
from pacehound.settings import AlertSettings

logger = logging.getLogger(__name__)

MAX_WAITING = 1000
"""Notices that wait while the receiver is away; beyond it the oldest is dropped and counted."""
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0
GIVE_UP_AFTER_S = 3600.0


class Ledger(Protocol):
    """What was delivered, across restarts (`storage.notifications.NotificationLog`)."""

    def sent(self) -> set[tuple[str, str]]:
        """(incident, state) pairs."""
        ...

    def record(self, incident: str, state: str, idempotency_key: str, sent_ns: int) -> None:
        """One delivery."""
        ...


@dataclass(slots=True)
class Counters:
    """What became of the notices since the start; nothing disappears uncounted."""

    delivered: int = 0
    retried: int = 0
    refused: int = 0
    given_up: int = 0
    dropped: int = 0
    unrecorded: int = 0


@dataclass(slots=True)
class _Waiting:
    notice: Notice
    since_s: float
    next_s: float
    attempts: int = 0


class Alerts:
    """Tells a sink of each state of each incident, at least once, and once as far as the ledger reaches.

    Parameters
    ----------
    sink
        Who is told.
    ledger
        What was delivered before; written after each delivery.
    clock
        Stamps deliveries and times the retries.

    Notes
    -----
    Notices go out in order. While the receiver is away the first one is tried again after 1, 2, 4 … 60 s and the
    others wait behind it; after an hour it is given up.

    """

    def __init__(self, sink: Sink, ledger: Ledger, clock: Clock | None = None) -> None:
        self._sink = sink
        self._ledger = ledger
        self._clock = clock or SystemClock()
        self._lock = threading.Condition()
        self._known = set(ledger.sent())
        self._waiting: deque[_Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._ends = False
        self.counters = Counters()

    def on_incident(self, incident: Incident) -> Ruling:
        """Take one version of an incident; returns at once."""
        return self._take(incident, is_history=False)

    def catch_up(self, incidents: Iterable[Incident]) -> None:
        """Take the latest versions that the store has, oldest first, before the first `on_incident` of a process."""
        for incident in sorted(incidents, key=lambda i: (i.time_ns, i.id)):
            self._take(incident, is_history=True)

    def _take(self, incident: Incident, *, is_history: bool) -> Ruling:
        with self._lock:
            ruling = rule(incident, self._known, is_history=is_history)
            if ruling.tells:
                if len(self._waiting) >= MAX_WAITING:
                    self._forget(self._waiting.popleft())
                    self.counters.dropped += 1
                now_s = self._clock.monotonic_s()
                self._known.add((incident.id, incident.state))
                self._waiting.append(_Waiting(Notice(incident=incident), since_s=now_s, next_s=now_s))
                self._lock.notify_all()
            return ruling

    def step(self) -> float | None:
        """Deliver what is due; returns the seconds until the next attempt, `None` when nothing waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                first = self._waiting[0]
                wait_s = first.next_s - self._clock.monotonic_s()
                if wait_s > 0:
                    return wait_s
            self._attempt(first)

    def _attempt(self, first: _Waiting) -> None:
        notice = first.notice
        try:
            delivery = self._sink.deliver(notice)
        except Exception:
            # A sink does not raise; if one does, the thread that tells people must not end of it.
            logger.exception("a sink failed")
            delivery = Delivery(outcome="unavailable", detail="the sink failed")
        if delivery.outcome == "delivered":
            self._record(notice)
        now_s = self._clock.monotonic_s()
        with self._lock:
            is_over = delivery.outcome != "unavailable"
            if delivery.outcome == "delivered":
                self.counters.delivered += 1
                self._known.add((notice.incident.id, notice.incident.state))  # also if it was dropped meanwhile
            elif delivery.outcome == "refused":
                self.counters.refused += 1
                logger.warning("a notice was refused: %s", delivery.detail)
            elif now_s - first.since_s >= GIVE_UP_AFTER_S:
                is_over = True
                self.counters.given_up += 1
                self._forget(first)
                logger.warning("a notice was given up: %s", delivery.detail)
            else:
                self.counters.retried += 1
                first.next_s = now_s + min(FIRST_RETRY_S * 2**first.attempts, LONGEST_RETRY_S)
                first.attempts += 1
            # It may have been dropped to make room while the receiver was being asked.
            if is_over and self._waiting and self._waiting[0] is first:
                self._waiting.popleft()

    def _record(self, notice: Notice) -> None:
        incident = notice.incident
        try:
            self._ledger.record(incident.id, incident.state, notice.idempotency_key, self._clock.now_ns())
        except Unavailable as error:
            # Told and not noted: after a restart it is told again, with the same key.
            self.counters.unrecorded += 1
            logger.warning("a delivery was not recorded: %s", error)

    def _forget(self, waiting: _Waiting) -> None:
        """Undelivered: a later version in the same state may try again."""
        self._known.discard((waiting.notice.incident.id, waiting.notice.incident.state))

    def start(self) -> None:
        """Deliver on a thread from now on."""
        self._thread = threading.Thread(target=self._run, name="pacehound-alerts", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> int:
        """Deliver what waits, for at most `timeout_s`, then stop; returns how many notices were left."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        with self._lock:
            while self._thread and self._waiting and (left_s := deadline_s - self._clock.monotonic_s()) > 0:
                self._lock.wait(left_s)
            self._ends = True
            self._lock.notify_all()
        if self._thread:
            self._thread.join(max(0.0, deadline_s - self._clock.monotonic_s()) + 0.1)
        return len(self._waiting)

    def _run(self) -> None:
        while not self._ends:
            wait_s = self.step()
            with self._lock:
                self._lock.notify_all()  # `close` may be waiting for the last one
                if not self._ends and (wait_s is not None or not self._waiting):
                    self._lock.wait(wait_s)


def make_alerts(settings: AlertSettings, ledger: Ledger, clock: Clock | None = None) -> Alerts | None:
    """Alerts as the settings say; `None` where nobody is to be told.

    Raises
    ------
    InvalidSetting
        `alerts.webhook_url` cannot be posted to.

    """
    return Alerts(Webhook(settings.webhook_url), ledger, clock) if settings.webhook_url else None
