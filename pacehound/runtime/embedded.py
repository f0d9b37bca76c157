"""Where all packages meet: the real parts of a head.

This module and the commands are the only ones that may import the siblings, and they do so where
they need them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pacehound.bus.control import HeadWire
from pacehound.bus.recording import RecordingWriter
from pacehound.bus.signing import signer_of
from pacehound.clock import Clock, SystemClock
from pacehound.errors import RejectedMessage, StoreOwned, Unavailable
from pacehound.model import topics
from pacehound.model.events import Decision, EarlierRun, Incident, Notification, UsualRounds
from pacehound.model.orders import Answer
from pacehound.runtime.event_loop import Worker
from pacehound.runtime.head.address import Address
from pacehound.runtime.head.attempts import FILE_NAME, AttemptsFile
from pacehound.runtime.head.certificate import Certificate
from pacehound.runtime.head.intake import IngestResult, why
from pacehound.runtime.head.keeper import FOLDER as STATE_FOLDER
from pacehound.runtime.head.known_topology import KnownTopology
from pacehound.runtime.head.node import Head
from pacehound.runtime.head.owner import OWNER_LEAVES_WITHIN_S, Owner, Ownership
from pacehound.runtime.head.parts import Parts, Tracer
from pacehound.runtime.head.serve import Beside, Listeners, serve
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings, TraceSettings

if TYPE_CHECKING:
    from actuators.attendant import Attendant
    from actuators.recovering import Asks
    from actuators.worker import Recovery

logger = logging.getLogger(__name__)


class SiblingStore:
    """The store of the `storage` package, as a head sees it."""

    def __init__(self, folder: Path) -> None:
        from storage.client import Store

        self._store = Store.open(folder)

    def worker(self, clock: Clock) -> Worker:
        """Who writes it."""
        from storage.worker import StoreWorker

        return StoreWorker(self._store, clock)

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

    def usual_rounds(self) -> list[UsualRounds]:
        """What rounds of each kind take in the fleet."""
        from storage.read import usual_rounds

        return list(usual_rounds(self._store))

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's own named queries."""
        from storage.read import ask

        return ask(self._store, name, **parameters)

    def answer(self, sql: str) -> pa.Table:
        """Rows of a statement that reads the history and nothing else."""
        return self._store.answer(sql)

    def told(self) -> list[Notification]:
        """Who has been told of what."""
        from storage.read import told

        return list(told(self._store))

    def close(self) -> bool:
        """Give the store back; False where a question goes on all the same."""
        return bool(self._store.close())


def open_parts(
    settings: Settings, folder: Path, telemetry: Telemetry, problems: Callable[[], list[str]] = list
) -> Parts:
    """The real parts, with their store in `folder`; `problems` is what a heartbeat is withheld for."""
    from streams import native_loops
    from streams.pipeline import Pipeline

    native_loops.loaded()  # where they cannot be built, no job shall find that out
    store = SiblingStore(folder)
    clock = SystemClock()
    try:
        decided = store.decisions()
        pipeline = Pipeline(settings)
        alerts = _alerts(settings, folder, store, telemetry, clock, problems)
        return Parts(
            pipeline=pipeline,
            keepable=pipeline,
            store=store,
            writer=store.worker(clock),
            late_writer=store.worker(clock),
            actuators=lambda wire: _actuators(settings, folder, clock, wire, decided),
            alerts=alerts,
            traces=_traces(settings.traces, clock, telemetry),
        )
    except BaseException:
        store.close()
        raise


def _traces(settings: TraceSettings, clock: Clock, telemetry: Telemetry) -> Tracer | None:
    """Who sends rounds as traces; nobody, where no receiver is set."""
    if not settings.endpoint:
        return None
    from pacehound.runtime.job_traces import worker_of

    return worker_of(settings, clock, telemetry)


def _actuators(settings: Settings, folder: Path, clock: Clock, wire: HeadWire, decided: list[Decision]) -> Worker:
    """Who decides, and goes on with the restarts of a head that was killed."""
    from actuators.deciders import survivors_by
    from actuators.worker import ActuatorWorker

    worker = ActuatorWorker(
        lambda _: decided,
        _attendant(settings, folder, clock, wire),
        _recovery(settings, wire),
        lambda _: decided,
        survivors_by(settings, signer_of(folder), clock, wire, _asks(wire)),
    )
    worker.on_assigned([(topics.INCIDENTS.name, partition) for partition in range(topics.INCIDENTS.partitions)])
    return worker


def _asks(wire: HeadWire) -> Asks:
    return lambda name, parameters: wire.ask(name, parameters).to_pylist()


def _recovery(settings: Settings, wire: HeadWire) -> Recovery:
    """Who prices plans for a job that has lost ranks, by the failures that the store has seen."""
    from actuators.recovering import recovery_by

    return recovery_by(settings.recovery, _asks(wire))


def _attendant(settings: Settings, folder: Path, clock: Clock, wire: HeadWire) -> Attendant | None:
    """Who gives orders by itself; nobody, in mode `observe`."""
    from actuators.attendant import Attendant
    from actuators.deciders import rules_of
    from actuators.job_prices import JobPrices
    from actuators.site_folder import NAME as SITE
    from actuators.site_folder import SiteFolder

    signer = signer_of(folder)
    rules = rules_of(settings.actuators, signer.key, SiteFolder(folder / SITE))
    if not rules.modes.acts:
        return None

    prices = JobPrices(_asks(wire), clock)
    return Attendant(signer, clock, lambda job: contextlib.nullcontext(wire), replace(rules, measured=prices))


def _alerts(
    settings: Settings,
    folder: Path,
    store: SiblingStore,
    telemetry: Telemetry,
    clock: Clock,
    problems: Callable[[], list[str]],
) -> Worker | None:
    """Who tells people, and what former heads could not tell; nobody, where no receiver is set."""
    if not settings.alerts.tells_somebody:
        return None
    from alerts.service import worker_of
    from alerts.worker import Past

    # Read before anything of this head is stored: the versions that come on its bus are news.
    past = [Past(incidents=[(one, 0) for one in store.incidents()], notifications=store.told())]
    worker = worker_of(
        settings.alerts,
        lambda partitions: past.pop() if past else Past(),
        problems,
        clock,
        telemetry,
        _approval_key(settings, folder),
    )
    worker.on_assigned([(topics.INCIDENTS.name, partition) for partition in range(topics.INCIDENTS.partitions)])
    return worker


def span_receiver(head: Head) -> Callable[[bytes], IngestResult]:
    """The receiver of spans of other producers: they become calls."""
    from pacehound.bus.otlp_spans import SpanReader

    reader = SpanReader()

    def take(body: bytes) -> IngestResult:
        try:
            found = reader.read(body)
        except RejectedMessage as error:
            head.reject(body, error)
            raise
        head.publish(found.batches)
        for refused in found.refused:
            head.reject(refused.message, refused.error, refused.n_spans)
        return IngestResult(
            accepted=sum(map(len, found.batches)),
            rejected=sum(refused.n_spans for refused in found.refused),
            reason="; ".join(why(refused.error) for refused in found.refused),
        )

    return take


def run_head(
    *,
    settings: Settings,
    folder: Path,
    listeners: Listeners,
    page: Page | None = None,
    recording: RecordingWriter | None,
    on_ready: Callable[[Owner], object],
) -> None:
    """Own the store in `folder` and answer until told to end.

    Raises
    ------
    StoreOwned
        Another process has the store.
    Unavailable
        It has ended, and not everything that had arrived is stored.

    """
    ownership = Ownership(folder)
    telemetry = Telemetry()
    heads: list[Head] = []

    def problems() -> list[str]:
        return [problem for head in heads for problem in head.health().problems]

    try:
        head = Head(
            settings=settings,
            parts=_when_asked_enough(lambda: open_parts(settings, folder, telemetry, problems)),
            telemetry=telemetry,
            known_topology=KnownTopology(folder / "topology.rec"),
            attempts_file=AttemptsFile(folder / FILE_NAME),
            state=folder / STATE_FOLDER,
            recording=recording,
        )
        heads.append(head)
        signer_of(folder)  # its own agents obey whoever has it
        head.start()
        try:
            asyncio.run(
                serve(
                    listeners=listeners,
                    beside=_page_server(page, head, settings, folder) if page is not None else None,
                    ownership=ownership,
                    head=head,
                    log=head,
                    take_logs=head.ingest,
                    take_spans=span_receiver(head),
                    telemetry=head.telemetry,
                    on_ready=on_ready,
                )
            )
        finally:
            head.stop()
    finally:
        ownership.release()
    health = head.health()
    lost = f"the head ended before everything was stored: {health.not_stored_messages} messages are in no store"
    if not head.is_quiet:
        logger.warning("a question goes on that the engine cannot break off: this process ends in the middle of it")
        if health.not_stored_messages:
            logger.error(lost)
        logging.shutdown()
        os._exit(1 if health.not_stored_messages else 0)  # an ordinary end would wait for the answer
    if health.not_stored_messages:
        raise Unavailable("; ".join((lost, *health.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where the page of a head is served.

    Attributes
    ----------
    address
        Where it listens.
    certificate
        What it is served with; `None`: plain HTTP.
    takes_any_port
        Where the port is taken, any free one is good.

    """

    address: Address
    certificate: Certificate | None = None
    takes_any_port: bool = False


def _approval_key(settings: Settings, folder: Path) -> str:
    """What links to decisions are made with."""
    return settings.actuators.approval_key or signer_of(folder).derived("links to decisions that wait")


def _page_server(page: Page, head: Head, settings: Settings, folder: Path) -> Beside:
    from actuators.control.controlled_job import ControlledJob
    from web.approving import Approvals
    from web.serve import PageServer
    from web.source import Source

    def give(job: str, answer: Answer) -> None:
        ControlledJob(head, signer_of(folder), job, "an answer by a link").order(answer, time.time_ns())

    return PageServer(
        source=Source(head),
        folder=folder,
        address=page.address,
        certificate=page.certificate,
        takes_any_port=page.takes_any_port,
        approvals=Approvals(key=_approval_key(settings, folder), give=give),
    )


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
