"""Where all packages meet: the real parts of a head.

This module, `pacehound.history` and the commands are the only ones that may import the siblings, and they do so where
they need them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pacehound.bus import Message
from pacehound.bus.recording import RecordingWriter
from pacehound.errors import RejectedMessage, StoreOwned
from pacehound.model.events import DeadLetter, Decision, EarlierRun, Incident
from pacehound.runtime.head.attempts import FILE_NAME, AttemptsFile
from pacehound.runtime.head.known_topology import Introductions
from pacehound.runtime.head.node import Head, Receipt
from pacehound.runtime.head.owner import OWNER_LEAVES_WITHIN_S, Owner, Ownership
from pacehound.runtime.head.parts import Parts
from pacehound.runtime.head.serve import Doors, serve
from pacehound.settings import Settings

logger = logging.getLogger(__name__)


class SiblingStore:
    """The store of the `storage` package, as a head sees it."""

    def __init__(self, folder: Path) -> None:
        from storage.client import Store
        from storage.writer import Writer

        self._store = Store.open(folder)
        self._writer = Writer(self._store)

    def write(self, messages: Sequence[Message]) -> Sequence[DeadLetter]:
        """Take these messages and return what of them does not fit."""
        letters: Sequence[DeadLetter] = self._writer.write(messages).dead_letters
        return letters

    def incidents(self, job: str | None = None) -> list[Incident]:
        """The latest version of each incident."""
        from storage.read import incidents

        return list(incidents(self._store, job))

    def decisions(self) -> list[Decision]:
        """Every decision, taken or not."""
        from storage.read import decisions

        return list(decisions(self._store))

    def last_attempt(self, job: str) -> int | None:
        """The highest attempt of `job` that has anything stored; `None` when the job is not known."""
        from storage.read import last_attempt

        attempt: int | None = last_attempt(self._store, job)
        return attempt

    def earlier_runs(self, job: str, before_attempt: int) -> list[EarlierRun]:
        """What the runs of `job` before this attempt did."""
        from storage.read import earlier_runs

        return list(earlier_runs(self._store, job, before_attempt))

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> pa.Table:
        """Rows of a reading statement."""
        return self._store.query(sql, dict(params or {}))

    def notifications(self) -> Any:
        """Who was told of what (`alerts.app.Ledger`)."""
        from storage.notifications import NotificationLog

        return NotificationLog(self._store)

    def close(self) -> None:
        """Give the store back."""
        self._store.close()


def open_parts(settings: Settings, folder: Path) -> Parts:
    """The real parts, with their store in `folder`."""
    from actuators.app import Actuators
    from alerts.app import make_alerts
    from streams.level.level_series import warm_up
    from streams.pipeline import Pipeline
    from streams.whatif import warm

    # Half a minute where nobody has compiled them yet: it must not begin with the first job's first iteration.
    threading.Thread(target=warm_up, name="warm-up", daemon=True).start()
    if settings.ops.every_steps:
        threading.Thread(target=warm.warm_up, name="warm-up-what-if", daemon=True).start()
    store = SiblingStore(folder)
    try:
        actuators = Actuators(decided=store.decisions())
        alerts = make_alerts(settings.alerts, store.notifications())
        if alerts is not None:
            alerts.catch_up(store.incidents())
            alerts.start()
        return Parts(
            pipeline=Pipeline(settings),
            store=store,
            decide=actuators.on_incident,
            alert=alerts.on_incident if alerts is not None else _tell_nobody,
            close=alerts.close if alerts is not None else _nothing_to_close,
        )
    except BaseException:
        store.close()
        raise


def _tell_nobody(incident: Incident) -> None:
    """No webhook is set."""


def _nothing_to_close() -> None:
    """Nobody is being told."""


def span_door(head: Head) -> Callable[[bytes], Receipt]:
    """The door for spans of other producers: they become calls."""
    from pacehound.bus.otlp_spans import SpanReader

    reader = SpanReader()

    def take(body: bytes) -> Receipt:
        try:
            found = reader.read(body)
        except RejectedMessage as error:
            head.reject(body, error)
            raise
        head.publish(found.batches)
        for refused in found.refused:
            head.reject(refused.message, refused.error)
        return Receipt(
            accepted=sum(map(len, found.batches)),
            rejected=len(found.refused),
            reason="; ".join(f"{type(r.error).__name__}: {r.error}" for r in found.refused[:3]),
        )

    return take


def run_head(
    *,
    settings: Settings,
    folder: Path,
    doors: Doors,
    recording: RecordingWriter | None,
    on_ready: Callable[[Owner], object],
    parts: Callable[[Settings, Path], Parts] = open_parts,
) -> None:
    """Own the store in `folder` and answer until told to end.

    Raises
    ------
    StoreOwned
        Another process has the store.

    """
    ownership = Ownership(folder)
    try:
        head = Head(
            settings=settings,
            parts=_when_asked_enough(lambda: parts(settings, folder)),
            introductions=Introductions(folder / "topology.rec"),
            attempts_file=AttemptsFile(folder / FILE_NAME),
            recording=recording,
        )
        head.start()
        try:
            asyncio.run(
                serve(
                    doors=doors,
                    ownership=ownership,
                    head=head,
                    log=head,
                    take_logs=head.ingest,
                    take_spans=span_door(head),
                    telemetry=head.telemetry,
                    on_ready=on_ready,
                )
            )
        finally:
            if not head.stop():
                logger.error("the head ended before everything was stored")
    finally:
        ownership.release()


def _when_asked_enough(open_all: Callable[[], Parts]) -> Parts:
    """Open the store as soon as whoever reads it now (`pacehound sql`, beside no head) has its answer."""
    deadline_s = time.monotonic() + OWNER_LEAVES_WITHIN_S
    while True:
        try:
            return open_all()
        except StoreOwned:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(0.2)


def listener_of(descriptor: int | None) -> socket.socket | None:
    """The listening socket that a parent handed over."""
    return None if descriptor is None else socket.socket(fileno=descriptor)
