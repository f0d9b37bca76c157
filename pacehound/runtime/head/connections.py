"""How many senders a head hears at once, and how long it waits for a slow one.

Each connection takes a file descriptor, and the store in the same process needs some to write at all.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl

from aiohttp import web

MOST_CONNECTIONS = 4_096
"""An agent keeps one: more hosts than one process can watch, in 0.2 GiB of buffers."""

HEADERS_WITHIN_S = 30.0
"""So long a connection may be silent, or dribble headers. Agents speak every second and open a new one at will."""

BODY_WITHIN_S = 30.0
"""Whoever waits for an answer, OpenTelemetry's exporters and our agents, has given up after 10 s."""

HANDSHAKE_WITHIN_S = 10.0
"""TLS takes two round trips to begin, and two to end: whoever is silent in them has gone."""

_SHARE = 2
_WAITING = 128
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def raise_descriptor_limit() -> int:
    """Let this process open as many files as it may; how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def most_connections(descriptors: int) -> int:
    """How many connections a process that may open so many files takes (`RLIM_INFINITY` is below zero).

    >>> most_connections(256), most_connections(1 << 20)
    (128, 4096)
    """
    return MOST_CONNECTIONS if descriptors < 0 else min(MOST_CONNECTIONS, descriptors // _SHARE)


async def listen(
    server: web.Server, listener: socket.socket, most: int, tls: ssl.SSLContext | None = None
) -> asyncio.Server:
    """Serve those who connect to `listener`, `most` of them at once; the next one is told to come again later."""
    begun: set[asyncio.Task[None]] = set()
    # asyncio accepts as many at a time as may wait, and where no descriptor is left it fails, logs and tries again that
    # many times over: so one at a time, and then as many may wait.
    listening = await asyncio.get_running_loop().create_server(
        lambda: _Admission(server, most, tls, begun), sock=listener, backlog=1
    )
    listener.listen(_WAITING)
    return listening


class _Admission(asyncio.Protocol):
    """Hands a new connection to the server, or turns it away.

    Not by `create_server(ssl=…)`: that says nothing of a connection before its handshake, and silent ones would take
    every descriptor.
    """

    def __init__(
        self, server: web.Server, most: int, tls: ssl.SSLContext | None, begun: set[asyncio.Task[None]]
    ) -> None:
        self._server = server
        self._most = most
        self._tls = tls
        self._begun = begun

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        assert isinstance(transport, asyncio.Transport)
        if len(self._server.connections) + len(self._begun) >= self._most:
            if self._tls is None:
                transport.write(_TOO_MANY)
            transport.close()
        elif self._tls is None:
            self._admit(transport)
        else:
            handshake = asyncio.get_running_loop().create_task(self._secure(transport, self._tls))
            self._begun.add(handshake)
            handshake.add_done_callback(self._begun.discard)

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        early = _Early()
        try:
            secured = await asyncio.get_running_loop().start_tls(
                transport,
                early,
                tls,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
                ssl_shutdown_timeout=HANDSHAKE_WITHIN_S,
            )
        except OSError:
            return  # it speaks no TLS, does not trust us, is silent, or has left: its connection is closed
        if secured is not None and not early.is_over:
            self._admit(secured, early.received)

    def _admit(self, transport: asyncio.Transport, received: bytes = b"") -> None:
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if received:
            protocol.data_received(received)


class _Early(asyncio.Protocol):
    """Keeps what came in one packet with the end of a handshake, before anybody is told that it has ended."""

    def __init__(self) -> None:
        self.received = b""
        self.is_over = False

    def data_received(self, data: bytes) -> None:
        """The begin of a request."""
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        """There is nobody to be answered."""
        self.is_over = True
