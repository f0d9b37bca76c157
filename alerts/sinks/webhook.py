"""A generic webhook: one HTTP POST of JSON per notice.

The request::

    POST <alerts.webhook_url>
    Content-Type: application/json
    Idempotency-Key: <32 hexadecimal digits; the same for every attempt at one (incident, state)>

    {"schema": 1, "type": "pacehound.incident", "idempotency_key": "…", "state": "open" | "relieved" | "closed",
     "text": "<the incident in one line>", "incident": {<id, version, job, state, findings, cost …>}}

What an answer means stands in `alerts.receiver`. Delivery is at least once: a process that dies between the answer and
its own note of it sends again, with the same key.
"""

from __future__ import annotations

import httpx
import msgspec

from alerts.notice import Delivery, Notice
from alerts.receiver import Receiver

SCHEMA = 1


class Webhook:
    """A receiver of notices at a URL.

    Parameters
    ----------
    url
        `http` or `https`. Its path and query may be secret and appear in no message.
    transport
        What carries the requests; the network when none is given.

    Raises
    ------
    InvalidSetting
        The URL cannot be posted to.

    """

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._receiver = Receiver(url, setting="alerts.webhook_url", example="https://host/path", transport=transport)

    def deliver(self, notice: Notice) -> Delivery:
        """Post once."""
        return self._receiver.post(body_of(notice), {"Idempotency-Key": notice.idempotency_key})

    def close(self) -> None:
        """Close the connections."""
        self._receiver.close()


def body_of(notice: Notice) -> bytes:
    """The body of the request."""
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "type": "pacehound.incident",
            "idempotency_key": notice.idempotency_key,
            "state": notice.incident.state,
            "text": notice.text,
            "incident": notice.incident,
        }
    )
