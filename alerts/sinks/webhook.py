"""A generic webhook: one HTTP POST of JSON per notice.

The request::

    POST <alerts.webhook_url>
    Content-Type: application/json
    Idempotency-Key: <32 hexadecimal digits; the same for every attempt at one (incident, state)>

    {"schema": 1, "type": "pacehound.incident", "idempotency_key": "…", "state": "open" | "relieved" | "closed",
     "text": "<the incident in one line>", "incident": {<id, version, job, state, findings, cost …>}}

Any 2xx answer is a delivery. 408, 425, 429, 5xx and a failed connection are tried again; anything else, redirects
included, is a refusal. Delivery is at least once: a process that dies between the answer and its own note of it
sends again, with the same key.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from urllib.parse import urlsplit

import httpx
import msgspec

from alerts.notice import Delivery, Notice
from pacehound.errors import InvalidSetting

SCHEMA = 1
CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 10.0
_TRY_AGAIN = {408, 425, 429}


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
        try:
            parts = urlsplit(url)
            self._host = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname or "")
        except ValueError as error:
            raise InvalidSetting(f"alerts.webhook_url is no URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSetting(
                f"alerts.webhook_url has scheme {parts.scheme!r} and host {parts.hostname!r};"
                " it must look like https://host/path"
            )
        self._url = url
        self._client = httpx.Client(
            transport=transport,
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            headers={"User-Agent": f"pacehound/{_version()}", "Content-Type": "application/json"},
        )

    def deliver(self, notice: Notice) -> Delivery:
        """Post once."""
        try:
            # Streamed, so that a receiver that answers without end costs nothing: only the status is read.
            with self._client.stream(
                "POST", self._url, content=body_of(notice), headers={"Idempotency-Key": notice.idempotency_key}
            ) as response:
                return _judge(response.status_code, self._host)
        except httpx.HTTPError as error:
            return Delivery(outcome="unavailable", detail=f"{self._host}: {type(error).__name__}")
        except (httpx.InvalidURL, UnicodeError) as error:
            return Delivery(outcome="refused", detail=f"{self._host}: {type(error).__name__}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


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


def _judge(status: int, host: str) -> Delivery:
    if 200 <= status < 300:
        return Delivery(outcome="delivered")
    if status >= 500 or status in _TRY_AGAIN:
        return Delivery(outcome="unavailable", detail=f"{host} answered {status}")
    return Delivery(outcome="refused", detail=f"{host} answered {status}")


def _version() -> str:
    try:
        return version("pacehound")
    except PackageNotFoundError:  # run from a source tree
        return "0"
