"""`pacehound alerts`: the process that tells people, on Kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from alerts.notice import Sink
from alerts.rules import untold
from alerts.sinks.alertmanager import Alertmanager
from alerts.sinks.several import Several
from alerts.sinks.webhook import Webhook
from alerts.worker import AlertWorker
from pacehound.bus import Message
from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_reader import begin_at, read_to_end, starts_and_ends
from pacehound.errors import InvalidSetting, RejectedMessage
from pacehound.model import codec
from pacehound.model.events import Incident, Notification
from pacehound.model.routing import route
from pacehound.model.topics import INCIDENTS, NOTIFICATIONS
from pacehound.runtime.dead_letter import dead_letter_of
from pacehound.runtime.event_loop import FLUSH_S
from pacehound.runtime.process import Process, run_worker
from pacehound.settings import AlertSettings, KafkaSettings, Settings

logger = logging.getLogger(__name__)

GROUP = "alerts"


def run(settings: Settings) -> None:
    """Tell the receivers of the settings of incidents until SIGTERM.

    Raises
    ------
    InvalidSetting
        There is nobody to tell, or a setting does not fit.
    Unavailable
        What was told cannot be noted, ever.

    """
    sink = sink_of(settings.alerts)

    def make(process: Process) -> AlertWorker:
        worker = AlertWorker(
            sink, lambda partition: told_on(settings.kafka, partition), process.clock, process.telemetry
        )
        catch_up(worker, settings.kafka, process)
        return worker

    try:
        run_worker(GROUP, settings, [INCIDENTS], make)
    finally:
        sink.close()


def sink_of(settings: AlertSettings) -> Sink:
    """Who is to be told, as one receiver; errors as in `sinks_of`."""
    sinks = sinks_of(settings)
    return sinks[0] if len(sinks) == 1 else Several(sinks)


def sinks_of(settings: AlertSettings) -> list[Sink]:
    """Who is to be told.

    Raises
    ------
    InvalidSetting
        Nobody, or somebody at no URL.

    """
    sinks: list[Sink] = []
    if settings.webhook_url:
        sinks.append(Webhook(settings.webhook_url))
    if settings.alertmanager_url:
        sinks.append(Alertmanager(settings.alertmanager_url))
    if not sinks:
        raise InvalidSetting("there is nobody to tell: set alerts.webhook_url or alerts.alertmanager_url")
    return sinks


def told_on(settings: KafkaSettings, partition: int) -> Iterator[tuple[str, str]]:
    """(incident, state) of what was told of the incidents of a partition."""
    for message in read_to_end(settings, NOTIFICATIONS, [partition]):
        try:
            for event in codec.decode(message.value):
                if isinstance(event, Notification):
                    yield event.incident, event.state
        except RejectedMessage as error:
            logger.warning("a notification cannot be read", extra={"offset": message.offset, "error": str(error)})


def catch_up(worker: AlertWorker, settings: KafkaSettings, process: Process) -> None:
    """The first time that alerts run at all: tell of what is open by now, and begin after it.

    A process that dies in the middle of it begins it again, and knows from the notifications how far it came.

    Raises
    ------
    Unavailable
        Kafka or the receiver is away; to be tried again.

    """
    places = starts_and_ends(settings, GROUP, INCIDENTS)
    if any(committed is not None for committed, _ in places.values()):
        return
    ends = {partition: end for partition, (_, end) in places.items()}
    latest: dict[str, tuple[Incident, Message]] = {}
    for message in read_to_end(settings, INCIDENTS):
        if message.offset < ends[message.partition]:
            latest |= {incident.id: (incident, message) for incident in _incidents(message.value)}
    sent = {told for partition in ends for told in told_on(settings, partition)}
    producer = KafkaProducer(settings, GROUP)
    try:
        for incident in untold([incident for incident, _ in latest.values()], sent):
            message = latest[incident.id][1]
            try:
                results = worker.on_event(incident, message)
            except RejectedMessage as error:
                results = [dead_letter_of(message, error, process.clock.now_ns())]
            for event in results:
                topic, key = route(event)
                producer.publish(topic, key, codec.encode(event))
                producer.flush(FLUSH_S)
            process.liveness.mark_alive()
    finally:
        producer.close()
    worker.on_revoked([(INCIDENTS.name, partition) for partition in ends])
    begin_at(settings, GROUP, INCIDENTS, ends)


def _incidents(value: bytes) -> list[Incident]:
    try:
        return [event for event in codec.decode(value) if isinstance(event, Incident)]
    except RejectedMessage:
        return []  # bad before anybody was to be told
