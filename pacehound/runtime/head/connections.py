"""How many senders a head hears at once, and how long it waits for a slow one.

Each connection takes a file descriptor, and the store in the same process needs some to write at all.
"""

from __future__ import annotations

import asyncio
import resource
import socket

from aiohttp import web

MOST_CONNECTIONS = 4_096
"""An agent keeps one: more hosts than one process can watch, in 0.2 GiB of buffers."""

HEADERS_WITHIN_S = 30.0
"""So long a connection may be silent, or dribble headers. Agents speak every second and open a new one at will."""

BODY_WITHIN_S = 30.0
"""Whoever waits for an answer, OpenTelemetry's exporters and our agents, has given up after 10 s."""

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


async def listen(server: web.Server, listener: socket.socket, most: int) -> asyncio.Server:
    """Serve those who connect to `listener`, `most` of them at once; the next one is told to come again later."""
    # asyncio accepts as many at a time as may wait, and where no descriptor is left it fails, logs and tries again that
    # many times over: so one at a time, and then as many may wait.
    listening = await asyncio.get_running_loop().create_server(
        lambda: _Admission(server, most), sock=listener, backlog=1
    )
    listener.listen(_WAITING)
    return listening


class _Admission(asyncio.Protocol):
    """Hands a new connection to the server, or turns it away."""

    def __init__(self, server: web.Server, most: int) -> None:
        self._server = server
        self._most = most

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody has connected."""
        assert isinstance(transport, asyncio.Transport)
        if len(self._server.connections) >= self._most:
            transport.write(_TOO_MANY)
            transport.close()
            return
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
