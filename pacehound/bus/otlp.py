"""The bus to a head node: messages go out as OTLP logs over HTTP, as any OpenTelemetry exporter sends them.

One request carries many messages: an encoded message is a whole `ExportLogsServiceRequest`, and several put end to
end are one request (pacehound/model/codec.py). The receiver derives topic and key again, so they are not sent.
"""

from __future__ import annotations

import gzip
import json
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from pacehound.bus.otlp_headers import AFTER_HEADER, COMMANDS_PATH
from pacehound.bus.tls import MACHINE_CAS, Trust, why_not_trusted
from pacehound.errors import BusFull, InvalidSetting, MalformedMessage, RejectedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.events import Command

LOGS_PATH = "/v1/logs"
MOST_COMMANDS_BYTES = 16 * 1024 * 1024
MOST_DIGITS = 20
GZIP_FROM_BYTES = 1024
LONGEST_RETRY_AFTER_S = 60.0

# A head node that is set up wrongly, not a message that is wrong: keep the messages until somebody mends it.
_MISCONFIGURED = {
    401: "check the token",
    403: "check the token",
    404: "check the address",
    405: "check the address",
    407: "check the proxy",
}
_BUSY = {429, 503}
_PASSING = {408, 425}


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What a head node said about one request that it took."""

    rejected: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """Commands that wait for an agent, and the number to ask for next."""

    commands: tuple[Command, ...]
    after: int


def logs_url(endpoint: str, path: str = LOGS_PATH) -> str:
    """Where logs are posted, from the base URL of an OTLP/HTTP endpoint; or what else is asked there.

    Raises
    ------
    InvalidSetting
        It is no http or https URL.

    Examples
    --------
    >>> logs_url("http://head:4318/")
    'http://head:4318/v1/logs'

    """
    parts = urllib.parse.urlsplit(endpoint.strip())
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidSetting(f"endpoint {endpoint!r} is no URL; write it as in http://head-node:4318")
    full_path = parts.path.rstrip("/") + path
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, full_path, parts.query, ""))


class OtlpProducer:
    """Sends messages to a head node; one request at a time, each call waits for the answer.

    Parameters
    ----------
    endpoint
        The base URL, as in OTEL_EXPORTER_OTLP_ENDPOINT.
    headers
        Sent with every request.
    trust
        Which certificate an https endpoint must have.
    timeout_s
        For connecting, and for each wait on the connection after that.
    transport
        Another way than the network: a socket of this machine.
    packs
        Whether larger requests are packed: not where they stay on this machine, where it would save nothing.

    """

    def __init__(
        self,
        endpoint: str,
        headers: Mapping[str, str] | None = None,
        *,
        trust: Trust = MACHINE_CAS,
        timeout_s: float = 10.0,
        transport: httpx.BaseTransport | None = None,
        packs: bool = True,
    ) -> None:
        self._packs = packs
        self._url = logs_url(endpoint)
        self._commands_url = logs_url(endpoint, COMMANDS_PATH)
        sent = {"content-type": "application/x-protobuf", "user-agent": "pacehound"}
        sent.update({key.lower(): value for key, value in (headers or {}).items()})
        verify = trust.context() if self._url.startswith("https:") else True
        try:
            self._client = httpx.Client(headers=sent, timeout=timeout_s, transport=transport, verify=verify)
        except (UnicodeEncodeError, ValueError, TypeError) as error:
            raise InvalidSetting(f"the headers for {self._url} cannot be sent: {type(error).__name__}") from error

    def send(self, messages: Sequence[bytes]) -> SendResult:
        """Send messages, in order, in one request.

        Raises
        ------
        BusFull
            The head node is up and says "slower" (429, 503); `retry_after_s` where it said for how long.
        Unavailable
            It is away, or set up so that it takes nothing from us.
        RejectedMessage
            It will never take this request: one of the messages is wrong, or all together are too large.

        """
        body = b"".join(messages)
        headers = {}
        if self._packs and len(body) >= GZIP_FROM_BYTES:
            body = gzip.compress(body, compresslevel=1, mtime=0)
            headers["content-encoding"] = "gzip"
        return _receipt(self._url, self._post(self._url, body, headers))

    def commands(self, job: str, after: int, wait_s: float = 0.0) -> Polled:
        """What a controller has to say to the agents of a job, since the last time; a head waits so long for it.

        Raises
        ------
        Unavailable
            Nobody answers, or somebody who knows no commands.
        RejectedMessage
            What is answered cannot be read.

        """
        asked = json.dumps({"job": job, "after": after, "wait_s": wait_s}).encode()
        response = self._post(self._commands_url, asked, {"content-type": "application/json"})
        if response.status_code != 200:
            raise Unavailable(f"{self._commands_url} answered {response.status_code}")
        if len(response.content) > MOST_COMMANDS_BYTES:
            raise MalformedMessage(f"{len(response.content)} bytes of commands")
        number = response.headers.get(AFTER_HEADER, "")
        if not number.isdecimal() or len(number) > MOST_DIGITS:
            raise Unavailable(f"{self._commands_url} knows no commands")
        events = codec.decode(response.content) if response.content else []
        return Polled(commands=tuple(one for one in events if isinstance(one, Command)), after=int(number))

    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        try:
            return self._client.post(url, content=body, headers=dict(headers))
        except (httpx.TransportError, httpx.InvalidURL) as error:
            if why := why_not_trusted(error):
                raise Unavailable(f"{url} is not trusted: {why}") from error
            said = f"{url} does not answer: {type(error).__name__}: {error}"
            if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError)) and url.startswith("http:"):
                said = f"{said} (a head that speaks TLS is at https://)"
            raise Unavailable(said) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _receipt(url: str, response: httpx.Response) -> SendResult:
    status = response.status_code
    said = f"{url} answered {status}"
    if status in _BUSY:
        raise BusFull(said, retry_after_s=retry_after_s(response.headers.get("retry-after", "")))
    if status in _MISCONFIGURED:
        raise Unavailable(f"{said}: {_MISCONFIGURED[status]}")
    if status in _PASSING or status >= 500 or 300 <= status < 400:
        raise Unavailable(said)
    if status >= 400:
        raise RejectedMessage(f"{said}: {response.text[:200]}")
    try:
        partial = ExportLogsServiceResponse.FromString(response.content).partial_success
    except DecodeError:
        return SendResult()  # taken, by something that answers in another form
    return SendResult(rejected=max(partial.rejected_log_records, 0), message=partial.error_message[:200])


def retry_after_s(text: str) -> float | None:
    """The seconds of a Retry-After header, bounded; `None` for an absent one or for a date.

    >>> retry_after_s("2"), retry_after_s("Wed, 21 Oct 2026 07:28:00 GMT"), retry_after_s("86400")
    (2.0, None, 60.0)
    """
    try:
        seconds = float(text)
    except ValueError:
        return None
    return min(seconds, LONGEST_RETRY_AFTER_S) if seconds >= 0 else None
