"""What becomes of an incident that nobody watches any more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pacehound.model.events import Incident

WATCHING_INTERRUPTED = "watching was interrupted"


def interrupted(incidents: Iterable[Incident], now_ns: int) -> list[Incident]:
    """The closing versions of all incidents that are still open.

    They close at the last time that is known of them, not now: a head that returns after a week has not seen a
    slowdown of a week.
    """
    return [
        dataclasses.replace(
            incident,
            version=incident.version + 1,
            state="closed",
            time_ns=max(now_ns, incident.time_ns),
            closed_ns=max(incident.time_ns, incident.opened_ns),
            closed_why=WATCHING_INTERRUPTED,
        )
        for incident in incidents
        if incident.state != "closed"
    ]
