"""Where a ClickHouse server is, and who logs in there; pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from pacehound.errors import InvalidInput

DATABASE = "pacehound"
DEFAULT_USER = "default"

_PORTS = {"http": 8123, "https": 8443}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server answers HTTP, the database behind it, and a login."""

    scheme: str
    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)

    @property
    def place(self) -> str:
        """For messages: it never holds the password.

        >>> server_address("https://me:secret@ch.example").place
        'ch.example:8443'
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def server_address(url: str, user: str = "", password: str = "") -> ServerAddress:
    """Read `http(s)://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`.

    Parameters
    ----------
    url
        What stands in it wins over the other two. The path is the database, `pacehound` without one.
    user, password
        Where the URL has none.

    Raises
    ------
    InvalidInput
        It is no such URL; the message does not repeat a password.

    Examples
    --------
    >>> server_address("http://127.0.0.1", user="writer")
    ServerAddress(scheme='http', host='127.0.0.1', port=8123, database='pacehound', user='writer')

    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"store.url cannot be read: {error}; write http://HOST:8123 or https://HOST:8443") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise InvalidInput(
            f"store.url has {f'the scheme {parts.scheme!r}' if parts.hostname else 'no host'};"
            " write http://HOST:8123 or https://HOST:8443 (ClickHouse's HTTP port, not its native one)"
        )
    database = parts.path.strip("/") or DATABASE
    if not re.fullmatch(r"[A-Za-z_]\w*", database) or parts.query or parts.fragment:
        raise InvalidInput("after the host, store.url may have the name of a database and nothing else")
    return ServerAddress(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or _PORTS[parts.scheme],
        database=database,
        user=unquote(parts.username) if parts.username else user or DEFAULT_USER,
        password=unquote(parts.password) if parts.password is not None else password,
    )
