"""Opens both doors of a head and keeps them open until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from pacehound.runtime.head.address import Address
from pacehound.runtime.head.otlp_receiver import Log, Taken, make_door
from pacehound.runtime.head.owner import Owner, Ownership
from pacehound.runtime.head.query_server import Answers, Leases, make_desk
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

# A head that `pacehound run` started and that nobody ever took a lease of has lost its run.
_FIRST_LEASE_S = 30.0
# Between the last lease and the end: a run that only lost its connection comes back.
_LAST_LEASE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """Where a head answers, and until when.

    Attributes
    ----------
    listener
        A socket that listens already (handed over by whoever started the head); else `address` is bound.
    token
        Asked for at the OTLP door; empty: nobody is asked.
    until_released
        End when the last lease has gone.

    """

    address: Address
    listener: socket.socket | None = None
    token: str = ""
    until_released: bool = False


async def serve(
    *,
    doors: Doors,
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
        if doors.until_released:
            loop.call_later(_LAST_LEASE_S, end_unless_leased)

    leases = Leases(last_gone)
    door = web.AppRunner(
        make_door(
            log=log,
            take_logs=take_logs,
            take_spans=take_spans,
            attempt_for=head.attempt_for,
            telemetry=telemetry,
            token=doors.token,
        ),
        access_log=None,
        shutdown_timeout=2.0,
    )
    await door.setup()
    listener = doors.listener or _bind(doors.address)
    await web.SockSite(door, listener).start()
    host, port = listener.getsockname()[:2]
    url = Address(host, port).url()

    socket_path = ownership.socket_path()
    info: dict[str, Any] = {"url": url, "until_released": doors.until_released}
    desk = web.AppRunner(
        make_desk(head=head, leases=leases, telemetry=telemetry, info=info, shut_down=ending.set),
        access_log=None,
        shutdown_timeout=0.5,
    )
    await desk.setup()
    before = os.umask(0o177)
    try:
        await web.UnixSite(desk, str(socket_path)).start()
    finally:
        os.umask(before)
    owner = Owner(pid=os.getpid(), host=socket.gethostname(), socket=str(socket_path), url=url, token=doors.token)
    ownership.announce(owner)
    on_ready(owner)
    if doors.until_released:
        loop.call_later(_FIRST_LEASE_S, end_unless_leased)
    logger.info("head is ready at %s", url)
    try:
        await ending.wait()
    finally:
        # The OTLP door closes first: an agent that finds it closed keeps what it has.
        await door.cleanup()
        await desk.cleanup()


def _bind(address: Address) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(where)
    listener.listen(128)
    return listener
