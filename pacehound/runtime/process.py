"""One process on Kafka: its clients, its signals, its metrics, and its loop between them."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pacehound.bus.kafka import KafkaConsumer, KafkaProducer
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.clock import Clock, SystemClock
from pacehound.errors import Unavailable
from pacehound.model.topics import Topic
from pacehound.runtime.backoff import Backoff
from pacehound.runtime.event_loop import FIRST_RETRY_S, LONGEST_RETRY_S, EventLoop, Worker
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.metric_names import LAG, PROCESS
from pacehound.runtime.metrics_server import MetricsServer
from pacehound.runtime.phases import Stages
from pacehound.runtime.telemetry import Telemetry
from pacehound.runtime.traces import Traces, make_traces, own_version
from pacehound.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What a process says of itself, and how it is told to end."""

    name: str
    telemetry: Telemetry
    liveness: Liveness
    clock: Clock
    stages: Stages
    traces: Traces
    stopping: threading.Event


@contextmanager
def started(name: str, settings: Settings) -> Iterator[Process]:
    """A process called `name`: metrics, health and traces as the settings say; SIGTERM and SIGINT set `stopping`.

    Raises
    ------
    InvalidSetting
        A setting of `telemetry` does not fit.

    """
    clock = SystemClock()
    telemetry = Telemetry()
    telemetry.set(PROCESS, 1, process=name, version=own_version())
    liveness = Liveness(clock)
    traces = make_traces(name, settings.telemetry.traces_endpoint)
    listen = settings.telemetry.listen
    server = MetricsServer(listen, telemetry, liveness) if listen else None
    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    if server is not None:
        logger.info("%s shows its metrics at port %d", name, server.port)
    try:
        yield Process(
            name=name,
            telemetry=telemetry,
            liveness=liveness,
            clock=clock,
            stages=Stages(telemetry, clock, traces),
            traces=traces,
            stopping=stopping,
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if server is not None:
            server.close()
        traces.close()


def when_available(process: Process, act: Callable[[], None]) -> bool:
    """Do something that needs Kafka, again and again until it works; False when told to stop first."""
    backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
    while not process.stopping.is_set():
        try:
            act()
            process.liveness.mark_alive()
            return True
        except Unavailable as error:
            logger.warning("%s waits for Kafka: %s", process.name, error)
            process.liveness.mark_stuck(str(error))
            process.stopping.wait(backoff.next_s())
    return False


def run_worker(name: str, settings: Settings, topics: list[Topic], make: Callable[[Process], Worker]) -> None:
    """Run a worker on `topics`, in the group `name`, until SIGTERM.

    Parameters
    ----------
    name
        Of the process and of its consumer group.
    settings
        Where Kafka is, and what is shown.
    topics
        What the worker reads.
    make
        The worker. Called once Kafka answers; may ask it things.

    Raises
    ------
    InvalidSetting
        A setting does not fit.
    InvalidInput
        The topics are not as this version needs them.
    Unavailable
        A result cannot be delivered, ever; a new process begins again at what was confirmed.

    """
    with started(name, settings) as process:
        made: list[Worker] = []

        def begin() -> None:
            ensure_topics(settings.kafka, timeout_s=10.0)
            made.append(make(process))

        if not when_available(process, begin):
            return
        producer = KafkaProducer(settings.kafka, name)
        try:
            loop = EventLoop(
                name=name,
                worker=made[0],
                subscribe=lambda on_revoked: KafkaConsumer(
                    settings.kafka, name, topics, on_revoked=on_revoked, on_assigned=made[0].on_assigned
                ),
                producer=producer,
                telemetry=process.telemetry,
                liveness=process.liveness,
                clock=process.clock,
                stages=process.stages,
            )
            process.telemetry.observe(LAG, lambda: float(loop.lag))
            loop.run(process.stopping)
        finally:
            producer.close()
