"""How an agent learns that its `pacehound run` is gone without a word (kill -9), and why the watch goes on; or has one.

The command runs on then, and its job is worth as much as before. Nobody starts helpers again any more, but those that
are there can do their work: the agent watches while the command or a rank is there, and holds the head open meanwhile.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from pacehound.errors import Unavailable
from pacehound.runtime.head.client import HeadClient
from pacehound.runtime.head.owner import announced

LOOK_EVERY_S = 0.2
"""A head ends half a second after its last lease."""


class Lifeline:
    """Follows the other end of a pipe, in a thread of its own, until this process ends.

    Parameters
    ----------
    descriptor
        It reads as ended when `pacehound run` is gone. What can be read there says that it has written something down.
    store
        The store whose head takes what this agent sends; `None`: it sends elsewhere.
    job
        For whom the head is held open.

    """

    def __init__(self, descriptor: int, store: Path | None, job: str) -> None:
        self._descriptor, self._store, self._job = descriptor, store, job
        self._gone = threading.Event()
        self._when_called: Callable[[], object] = lambda: None
        self._lease: socket.socket | None = None
        threading.Thread(target=self._follow, name="lifeline", daemon=True).start()

    def is_gone(self) -> bool:
        """Whether it has left."""
        return self._gone.is_set()

    def when_called(self, call: Callable[[], object]) -> None:
        """Have this called, by the thread, when `pacehound run` says something or is gone."""
        self._when_called = call
        if self._gone.is_set():
            call()

    def _follow(self) -> None:
        while True:
            if self._store is not None and self._lease is None:
                self._take_lease(self._store)
            watched: list[int | socket.socket] = [] if self._gone.is_set() else [self._descriptor]
            if self._lease is not None:
                watched.append(self._lease)
            waits_for_head = self._store is not None and self._lease is None
            readable, _, _ = select.select(watched, [], [], LOOK_EVERY_S if waits_for_head else None)
            if self._descriptor in readable:
                if not _read(self._descriptor):
                    self._gone.set()
                self._when_called()
            if self._lease in readable and self._lease is not None and not _receive(self._lease):
                self._lease.close()
                self._lease = None

    def _take_lease(self, store: Path) -> None:
        owner = announced(store)
        if owner is not None:
            try:
                self._lease = HeadClient(Path(owner.socket), timeout_s=2.0).lease(self._job)
            except Unavailable:
                pass  # it is beginning, or ending: the launcher sees to it, while it is there


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1)
    except OSError:
        return b""


def _receive(lease: socket.socket) -> bytes:
    try:
        return lease.recv(4096)
    except OSError:
        return b""
