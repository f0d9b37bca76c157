"""Where the events of a run go: an endpoint somebody named, or a head of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pacehound.bus.kafka_address import SCHEME, is_kafka, kafka_servers
from pacehound.bus.otlp_headers import ENDPOINT_VARIABLE, HEADERS_VARIABLE, TOKEN_VARIABLE, bearer, parse_headers
from pacehound.errors import InvalidInput

PROTOCOL_VARIABLE = "OTEL_EXPORTER_OTLP_PROTOCOL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """An OTLP/HTTP receiver: its base URL and the headers it wants. Or Kafka, as `kafka://HOST:PORT`."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_kafka(self) -> bool:
        """Nobody is there who could be asked."""
        return is_kafka(self.url)


def chosen_destination(endpoint: str | None, environ: Mapping[str, str]) -> Destination | None:
    """The receiver that `--endpoint` or the OpenTelemetry variables name; `None`: use a head of this machine.

    Raises
    ------
    InvalidInput
        The endpoint is neither an http(s) URL nor kafka://HOST:PORT, or the headers for it are no pairs. (Variables
        that speak of gRPC are left alone: they are not meant for us.)

    """
    if endpoint is None:
        endpoint = environ.get(ENDPOINT_VARIABLE, "")
        if not endpoint or environ.get(PROTOCOL_VARIABLE, "").lower() == "grpc":
            return None
    elif is_kafka(endpoint):
        return Destination(url=SCHEME + kafka_servers(endpoint))
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            f"endpoint {endpoint!r} is no URL of an OTLP/HTTP receiver; write http://HOST:4318, or kafka://HOST:9092"
        )
    headers = parse_headers(environ.get(HEADERS_VARIABLE, ""))
    if token := environ.get(TOKEN_VARIABLE, ""):
        headers |= bearer(token)
    return Destination(url=endpoint.rstrip("/"), headers=headers)
