"""PagerDuty, by its Events API v2: an event per alert, from `trigger` over `acknowledge` to `resolve`.

The request::

    POST https://events.pagerduty.com/v2/enqueue
    {"routing_key": <alerts.pagerduty_key>, "event_action": "trigger", "dedup_key": <32 hexadecimal digits>,
     "client": "Pacehound", "client_url": …, "links": [{"href": …, "text": …}],
     "payload": {"summary": …, "source": <the job>, "severity": "critical" | "error", "timestamp": …,
                 "component": …, "group": …, "class": …, "custom_details": {…}}}

The dedup key stays for the alert's life, so that what is sent twice is one incident there. Tickets wake nobody, and are
not sent.
"""

from __future__ import annotations

import datetime
from typing import Any

import httpx
import msgspec

from alerts.notice import Delivery, Notice
from alerts.receiver import Receiver
from alerts.severity import Level
from pacehound.errors import InvalidSetting
from pacehound.model.events import foremost
from pacehound.model.plain import plain

URL = "https://events.pagerduty.com/v2/enqueue"
LONGEST_SUMMARY = 1024
LONGEST_DETAIL = 2000
"""An event holds 512 KB in all; a person reads less."""

_ACTIONS = {"open": "trigger", "relieved": "trigger", "acknowledged": "acknowledge", "closed": "resolve"}


class PagerDuty:
    """A service of PagerDuty.

    Parameters
    ----------
    routing_key
        The integration key of the service (Events API v2).
    url
        Where the events go: another one for accounts in the EU.
    transport
        What carries the requests; the network when none is given.

    Raises
    ------
    InvalidSetting
        The URL cannot be posted to, or the key is none.

    """

    name = "pagerduty"
    lowest_level: Level = "page"
    groups = True
    acknowledges = True

    def __init__(self, routing_key: str, url: str = URL, transport: httpx.BaseTransport | None = None) -> None:
        if len(routing_key) != 32 or not routing_key.isalnum():
            raise InvalidSetting(
                f"alerts.pagerduty_key has {len(routing_key)} characters; it must be an integration key of the Events "
                "API v2: 32 letters and digits"
            )
        self._routing_key = routing_key
        self._receiver = Receiver(url, setting="alerts.pagerduty_url", example=URL, transport=transport)

    def deliver(self, notice: Notice) -> Delivery:
        """Post once."""
        return self._receiver.post(msgspec.json.encode(event_of(notice, self._routing_key)))

    def reach(self) -> Delivery:
        """Whether PagerDuty answers."""
        return self._receiver.reach()

    def close(self) -> None:
        """Close the connections."""
        self._receiver.close()


def event_of(notice: Notice, routing_key: str) -> dict[str, Any]:
    """The event of a notice.

    >>> from pacehound.model.events import Incident
    >>> incident = Incident(id="i", version=0, job="j", attempt=0, time_ns=0, state="open", opened_ns=0)
    >>> event_of(Notice(incident=incident, state="closed"), "k")["event_action"]
    'resolve'
    """
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": _ACTIONS[notice.state],
        "dedup_key": notice.dedup_key,
    }
    if event["event_action"] != "trigger":
        return event
    what, cost, do = notice.lines
    incident = notice.incident
    finding = foremost(incident.findings)
    opened = datetime.datetime.fromtimestamp(incident.opened_ns // 10**9, datetime.UTC)
    event["client"] = "Pacehound"
    event["payload"] = {
        "summary": what[:LONGEST_SUMMARY],
        "source": plain(incident.job),
        "severity": "critical" if notice.level == "halt" else "error",
        "timestamp": opened.isoformat(),
        "component": ", ".join(f"rank {rank}" for rank in finding.culprits[:16]) if finding is not None else "",
        "group": plain(incident.job),
        "class": finding.kind if finding is not None else "",
        "custom_details": {
            "cost": cost[:LONGEST_DETAIL],
            "what to do": do[:LONGEST_DETAIL],
            "jobs": plain(", ".join(notice.jobs))[:LONGEST_DETAIL],
            "incident": incident.id,
        },
    }
    if notice.link:
        event["client_url"] = notice.link
        event["links"] = [{"href": notice.link, "text": "The incident in Pacehound"}]
    return event
