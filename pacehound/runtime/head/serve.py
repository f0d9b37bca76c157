"""Listens for hosts (OTLP, over a network and over a unix socket) and for commands until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from pacehound.runtime.head.address import Address
from pacehound.runtime.head.certificate import Certificate
from pacehound.runtime.head.connections import HEADERS_WITHIN_S, listen, most_connections, raise_descriptor_limit
from pacehound.runtime.head.exports import Log, Taken
from pacehound.runtime.head.otlp_receiver import make_otlp_app
from pacehound.runtime.head.owner import Owner, Ownership
from pacehound.runtime.head.query_server import Answers, Leases, make_desk
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

# A head that `pacehound run` started and that nobody ever took a lease of has lost its run.
_FIRST_LEASE_S = 30.0
# Between the last lease and the end: a run that only lost its connection comes back.
_LAST_LEASE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Where a head answers, and until when.

    Attributes
    ----------
    address
        For others than this user's agents; `None`: nobody else is heard.
    token
        What they are asked for.
    certificate
        What `address` is served with; `None`: plain HTTP.
    until_released
        End when the last lease has gone.

    """

    address: Address | None
    token: str = ""
    certificate: Certificate | None = None
    until_released: bool = False


class Beside(Protocol):
    """What else is served in this process (the page)."""

    async def start(self) -> str:
        """Listen; its address."""
        ...

    async def stop(self) -> None:
        """Answer nobody any more."""
        ...


async def serve(
    *,
    listeners: Listeners,
    beside: Beside | None = None,
    ownership: Ownership,
    head: Answers,
    log: Log,
    take_logs: Callable[[bytes], Taken],
    take_spans: Callable[[bytes], Taken],
    telemetry: Telemetry,
    on_ready: Callable[[Owner], object],
) -> None:
    """Answer until SIGTERM, SIGINT, a shutdown over the socket, or the end of the last lease."""
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)

    def end_unless_leased() -> None:
        if not len(leases):
            ending.set()

    def last_gone() -> None:
        if listeners.until_released:
            loop.call_later(_LAST_LEASE_S, end_unless_leased)

    leases = Leases(last_gone)
    otlp = web.AppRunner(
        make_otlp_app(
            log=log,
            take_logs=take_logs,
            take_spans=take_spans,
            attempt_for=head.attempt_for,
            commands=head.commands,
            when_told=head.when_told,
            telemetry=telemetry,
            token=listeners.token,
        ),
        access_log=None,
        shutdown_timeout=2.0,
        keepalive_timeout=HEADERS_WITHIN_S,
    )
    await otlp.setup()
    assert otlp.server is not None
    most = most_connections(raise_descriptor_limit())
    own_agents = ownership.listen("otlp.sock")
    listening = [await listen(otlp.server, own_agents, most)]
    url, certificate = "", listeners.certificate
    if listeners.address is not None:
        listener = _bind(listeners.address)
        tls = certificate.context if certificate is not None else None
        listening.append(await listen(otlp.server, listener, most, tls))
        host, port = listener.getsockname()[:2]
        if certificate is not None and not certificate.is_own:
            host = listeners.address.host  # a certificate is made out to a name
        url = Address(host, port).url("http" if certificate is None else "https")
    page = await beside.start() if beside is not None else ""
    commands = ownership.listen("head.sock")
    info: dict[str, Any] = {"url": url, "until_released": listeners.until_released, "page": page}
    queries = web.AppRunner(
        make_desk(head=head, leases=leases, telemetry=telemetry, info=info, shut_down=ending.set),
        access_log=None,
        shutdown_timeout=0.5,
        handler_cancellation=True,  # whoever has gone holds no lease, and waits for no answer
    )
    await queries.setup()
    await web.SockSite(queries, commands).start()
    owner = Owner(
        pid=os.getpid(),
        host=socket.gethostname(),
        socket=commands.getsockname(),
        otlp_socket=own_agents.getsockname(),
        url=url,
        page=page,
        token=listeners.token,
        pin=certificate.pin if certificate is not None else "",
    )
    ownership.announce(owner)
    on_ready(owner)
    if listeners.until_released:
        loop.call_later(_FIRST_LEASE_S, end_unless_leased)
    logger.info("head is ready at %s", url or owner.otlp_socket)
    try:
        await ending.wait()
    finally:
        # The OTLP receiver closes first: an agent that finds it closed keeps what it has.
        for each in listening:
            each.close()
        await otlp.cleanup()
        if beside is not None:
            await beside.stop()
        await queries.cleanup()


def _bind(address: Address) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(where)
    listener.listen(128)
    return listener
