"""An alert that is none, to see whether a sink takes it: opened, and closed at once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from alerts.ledger import State
from alerts.notice import Delivery, Notice, Sink
from pacehound.clock import Clock, SystemClock
from pacehound.model.events import Incident

JOB = "pacehound-test"


def trial(sink: Sink, clock: Clock | None = None) -> Iterator[tuple[State, Delivery]]:
    """What became of each state; the end is sent even where the opening was not taken."""
    now_ns = (clock or SystemClock()).now_ns()
    incident = Incident(
        id=f"test-{uuid.uuid4().hex}",
        version=0,
        job=JOB,
        attempt=0,
        time_ns=now_ns,
        state="open",
        opened_ns=now_ns,
        closed_why="this is a test of the alerts; nothing is wrong",
    )
    states: tuple[State, ...] = ("open", "closed")
    for state in states:
        yield state, sink.deliver(Notice(incident=incident, level="page", state=state))
