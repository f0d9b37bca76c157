"""`pacehound alerts`: the process that tells people, on Kafka; and who is told, by the settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from alerts.asking import Asking
from alerts.heartbeat import SETTING as HEARTBEAT_SETTING
from alerts.heartbeat import Heartbeat
from alerts.importance import Importance
from alerts.notice import Sink
from alerts.orders import OrdersFile
from alerts.policy import Waits
from alerts.receiver import Receiver
from alerts.sinks.alertmanager import Alertmanager
from alerts.sinks.email import Email
from alerts.sinks.pagerduty import PagerDuty
from alerts.sinks.slack import Slack
from alerts.sinks.webhook import Webhook
from alerts.worker import AlertWorker, Past, Policy, ReadPast
from pacehound.bus.kafka_reader import begin_at_end, read_to_end, starts_and_ends
from pacehound.bus.kafka_state import kafka_state
from pacehound.clock import Clock
from pacehound.errors import InvalidSetting, RejectedMessage
from pacehound.model import codec
from pacehound.model.events import Incident, Notification
from pacehound.model.topics import DECISIONS, INCIDENTS, NOTIFICATIONS, Topic
from pacehound.runtime.process import Process, run_worker
from pacehound.runtime.status import Status
from pacehound.runtime.telemetry import Telemetry
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
    # What does not fit is said before anything is waited for.
    policy_of(settings.alerts, sinks_of(settings.alerts))
    made: list[AlertWorker] = []

    def make(process: Process) -> AlertWorker:
        begin(settings.kafka)
        made.append(
            worker_of(
                settings.alerts,
                lambda partitions: past_on(settings.kafka, partitions),
                lambda: problems_of(settings.kafka),
                process.clock,
                process.telemetry,
                settings.actuators.approval_key,
            )
        )
        return made[0]

    try:
        run_worker(GROUP, settings, [INCIDENTS, DECISIONS], make)
    finally:
        for worker in made:
            worker.close()


def worker_of(
    settings: AlertSettings,
    past: ReadPast,
    problems: Callable[[], list[str]],
    clock: Clock,
    telemetry: Telemetry,
    approval_key: str = "",
) -> AlertWorker:
    """Who tells people, as the settings say.

    Raises
    ------
    InvalidSetting
        There is nobody to tell, or a setting does not fit.

    """
    sinks = sinks_of(settings)
    heartbeat = None
    if settings.heartbeat_url:
        waiting = Receiver(settings.heartbeat_url, setting=HEARTBEAT_SETTING, example="https://host/path")
        heartbeat = Heartbeat(waiting, problems, telemetry)
    return AlertWorker(
        sinks,
        past,
        clock,
        telemetry,
        policy=policy_of(settings, sinks),
        orders=OrdersFile(Path(settings.orders_file) if settings.orders_file else None),
        heartbeat=heartbeat,
        asking=Asking(sinks, clock, settings.page_url, approval_key),
    )


def sinks_of(settings: AlertSettings) -> list[Sink]:
    """Who is to be told.

    Raises
    ------
    InvalidSetting
        Nobody, or somebody at no address.

    """
    sinks: list[Sink] = []
    if settings.pagerduty_key:
        sinks.append(PagerDuty(settings.pagerduty_key, settings.pagerduty_url))
    if settings.slack_url:
        sinks.append(Slack(settings.slack_url))
    if settings.smtp_url:
        sinks.append(Email(settings.smtp_url, settings.smtp_password, settings.email_from, settings.email_to))
    if settings.webhook_url:
        sinks.append(Webhook(settings.webhook_url, settings.webhook_secret))
    if settings.alertmanager_url:
        sinks.append(Alertmanager(settings.alertmanager_url))
    if not sinks:
        raise InvalidSetting(
            "there is nobody to tell: set alerts.pagerduty_key, alerts.slack_url, alerts.smtp_url, alerts.webhook_url "
            "or alerts.alertmanager_url"
        )
    return sinks


def policy_of(settings: AlertSettings, sinks: Sequence[Sink]) -> Policy:
    """When whom, by the settings.

    Raises
    ------
    InvalidSetting
        A weight is none, a sink that is to be told later is not set, or nobody is told first.

    """
    names = [sink.name for sink in sinks]
    later = [name.strip() for name in settings.escalate_to.split(",") if name.strip()]
    for name in later:
        if name not in names:
            raise InvalidSetting(f"alerts.escalate_to names {name!r}, which is not set; set are {', '.join(names)}")
    if set(later) == set(names) and later:
        raise InvalidSetting(f"alerts.escalate_to={settings.escalate_to!r} leaves nobody to be told first")
    tell_after_ns = round(settings.tell_after_s * 1e9)
    escalate_after_ns = round(settings.escalate_after_s * 1e9)
    return Policy(
        importance=Importance.parse(settings.importance),
        page_lost_ranks=settings.page_lost_ranks,
        page_url=settings.page_url,
        waits={
            sink.name: Waits(
                lowest_level=sink.lowest_level,
                tell_after_ns=tell_after_ns,
                escalate_after_ns=escalate_after_ns if sink.name in later else None,
            )
            for sink in sinks
        },
    )


def past_on(settings: KafkaSettings, partitions: frozenset[int]) -> Past:
    """What the log holds of some partitions: incidents as far as they were dealt with, and who was told.

    Raises
    ------
    Unavailable
        Kafka is away; to be tried again.

    """
    committed = {place: offset or 0 for place, (offset, _) in starts_and_ends(settings, GROUP, INCIDENTS).items()}
    latest: dict[str, tuple[Incident, int]] = {}
    for partition, offset, event in _events(settings, INCIDENTS, partitions):
        if isinstance(event, Incident) and offset < committed[partition]:
            latest[event.id] = (event, partition)
    told = [event for _, _, event in _events(settings, NOTIFICATIONS, partitions) if isinstance(event, Notification)]
    return Past(incidents=tuple(latest.values()), notifications=told)


def begin(settings: KafkaSettings) -> None:
    """The first time that alerts run at all they begin at the end.

    Raises
    ------
    Unavailable
        Kafka is away; to be tried again.

    """
    begin_at_end(settings, GROUP, INCIDENTS)


def problems_of(settings: KafkaSettings) -> list[str]:
    """What is not well with the pipeline, by what Kafka says of it.

    Raises
    ------
    Unavailable
        Kafka is away.

    """
    state = kafka_state(settings)
    problems = Status(kafka=state, kafka_problem="", processes=()).problems
    watching = {one.group for one in state.groups if one.members}
    return [*problems, *(["nobody watches: the group streams has no member"] if "streams" not in watching else [])]


def _events(settings: KafkaSettings, topic: Topic, partitions: frozenset[int]) -> Iterator[tuple[int, int, object]]:
    for message in read_to_end(settings, topic, sorted(partitions)):
        try:
            for event in codec.decode(message.value):
                yield message.partition, message.offset, event
        except RejectedMessage as error:
            logger.warning("a message of %s cannot be read", topic.name, extra={"error": str(error)})
