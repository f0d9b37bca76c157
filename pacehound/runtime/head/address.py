"""Where a head listens, and whether strangers can reach it there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from pacehound.errors import InvalidInput

OTLP_PORT = 4318
PAGE_PORT = 4319


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address, and a port (0: any free one)."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Only processes of this machine can reach it. A name other than `localhost` counts as reachable."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def url(self, scheme: str) -> str:
        """The base URL of an OTLP exporter that sends here."""
        return f"{scheme}://[{self.host}]:{self.port}" if ":" in self.host else f"{scheme}://{self.host}:{self.port}"


def parse_address(text: str, *, option: str = "--listen", port: int = OTLP_PORT) -> Address:
    """`HOST`, `HOST:PORT`, `:PORT`, `[IPv6]` or `[IPv6]:PORT`; `port` where none is said.

    Raises
    ------
    InvalidInput
        The text is none of these.

    Examples
    --------
    >>> parse_address("0.0.0.0"), parse_address("[::1]:9")
    (Address(host='0.0.0.0', port=4318), Address(host='::1', port=9))

    """
    host, port_text = text, str(port)
    if text.startswith("["):
        host, closing, rest = text[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")):
            raise InvalidInput(f"{option} {text!r}: write an IPv6 address as [::1]:{port}")
        port_text = rest[1:] or port_text
    elif text.count(":") == 1:
        host, _, port_text = text.partition(":")
    if not port_text.isdecimal() or int(port_text) > 65535:
        raise InvalidInput(f"{option} {text!r}: {port_text!r} is no port (0 to 65535)")
    return Address(host or "0.0.0.0", int(port_text))
