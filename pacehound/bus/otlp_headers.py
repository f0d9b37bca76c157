"""The headers of an OTLP exporter, as OpenTelemetry's variables write them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping

from pacehound.errors import InvalidSetting

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
TOKEN_VARIABLE = "PACEHOUND_TOKEN"


def parse_headers(text: str) -> dict[str, str]:
    """Headers from `k=v,k2=v2`, keys and values percent-encoded; keys come out in lower case.

    Raises
    ------
    InvalidSetting
        A part has no `=` or no key.

    Examples
    --------
    >>> parse_headers("Authorization=Bearer%20secret, tenant=a")
    {'authorization': 'Bearer secret', 'tenant': 'a'}

    """
    headers: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        key, separator, value = part.partition("=")
        key = urllib.parse.unquote(key.strip()).lower()
        if not separator or not key:
            # The value may be a secret: it is not repeated.
            raise InvalidSetting(f"header {len(headers) + 1} of {HEADERS_VARIABLE} is not KEY=VALUE")
        headers[key] = urllib.parse.unquote(value.strip())
    return headers


def format_headers(headers: Mapping[str, str]) -> str:
    """The inverse of `parse_headers`.

    >>> parse_headers(format_headers({"authorization": "Bearer a,b=c"}))
    {'authorization': 'Bearer a,b=c'}
    """
    return ",".join(f"{urllib.parse.quote(k, safe='')}={urllib.parse.quote(v, safe='')}" for k, v in headers.items())


def bearer(token: str) -> dict[str, str]:
    """The header that carries a token.

    >>> bearer("secret")
    {'authorization': 'Bearer secret'}
    """
    return {"authorization": f"Bearer {token}"}
