"""`pacehound writer`: the process that writes what is on Kafka into the store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pacehound.bus import Place
from pacehound.bus.kafka import KafkaConsumer, KafkaProducer
from pacehound.bus.kafka_topics import ensure_topics, log_name
from pacehound.model import topics
from pacehound.runtime.priority import give_way
from pacehound.runtime.process import started, when_available
from pacehound.settings import Settings
from storage.client import Store
from storage.service import WriterService

GROUP = "writer"
# The topology stands on `calls` too; rounds and snapshots are the workers' own means.
STORED = (
    topics.CALLS,
    topics.HOSTS,
    topics.OPS,
    topics.ITERATIONS,
    topics.FINDINGS,
    topics.INCIDENTS,
    topics.DECISIONS,
    topics.NOTIFICATIONS,
    topics.COMMANDS,
    topics.RESULTS,
    topics.DEAD_LETTERS,
)


NICENESS = 10
"""Of a writer: on a machine that it shares with the streams a row may come a second later, and a verdict may not."""


def run(settings: Settings, folder: Path) -> None:
    """Write until SIGTERM; to the server of `store.url`, or without one to the embedded store in `folder`.

    Raises
    ------
    InvalidInput
        A setting, a login or the topics are not as they must be.
    StoreOwned
        Another process has the embedded store.

    """

    def open_store() -> Store:
        if settings.store.url:
            return Store.connect(settings.store.url, settings.store.user, settings.store.password)
        return Store.open(folder)

    give_way(NICENESS)
    with started(GROUP, settings) as process:
        log: list[str] = []

        def begin() -> None:
            ensure_topics(settings.kafka, timeout_s=10.0)
            log.append(log_name(settings.kafka, timeout_s=10.0))

        if not when_available(process, begin):
            return
        producer = KafkaProducer(settings.kafka, GROUP)
        consumers: list[KafkaConsumer] = []

        def subscribe(on_revoked: Callable[[list[Place]], None]) -> KafkaConsumer:
            consumers.append(KafkaConsumer(settings.kafka, GROUP, STORED, on_revoked=on_revoked))
            return consumers[0]

        service = WriterService(
            open_store=open_store,
            subscribe=subscribe,
            letters=producer,
            settings=settings.store,
            log=log[-1],
            telemetry=process.telemetry,
            clock=process.clock,
        )
        try:
            while not process.stopping.is_set():
                service.step(0.2)
                process.liveness.mark_alive()
            service.finish()
        finally:
            service.close()
            for consumer in consumers:
                consumer.close()
            producer.close()
