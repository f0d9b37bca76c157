"""Sends to whichever head has a store of this machine open, over its socket: no port, and no token to be shown."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from pacehound.bus.otlp import OtlpProducer, Polled, SendResult
from pacehound.errors import Unavailable
from pacehound.runtime.head.owner import announced

HEAD_WITHIN_S = 10.0
"""A head that begins with its run, or is started again, is waited for as long as its answers are."""
_LOOK_EVERY_S = 0.05


class StoreSender:
    """The head may be another one each time; it is looked for where it announces itself, beside the store.

    Parameters
    ----------
    store
        The store's folder.
    head_within_s
        So long a message waits for a head.

    """

    def __init__(self, store: Path, head_within_s: float = HEAD_WITHIN_S) -> None:
        self._store = store
        self._head_within_s = head_within_s
        self._producer: OtlpProducer | None = None

    def send(self, messages: Sequence[bytes]) -> SendResult:
        """Send messages, in order, in one request; errors as in `OtlpProducer.send`."""
        if self._producer is None:
            self._producer = self._found()
        try:
            return self._producer.send(messages)
        except Unavailable:
            self.close()  # the next head may have another socket
            raise

    def commands(self, job: str, after: int, wait_s: float = 0.0) -> Polled:
        """What a controller has to say; errors as in `OtlpProducer.commands`."""
        if self._producer is None:
            self._producer = self._found()
        try:
            return self._producer.commands(job, after, wait_s)
        except Unavailable:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the connection."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _found(self) -> OtlpProducer:
        deadline_s = time.monotonic() + self._head_within_s
        while (owner := announced(self._store)) is None or not _answers(owner.otlp_socket):
            if time.monotonic() >= deadline_s:
                raise Unavailable(f"no head has the store {self._store} open")
            time.sleep(_LOOK_EVERY_S)
        # Nothing is encrypted on a socket, so that no CA need be read.
        transport = httpx.HTTPTransport(uds=owner.otlp_socket, verify=False)
        return OtlpProducer("http://head", transport=transport, packs=False)


def _answers(path: str) -> bool:
    """Whether somebody listens; a head that was killed leaves its socket, and what it had announced."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
