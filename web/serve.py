"""The page on an address, within a process that has an event loop: a head's, or `pacehound web`."""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from pacehound.errors import InvalidInput
from pacehound.runtime.head.address import Address
from pacehound.runtime.head.certificate import Certificate
from pacehound.runtime.head.connections import HEADERS_WITHIN_S, listen
from web.app import make_page
from web.approving import Approvals
from web.gate import ANSWERING_FILE, Gate, page_token
from web.source import Source

MOST_CONNECTIONS = 256
"""Browsers hold up to seven each."""


@dataclass(slots=True, kw_only=True)
class PageServer:
    """Serves the page until it is stopped.

    Parameters
    ----------
    source
        What it shows.
    folder
        Where its token is kept.
    address
        Where it listens.
    certificate
        What it is served with; `None`: plain HTTP.
    takes_any_port
        Where the port of `address` is taken, any free one is good.
    approvals
        Who may say yes to what waits, by a link; `None`: nobody.

    """

    source: Source
    folder: Path
    address: Address
    certificate: Certificate | None = None
    takes_any_port: bool = False
    approvals: Approvals | None = None
    answers_at: str = field(default="", init=False)
    """Its address for those who may answer what waits, once it listens; empty where nobody may."""
    _runner: web.AppRunner | None = field(default=None, init=False)
    _server: asyncio.Server | None = field(default=None, init=False)

    async def start(self) -> str:
        """Listen; the page's address, with its token behind `#`.

        Raises
        ------
        InvalidInput
            The address cannot be used.

        """
        listener = self._bind()
        port = int(listener.getsockname()[1])
        names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower(), self.address.host.lower()}
        answering = page_token(self.folder, ANSWERING_FILE) if self.approvals is not None else ""
        gate = Gate(page_token(self.folder), port, frozenset(names), answering)
        is_tls = self.certificate is not None
        self._runner = web.AppRunner(
            make_page(self.source, gate, is_tls=is_tls, approvals=self.approvals),
            access_log=None,
            shutdown_timeout=0.5,
            keepalive_timeout=HEADERS_WITHIN_S,
        )
        await self._runner.setup()
        assert self._runner.server is not None
        tls = self.certificate.context if self.certificate is not None else None
        self._server = await listen(self._runner.server, listener, MOST_CONNECTIONS, tls)
        host = socket.gethostname() if self.address.host in ("0.0.0.0", "::") else self.address.host
        url = Address(host, port).url("https" if is_tls else "http")
        self.answers_at = f"{url}/#token={answering}" if answering else ""
        return f"{url}/#token={gate.token}"

    async def stop(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _bind(self) -> socket.socket:
        ports = [self.address.port, *([0] if self.takes_any_port else [])]
        for port in ports:
            family, kind, protocol, _, where = socket.getaddrinfo(
                self.address.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(where)
            except OSError as error:
                listener.close()
                if error.errno == errno.EADDRINUSE and port != ports[-1]:
                    continue
                raise InvalidInput(f"the page cannot listen on {self.address.host}:{port}: {error.strerror}") from error
            listener.listen(128)
            return listener
        raise AssertionError("there is a port to try")
