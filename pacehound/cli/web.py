"""`pacehound web`: the page of a history that nobody watches into just now, or of a ClickHouse server."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import log_to_stderr, page_option, say, set_option, store_option
from pacehound.settings import Settings

if TYPE_CHECKING:
    from web.approving import Approvals
    from web.serve import PageServer

_ALIVE_S = 5.0


@click.command()
@page_option
@store_option
@set_option
def web(page: str | None, store: Path, overrides: tuple[str, ...]) -> None:
    """Serve the page over a history: of a folder, or of the server of `store.url`.

    A head (`up`, and `run` without an endpoint) serves the page of its own store by itself. The printed address opens
    the page; whoever has it reads everything that the history says.
    """
    import asyncio

    from pacehound.cli.history import OpenedHistory, history
    from pacehound.cli.page_address import page_at
    from web.serve import PageServer
    from web.source import Source

    log_to_stderr()
    settings = Settings.load(os.environ, overrides)
    if settings.store.url:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)  # for the page's token
    where = page_at(page, settings, store)
    with history(store, settings.store) as answers:
        server = PageServer(
            source=Source(answers, is_watched=not isinstance(answers, OpenedHistory) or answers.is_watched),
            folder=store,
            address=where.address,
            certificate=where.certificate,
            takes_any_port=where.takes_any_port,
            approvals=_approvals(settings, store),
        )
        asyncio.run(_serve(server, settings.telemetry.listen))


def _approvals(settings: Settings, store: Path) -> Approvals | None:
    """On Kafka: links to decisions, made with the key that the alerts have, are answered here."""
    if not (settings.kafka.servers and settings.actuators.approval_key):
        return None
    from actuators.control.controlled_job import ControlledJob
    from pacehound.bus.kafka_commands import KafkaControl
    from pacehound.bus.signing import signer_of
    from pacehound.model.orders import Answer
    from web.approving import Approvals

    signer = signer_of(store)

    def give(job: str, answer: Answer) -> None:
        with contextlib.closing(KafkaControl(settings.kafka, job)) as control:
            ControlledJob(control, signer, job, "an answer by a link").order(answer, time.time_ns())

    return Approvals(key=settings.actuators.approval_key, give=give)


async def _serve(server: PageServer, listen: str) -> None:
    import asyncio
    import signal

    from pacehound.clock import SystemClock
    from pacehound.runtime.liveness import Liveness
    from pacehound.runtime.metric_names import PROCESS
    from pacehound.runtime.metrics_server import MetricsServer
    from pacehound.runtime.telemetry import Telemetry
    from pacehound.runtime.traces import own_version

    ending = asyncio.Event()
    telemetry, liveness = Telemetry(), Liveness(SystemClock())
    telemetry.set(PROCESS, 1, process="page", version=own_version())
    metrics = MetricsServer(listen, telemetry, liveness) if listen else None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    say(f"pacehound: the page: {await server.start()}", err=True)
    if server.answers_at:
        say(f"pacehound: for those who may answer what waits: {server.answers_at}", err=True)
    try:
        while not ending.is_set():
            liveness.mark_alive()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), _ALIVE_S)
    finally:
        await server.stop()
        if metrics is not None:
            metrics.close()
