"""The headers of an OTLP exporter, as OpenTelemetry's variables write them, and the token of a head."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping

from pacehound.errors import InvalidSetting

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
TOKEN_VARIABLE = "PACEHOUND_TOKEN"
COMMANDS_PATH = "/v1/commands"
AFTER_HEADER = "pacehound-after"
"""Here, for a head that answers there needs no HTTP client."""
_PIN = "+sha256:"


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


def with_pin(token: str, pin: str) -> str:
    """A token that names its head's certificate, too, so that one thing is to be copied; an empty pin: it does not.

    >>> with_pin("secret", "")
    'secret'
    """
    return f"{token}{_PIN}{pin}" if pin else token


def token_and_pin(text: str) -> tuple[str, str]:
    """The inverse of `with_pin`.

    Raises
    ------
    InvalidSetting
        What stands for the pin is none: it must not be taken for a part of the token, and nothing be checked.

    Examples
    --------
    >>> token_and_pin("a+b") == ("a+b", "") and token_and_pin(with_pin("a+b", "0f" * 32)) == ("a+b", "0f" * 32)
    True

    """
    token, mark, pin = text.rpartition(_PIN)
    if not mark:
        return text, ""
    if not re.fullmatch("[0-9a-f]{64}", pin):
        raise InvalidSetting(
            f"what follows {_PIN} in {TOKEN_VARIABLE} is no SHA-256 (64 characters of 0-9 and a-f, not {len(pin)}): "
            "copy the whole line that pacehound up has printed"
        )
    return token, pin
