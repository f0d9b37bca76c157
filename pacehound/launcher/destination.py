"""Where the events of a run go: an endpoint somebody named, or a head of this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pacehound.bus.kafka_address import SCHEME, is_kafka, kafka_servers
from pacehound.bus.otlp_headers import (
    ENDPOINT_VARIABLE,
    HEADERS_VARIABLE,
    TOKEN_VARIABLE,
    bearer,
    parse_headers,
    token_and_pin,
)
from pacehound.bus.tls import CA_VARIABLE, MACHINE_CAS, Trust
from pacehound.errors import InvalidInput
from pacehound.runtime.head.owner import Owner

PROTOCOL_VARIABLE = "OTEL_EXPORTER_OTLP_PROTOCOL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """An OTLP/HTTP receiver: base URL, the headers it wants, its certificate. Or, without them, Kafka or a store."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    trust: Trust = MACHINE_CAS

    @property
    def is_kafka(self) -> bool:
        """Nobody is there who could be asked."""
        return is_kafka(self.url)


def with_own_token(destination: Destination, owner: Owner | None) -> Destination:
    """With token and certificate of this user's own head, if it is that head which is named, where none was given.

    The head wrote it beside its store, readable by this user alone.

    >>> owner = Owner(pid=1, host="h", socket="s", url="http://127.0.0.1:4318", token="t")
    >>> dict(with_own_token(Destination(url="http://127.0.0.1:4318"), owner).headers)
    {'authorization': 'Bearer t'}
    >>> dict(with_own_token(Destination(url="http://elsewhere:4318"), owner).headers)
    {}
    """
    if owner is None or owner.url != destination.url:
        return destination
    headers = destination.headers
    if "authorization" not in {name.lower() for name in headers}:
        headers = {**headers, **bearer(owner.token)}
    trust = destination.trust if destination.trust != MACHINE_CAS else Trust(pin=owner.pin)
    return Destination(url=destination.url, headers=headers, trust=trust)


def chosen_destination(endpoint: str | None, environ: Mapping[str, str]) -> Destination | None:
    """The receiver that `--endpoint` or the OpenTelemetry variables name; `None`: use a head of this machine.

    Raises
    ------
    InvalidInput
        The endpoint is neither an http(s) URL nor kafka://HOST:PORT, the headers for it are no pairs, its CAs cannot
        be read, or its certificate is named and it has none. (Variables that speak of gRPC are left alone: they are not
        meant for us.)

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
            f"endpoint {endpoint!r} is no URL of an OTLP/HTTP receiver; write https://HOST:4318, or kafka://HOST:9092"
        )
    headers = parse_headers(environ.get(HEADERS_VARIABLE, ""))
    token, pin = token_and_pin(environ.get(TOKEN_VARIABLE, ""))
    if token:
        headers |= bearer(token)
    if pin and parts.scheme != "https":
        raise InvalidInput(
            f"{TOKEN_VARIABLE} names the certificate of a head with TLS, and is not shown without it: write "
            f"https:// instead of {endpoint!r}"
        )
    trust = MACHINE_CAS
    if parts.scheme == "https":
        ca_file = environ.get(CA_VARIABLE, "")
        trust = Trust(pin=pin, ca_file=os.path.abspath(ca_file) if ca_file else "")
        trust.context()  # what is wrong with it is said before the command starts
    return Destination(url=endpoint.rstrip("/"), headers=headers, trust=trust)
