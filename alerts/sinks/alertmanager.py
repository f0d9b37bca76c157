"""Prometheus Alertmanager: one alert per incident, which grouping, silences and receivers of there apply to.

The request::

    POST <alerts.alertmanager_url>/api/v2/alerts
    [{"labels": {"alertname": "PacehoundIncident", "severity": "page", "group": …, "job": …,
      "incident": <id>},
      "annotations": {"summary": …, …}, "startsAt": …, "endsAt": …, "generatorURL": <its page>}]

Labels are the alert's identity there: an incident that gets worse is a new alert of the worse severity (`ticket`,
`page` or `halt`), and the one before ends. What else may change in its life stands in the annotations. What begins
together, over all jobs, has one `group`: a route that groups by it sends one page for it. An alert that nobody repeats
is taken for resolved after some minutes, unless it says itself when it ends: an open one says "in a year", and a closed
one when it was closed. Sending one twice changes nothing.
"""

from __future__ import annotations

import datetime
from typing import Any

import httpx
import msgspec

from alerts.notice import Delivery, Notice
from alerts.receiver import Receiver
from alerts.severity import Level

OPEN_FOR_NS = 365 * 24 * 3600 * 10**9
"""Longer than anybody leaves an incident open."""


class Alertmanager:
    """An Alertmanager at a URL.

    Parameters
    ----------
    url
        `http` or `https`, without the path of the API.
    transport
        What carries the requests; the network when none is given.

    Raises
    ------
    InvalidSetting
        The URL cannot be posted to.

    """

    name = "alertmanager"
    lowest_level: Level = "ticket"
    groups = False
    acknowledges = False

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._receiver = Receiver(
            url.rstrip("/") + "/api/v2/alerts",
            setting="alerts.alertmanager_url",
            example="http://host:9093",
            transport=transport,
        )

    def deliver(self, notice: Notice) -> Delivery:
        """Post once."""
        return self._receiver.post(msgspec.json.encode([alert_of(notice)]))

    def reach(self) -> Delivery:
        """Whether Alertmanager answers."""
        return self._receiver.reach()

    def close(self) -> None:
        """Close the connections."""
        self._receiver.close()


def alert_of(notice: Notice) -> dict[str, Any]:
    """The alert of an incident.

    >>> from pacehound.model.events import Incident
    >>> incident = Incident(id="i", version=0, job="j", attempt=0, time_ns=0, state="open", opened_ns=0)
    >>> alert_of(Notice(incident=incident, group="g"))["labels"]
    {'alertname': 'PacehoundIncident', 'severity': 'page', 'group': 'g', 'job': 'j', 'incident': 'i'}
    """
    incident = notice.incident
    ends_ns = incident.opened_ns + OPEN_FOR_NS
    if notice.state == "closed":
        ends_ns = max(incident.closed_ns or incident.time_ns, incident.opened_ns + 1)
    findings = incident.findings
    what, cost, do = notice.lines
    alert: dict[str, Any] = {
        "labels": {
            "alertname": "PacehoundIncident",
            "severity": notice.level,
            "group": notice.group,
            "job": incident.job,
            "incident": incident.id,
        },
        "annotations": {
            "summary": notice.text,
            "description": f"{what}\n{cost}\n{do}",
            "state": notice.state,
            "kinds": ", ".join(sorted({finding.kind for finding in findings})),
            "culprits": ", ".join(str(rank) for rank in sorted({r for f in findings for r in f.culprits})),
            "evidence": "\n".join(piece.words for finding in findings for piece in finding.evidence),
            "gpu_hours": f"{incident.cost.gpu_hours:.3g}",
        },
        "startsAt": _time(incident.opened_ns),
        "endsAt": _time(ends_ns),
    }
    if notice.ask is not None:
        alert["labels"] |= {"alertname": "PacehoundDecision", "decision": notice.ask.identity()}
        alert["annotations"] |= {"state": "waits for a yes", "approve": notice.ask_link}
        alert["endsAt"] = _time(notice.ask.until_ns)
    if notice.link:
        alert["generatorURL"] = notice.link
    return alert


def _time(time_ns: int) -> str:
    at = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_ns // 1000)
    return at.isoformat(timespec="microseconds")
