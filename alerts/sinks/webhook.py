"""A generic webhook: one HTTP POST of JSON per notice.

The request::

    POST <alerts.webhook_url>
    Content-Type: application/json
    Idempotency-Key: <32 hexadecimal digits; the same for every attempt at one (incident, level, state)>
    Pacehound-Timestamp: <Unix time in seconds>                       with alerts.webhook_secret
    Pacehound-Signature: v1=<HMAC-SHA256 of timestamp "." body, in hexadecimal>

    {"schema": 1, "type": "pacehound.incident", "idempotency_key": "…", "state": "open" | "relieved" | "closed",
     "level": "ticket" | "page" | "halt", "group": "<the same for what begins together>",
     "text": "<the incident in one line>", "lines": [what, cost, what to do], "link": "<its page>",
     "incident": {<id, version, job, state, findings, cost …>}}

A receiver that checks the signature compares it in constant time, and refuses what is older than some minutes.
What an answer means stands in `alerts.receiver`. Delivery is at least once: a process that dies between the answer and
its own note of it sends again, with the same key.
"""

from __future__ import annotations

import hashlib
import hmac

import httpx
import msgspec

from alerts.notice import Delivery, Notice
from alerts.receiver import Receiver
from alerts.severity import Level
from pacehound.clock import Clock, SystemClock

SCHEMA = 1


class Webhook:
    """A receiver of notices at a URL.

    Parameters
    ----------
    url
        `http` or `https`. Its path and query may be secret and appear in no message.
    secret
        What requests are signed with; empty: they are not.
    clock
        The time in the signature.
    transport
        What carries the requests; the network when none is given.

    Raises
    ------
    InvalidSetting
        The URL cannot be posted to.

    """

    name = "webhook"
    lowest_level: Level = "ticket"
    groups = False
    acknowledges = False

    def __init__(
        self, url: str, secret: str = "", clock: Clock | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._secret = secret
        self._clock = clock or SystemClock()
        self._receiver = Receiver(url, setting="alerts.webhook_url", example="https://host/path", transport=transport)

    def deliver(self, notice: Notice) -> Delivery:
        """Post once."""
        body = body_of(notice)
        headers = {"Idempotency-Key": notice.idempotency_key}
        if self._secret:
            headers |= signature(self._secret, self._clock.now_ns() // 10**9, body)
        return self._receiver.post(body, headers)

    def reach(self) -> Delivery:
        """Whether the receiver answers."""
        return self._receiver.reach()

    def close(self) -> None:
        """Close the connections."""
        self._receiver.close()


def body_of(notice: Notice) -> bytes:
    """The body of the request."""
    return msgspec.json.encode(
        {
            "schema": SCHEMA,
            "type": "pacehound.incident" if notice.ask is None else "pacehound.decision",
            "idempotency_key": notice.idempotency_key,
            "state": notice.state,
            "level": notice.level,
            "group": notice.group,
            "text": notice.text,
            "lines": notice.lines,
            "link": notice.link,
            "incident": notice.incident,
            **({} if notice.ask is None else {"decision": notice.ask}),
        }
    )


def signature(secret: str, time_s: int, body: bytes) -> dict[str, str]:
    """The headers by which a receiver knows that the request is ours and not an old one.

    >>> signature("s", 5, b"{}")["Pacehound-Signature"][:11]
    'v1=773bda49'
    """
    signed = hmac.new(secret.encode(), f"{time_s}.".encode() + body, hashlib.sha256).hexdigest()
    return {"Pacehound-Timestamp": str(time_s), "Pacehound-Signature": f"v1={signed}"}
