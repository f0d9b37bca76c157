"""Prometheus Alertmanager: one alert per incident, which grouping, silences and receivers of there apply to.

The request::

    POST <alerts.alertmanager_url>/api/v2/alerts
    [{"labels": {"alertname": "PacehoundIncident", "job": …, "incident": <id>}, "annotations": {"summary": …, …},
      "startsAt": …, "endsAt": …}]

Labels are the alert's identity there, so they hold nothing that may change in an incident's life; what does stands in
the annotations. An alert that nobody repeats is taken for resolved after some minutes, unless it says itself when it
ends: an open one says "in a year", and a closed one when it was closed. Sending one twice changes nothing.
"""

from __future__ import annotations

import datetime
from typing import Any

import httpx
import msgspec

from alerts.notice import Delivery, Notice
from alerts.receiver import Receiver

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

    def close(self) -> None:
        """Close the connections."""
        self._receiver.close()


def alert_of(notice: Notice) -> dict[str, Any]:
    """The alert of an incident.

    >>> from pacehound.model.events import Incident
    >>> incident = Incident(id="i", version=0, job="j", attempt=0, time_ns=0, state="open", opened_ns=0)
    >>> alert_of(Notice(incident=incident))["labels"]
    {'alertname': 'PacehoundIncident', 'job': 'j', 'incident': 'i'}
    """
    incident = notice.incident
    ends_ns = incident.opened_ns + OPEN_FOR_NS
    if incident.state == "closed":
        ends_ns = max(incident.closed_ns or incident.time_ns, incident.opened_ns + 1)
    findings = incident.findings
    return {
        "labels": {"alertname": "PacehoundIncident", "job": incident.job, "incident": incident.id},
        "annotations": {
            "summary": notice.text,
            "state": incident.state,
            "kinds": ", ".join(sorted({finding.kind for finding in findings})),
            "culprits": ", ".join(str(rank) for rank in sorted({r for f in findings for r in f.culprits})),
            "evidence": "\n".join(piece.words for finding in findings for piece in finding.evidence),
            "gpu_hours": f"{incident.cost.gpu_hours:.3g}",
        },
        "startsAt": _time(incident.opened_ns),
        "endsAt": _time(ends_ns),
    }


def _time(time_ns: int) -> str:
    at = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_ns // 1000)
    return at.isoformat(timespec="microseconds")
