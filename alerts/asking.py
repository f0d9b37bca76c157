"""Tells people of a decision that waits for a yes, with a link by which whoever is told can say it.

Each receiver is told once; one that is away is tried again as long as the decision waits. What is told is noted
nowhere: a process that dies before a receiver has come back does not tell it, and `pacehound approve` lists what waits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from alerts.notice import Notice, Sink
from pacehound.clock import Clock
from pacehound.model.approval_link import link_of
from pacehound.model.events import Decision, Incident
from pacehound.runtime.backoff import Backoff
from pacehound.runtime.event_loop import FIRST_RETRY_S, LONGEST_RETRY_S

logger = logging.getLogger(__name__)

NOT_ASKED = ("pagerduty",)
"""It wakes somebody for the incident, and would keep an alert of its own open for the decision."""


@dataclass(slots=True)
class _Waiting:
    """A receiver, and what it is to be told."""

    sink: Sink
    notices: dict[str, Notice] = field(default_factory=dict)
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_RETRY_S, LONGEST_RETRY_S))
    not_before_s: float = 0.0


class Asking:
    """Decisions in, notices out.

    Parameters
    ----------
    sinks
        Who is told.
    clock
        The time.
    page_url, key
        Of the links; without either, the notice says which command to use.

    """

    def __init__(self, sinks: Sequence[Sink], clock: Clock, page_url: str = "", key: str = "") -> None:
        self._receivers = [_Waiting(sink) for sink in sinks if sink.name not in NOT_ASKED]
        self._clock, self._page_url, self._key = clock, page_url, key

    def on_decision(self, decision: Decision) -> None:
        """One more; what was answered is asked of nobody any more."""
        for receiver in self._receivers:
            receiver.notices.pop(decision.asked, None)
        if decision.until_ns <= self._clock.now_ns():
            return
        name = decision.identity()
        link = link_of(self._page_url, self._key, name, decision.until_ns // 10**9)
        incident = Incident(
            id=decision.incident,
            version=decision.incident_version,
            job=decision.job,
            attempt=decision.attempt,
            time_ns=decision.time_ns,
            state="open",
            opened_ns=decision.time_ns,
        )
        notice = Notice(incident=incident, level="ticket", page_url=self._page_url, ask=decision, ask_link=link)
        for receiver in self._receivers:
            receiver.notices[name] = notice

    def turn(self) -> None:
        """Tell whoever is there."""
        now_s, now_ns = self._clock.monotonic_s(), self._clock.now_ns()
        for receiver in self._receivers:
            for name, notice in list(receiver.notices.items()):
                if now_s < receiver.not_before_s:
                    break
                if notice.ask is not None and notice.ask.until_ns > now_ns:
                    delivery = receiver.sink.deliver(notice)
                    if delivery.outcome == "unavailable":
                        receiver.not_before_s = now_s + receiver.backoff.next_s()
                        break
                    receiver.backoff.reset()
                    if delivery.outcome == "refused":
                        logger.warning("decision %s is not told to %s: %s", name, receiver.sink.name, delivery.detail)
                del receiver.notices[name]
