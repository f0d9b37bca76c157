"""Which TCP connections of the ranks have something to say.

The kernel lists connections by inode, a process lists inodes among its descriptors. Reading all descriptors of all
ranks costs more than the list itself, so it is done only when there is a connection that nobody was asked about yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from collector.host.processes import PROC, environment_of
from collector.host.rank_process import RankProcess
from collector.host.vitals import tcp_info
from collector.host.vitals.tcp_info import TcpConnection
from pacehound.model.events import SocketReading

MAX_SOCKETS = 256
"""Told at most, the busiest first: 8 ranks with 32 neighbours each, 60 KB of a message."""
MAX_KNOWN = 1 << 16

_SOCKET = "socket:["

Listing = Callable[[Callable[[int], bool]], list[TcpConnection]]


class Sockets:
    """The connections of the ranks of one host.

    A connection is told when bytes have moved on it, or it was busy, since the last look, and while bytes wait in it:
    one that stands still says nothing. Connections to the store of torch's rendezvous are left out where
    the environment that a rank started with (MASTER_PORT) tells which they are.

    Parameters
    ----------
    proc
        Where /proc is.
    listing
        Gives connections by inode; the kernel's own list unless a test brings another.

    """

    def __init__(self, proc: Path = PROC, listing: Listing = tcp_info.established) -> None:
        self._proc = proc
        self._listing = listing
        self._ranks: frozenset[RankProcess] = frozenset()
        self._owners: dict[int, RankProcess] = {}
        self._foreign: set[int] = set()
        self._store_ports: dict[int, int] = {}
        self._before: dict[int, tuple[int, int, int]] = {}

    def look(self, ranks: Sequence[RankProcess]) -> tuple[SocketReading, ...]:
        """What they say now; nothing where the kernel does not list connections."""
        if frozenset(ranks) != self._ranks:
            self._ranks = frozenset(ranks)
            self._owners.clear()
            self._foreign.clear()
            self._store_ports = {process.pid: _store_port(process.pid, self._proc) for process in ranks}
        if not ranks:
            return ()
        try:
            connections = self._listing(lambda inode: inode not in self._foreign)
        except OSError:
            return ()
        if any(connection.inode not in self._owners for connection in connections):
            self._find_owners([connection.inode for connection in connections])
        mine = [(self._owners[c.inode], c) for c in connections if c.inode in self._owners]
        mine = [(owner, c) for owner, c in mine if self._store_ports[owner.pid] not in (c.local[1], c.remote[1])]
        telling = [
            (owner, c) for owner, c in mine if c.unsent_bytes or self._before.get(c.inode, _NOTHING) != _moved(c)
        ]
        self._before = {c.inode: _moved(c) for _, c in mine}
        telling.sort(key=lambda one: (-(one[1].acked_bytes + one[1].received_bytes), one[1].local, one[1].remote))
        return tuple(_reading(owner, c) for owner, c in telling[:MAX_SOCKETS])

    def _find_owners(self, inodes: list[int]) -> None:
        owned = {inode: process for process in self._ranks for inode in _socket_inodes(process.pid, self._proc)}
        self._owners = {inode: owned[inode] for inode in inodes if inode in owned}
        if len(self._foreign) > MAX_KNOWN:
            self._foreign.clear()
        self._foreign.update(inode for inode in inodes if inode not in owned)


_NOTHING = (0, 0, 0)


def _moved(connection: TcpConnection) -> tuple[int, int, int]:
    return connection.acked_bytes, connection.received_bytes, connection.busy_us


def _reading(owner: RankProcess, connection: TcpConnection) -> SocketReading:
    return SocketReading(
        rank=owner.rank,
        pid=owner.pid,
        local=_text(connection.local),
        remote=_text(connection.remote),
        acked_bytes=connection.acked_bytes,
        received_bytes=connection.received_bytes,
        retransmitted_bytes=connection.retransmitted_bytes,
        busy_us=connection.busy_us,
        unsent_bytes=connection.unsent_bytes,
        rtt_us=connection.rtt_us,
        min_rtt_us=connection.min_rtt_us,
        delivery_bytes_per_s=connection.delivery_bytes_per_s,
    )


def _text(place: tuple[str, int]) -> str:
    """An address and its port, as they are usually written.

    >>> _text(("10.0.0.1", 80)), _text(("fe80::1", 80))
    ('10.0.0.1:80', '[fe80::1]:80')
    """
    address, port = place
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _socket_inodes(pid: int, proc: Path) -> list[int]:
    folder = f"{proc}/{pid}/fd"
    inodes = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue  # closed since
        if target.startswith(_SOCKET):
            inodes.append(int(target[len(_SOCKET) : -1]))
    return inodes


def _store_port(pid: int, proc: Path) -> int:
    """The port of the rendezvous store, as the process was started with it; -1 where that does not tell."""
    for name, value in environment_of(pid, proc):
        if name == b"MASTER_PORT" and value.isdigit():
            return int(value)
    return -1
