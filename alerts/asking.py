"""Tells people of a decision that waits for a yes, with a link by which whoever is told can say it.

Each receiver is told once; one that is away is tried again as long as the decision waits. Who was told, and who has
answered, is said (`Asked`). A process that dies before a receiver has come back does not tell it, and `pacehound
approve` lists what waits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from alerts.notice import Notice, Sink
from pacehound.clock import Clock
from pacehound.model.approval_link import link_of
from pacehound.model.decisions import incident_as_decided
from pacehound.model.events import Asked, Decision
from pacehound.runtime.backoff import Backoff
from pacehound.runtime.event_loop import FIRST_RETRY_S, LONGEST_RETRY_S

logger = logging.getLogger(__name__)

Outcome = Literal["told", "refused", "answered", "over"]

MOST_ASKED = 10_000
"""Chosen: questions of which it is waited what comes of them."""

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
        self._asked: dict[str, None] = {}  # of which somebody was told, until it is known what came of it
        self._said: list[Asked] = []

    def on_decision(self, decision: Decision) -> None:
        """One more; what was answered is asked of nobody any more."""
        for receiver in self._receivers:
            receiver.notices.pop(decision.asked, None)
        if decision.asked in self._asked:
            del self._asked[decision.asked]
            outcome: Outcome = "answered" if decision.by else "over"
            self._note(decision, decision.asked, outcome, decision.time_ns, by=decision.by)
        if decision.until_ns <= self._clock.now_ns():
            return
        name = decision.identity()
        link = link_of(self._page_url, self._key, name, decision.until_ns // 10**9)
        incident = incident_as_decided(decision)
        notice = Notice(incident=incident, level="ticket", page_url=self._page_url, ask=decision, ask_link=link)
        for receiver in self._receivers:
            receiver.notices[name] = notice

    @property
    def is_waiting(self) -> bool:
        """Somebody is still to be told, or what came of it to be said."""
        return bool(self._said) or any(receiver.notices for receiver in self._receivers)

    def turn(self) -> list[Asked]:
        """Tell whoever is there; who was told, and what came of it, since the last time."""
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
                    is_told = delivery.outcome == "delivered"
                    self._note(notice.ask, name, "told" if is_told else "refused", now_ns, sink=receiver.sink.name)
                    if is_told:
                        self._asked[name] = None
                    for oldest in list(self._asked)[:-MOST_ASKED]:
                        del self._asked[oldest]
                    if delivery.outcome == "refused":
                        logger.warning("decision %s is not told to %s: %s", name, receiver.sink.name, delivery.detail)
                del receiver.notices[name]
        said, self._said = self._said, []
        return said

    def _note(
        self, decision: Decision, name: str, outcome: Outcome, time_ns: int, *, sink: str = "", by: str = ""
    ) -> None:
        self._said.append(
            Asked(
                job=decision.job,
                attempt=decision.attempt,
                time_ns=time_ns,
                incident=decision.incident,
                decision=name,
                outcome=outcome,
                sink=sink,
                by=by,
            )
        )
