"""Which decisions wait for somebody's yes, and what a decision tells of its incident."""

from __future__ import annotations

from collections.abc import Iterable

from pacehound.model.events import Decision, Incident


def waiting(decisions: Iterable[Decision], now_ns: int) -> list[Decision]:
    """Those that were neither answered nor given up, and still have time; the newest first.

    Of several questions about the same action of an incident the last one waits: whoever has asked before has gone.

    >>> asked = Decision(job="j", attempt=0, time_ns=1, incident="i", incident_version=0, mode="approve", action="x",
    ...     reason="", price_s=1.0, loss_s=2.0, number=1, until_ns=9)
    >>> done = Decision(job="j", attempt=0, time_ns=2, incident="i", incident_version=0, mode="approve", action="x",
    ...     reason="", price_s=1.0, loss_s=2.0, number=2, taken=True, asked=asked.identity())
    >>> len(waiting([asked], 5)), len(waiting([asked], 10)), len(waiting([asked, done], 5))
    (1, 0, 0)
    """
    known = list(decisions)
    answered = {one.asked for one in known if one.asked}
    asked = sorted((one for one in known if one.until_ns), key=lambda one: one.time_ns)
    last = {(one.incident, one.action, one.aimed_at): one for one in asked}.values()
    found = [one for one in last if one.until_ns > now_ns and one.identity() not in answered]
    return sorted(found, key=lambda one: -one.time_ns)


def incident_as_decided(decision: Decision) -> Incident:
    """The incident of a decision, as far as the decision knows it: open, and without its findings."""
    return Incident(
        id=decision.incident,
        version=decision.incident_version,
        job=decision.job,
        attempt=decision.attempt,
        time_ns=decision.time_ns,
        state="open",
        opened_ns=decision.time_ns,
    )
