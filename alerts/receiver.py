"""A receiver of notices at a URL: how it is told, and what its answer means.

One POST of JSON per attempt. Any 2xx answer is a delivery. 408, 425, 429, 5xx and a failed connection are tried again;
anything else, redirects included, is a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from alerts.notice import Delivery
from pacehound import __version__
from pacehound.errors import InvalidSetting

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 10.0
_TRY_AGAIN = {408, 425, 429}


class Receiver:
    """Somebody who takes JSON over HTTP.

    Parameters
    ----------
    url
        `http` or `https`. Its user, path and query may be secret and appear in no message.
    setting, example
        Where the URL was set, and how it should look: for the message when it cannot be used.
    transport
        What carries the requests; the network when none is given.

    Raises
    ------
    InvalidSetting
        The URL cannot be posted to.

    """

    def __init__(self, url: str, *, setting: str, example: str, transport: httpx.BaseTransport | None = None) -> None:
        try:
            parts = urlsplit(url)
            self._host = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname or "")
        except ValueError as error:
            raise InvalidSetting(f"{setting} is no URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidSetting(
                f"{setting} has scheme {parts.scheme!r} and host {parts.hostname!r}; it must look like {example}"
            )
        self._url = url
        self._client = httpx.Client(
            transport=transport,
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            follow_redirects=False,
            headers={"User-Agent": f"pacehound/{__version__}", "Content-Type": "application/json"},
        )

    def post(self, content: bytes, headers: Mapping[str, str] | None = None) -> Delivery:
        """Post once; never raises."""
        try:
            # Streamed, so that a receiver that answers without end costs nothing: only the status is read.
            with self._client.stream("POST", self._url, content=content, headers=headers) as response:
                return judged(response.status_code, self._host)
        except httpx.HTTPError as error:
            return Delivery(outcome="unavailable", detail=f"{self._host}: {type(error).__name__}")
        except (httpx.InvalidURL, UnicodeError) as error:
            return Delivery(outcome="refused", detail=f"{self._host}: {type(error).__name__}")

    def reach(self) -> Delivery:
        """Whether anybody answers there, without telling anything; never raises."""
        url = urlsplit(self._url)
        try:
            with self._client.stream("GET", f"{url.scheme}://{url.netloc}/") as response:
                return Delivery(outcome="delivered", detail=f"{self._host} answers ({response.status_code})")
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            return Delivery(outcome="unavailable", detail=f"{self._host}: {type(error).__name__}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def judged(status: int, host: str) -> Delivery:
    """What a status means for the notice.

    >>> judged(503, "am:9093")
    Delivery(outcome='unavailable', detail='am:9093 answered 503')
    """
    if 200 <= status < 300:
        return Delivery(outcome="delivered")
    may_change = status >= 500 or status in _TRY_AGAIN
    return Delivery(outcome="unavailable" if may_change else "refused", detail=f"{host} answered {status}")
