"""Where the events of a run go: an endpoint somebody named, or a head of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

from pacehound.errors import InvalidInput

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
PROTOCOL_VARIABLE = "OTEL_EXPORTER_OTLP_PROTOCOL"
TOKEN_VARIABLE = "PACEHOUND_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """An OTLP/HTTP receiver: its base URL and the headers it wants."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def chosen_destination(endpoint: str | None, environ: Mapping[str, str]) -> Destination | None:
    """The receiver that `--endpoint` or the OpenTelemetry variables name; `None`: use a head of this machine.

    Raises
    ------
    InvalidInput
        The endpoint is no http(s) URL. (A variable that speaks of gRPC is left alone: it is not meant for us.)

    """
    headers = parse_headers(environ.get(HEADERS_VARIABLE, ""))
    if token := environ.get(TOKEN_VARIABLE, ""):
        headers["Authorization"] = f"Bearer {token}"
    if endpoint is None:
        endpoint = environ.get(ENDPOINT_VARIABLE, "")
        if not endpoint or environ.get(PROTOCOL_VARIABLE, "").lower() == "grpc":
            return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"endpoint {endpoint!r} is no URL of an OTLP/HTTP receiver; write http://HOST:4318")
    return Destination(url=endpoint.rstrip("/"), headers=headers)


def parse_headers(text: str) -> dict[str, str]:
    """`key=value,key=value`, values percent-encoded, as OpenTelemetry writes them.

    >>> parse_headers("Authorization=Bearer%20x, a=b")
    {'Authorization': 'Bearer x', 'a': 'b'}
    """
    headers = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = pair.partition("=")
        if separator:
            headers[key.strip()] = unquote(value.strip())
    return headers


def format_headers(headers: Mapping[str, str]) -> str:
    """The inverse of `parse_headers`.

    >>> parse_headers(format_headers({"Authorization": "Bearer a,b=c"}))
    {'Authorization': 'Bearer a,b=c'}
    """
    return ",".join(f"{key}={quote(value, safe='')}" for key, value in headers.items())
