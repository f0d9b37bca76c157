"""Commands and their answers on Kafka: an agent's way to the one, a controller's to both.

A reader is given its partition and no group: every agent of a job hears every command. It waits at the broker, so that
a command comes at once and a silent topic costs one request in ten seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pacehound.bus.kafka import ISOLATION, KafkaProducer, client_config, message_of
from pacehound.bus.kafka_errors import is_nothing_to_a_reader, reason_of
from pacehound.bus.kafka_reader import AGAIN_S, bounds
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.bus.mailbox import Mailbox
from pacehound.bus.otlp import Polled
from pacehound.clock import Clock
from pacehound.errors import RejectedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.events import Command, CommandResult
from pacehound.model.orders import LONGEST_LIFE_NS
from pacehound.model.routing import Event, route
from pacehound.model.topics import COMMANDS, RESULTS, Topic, partition_of
from pacehound.settings import KafkaSettings

logger = logging.getLogger(__name__)

WAIT_AT_BROKER_MS = 10_000
ANSWERS_WITHIN_S = 5.0
_AT_ONCE = 500
_MOST_AT_ONCE = 5_000


class _Reader:
    """What comes on some partitions of a topic, from so long ago on."""

    def __init__(self, settings: KafkaSettings, topic: Topic, partitions: Iterable[int], since_ns: int) -> None:
        self._settings = settings
        name, since_ms = settings.prefix + topic.name, since_ns // 1_000_000
        self._reader = Consumer(
            client_config(settings)
            | {
                "group.id": settings.prefix + "commands",  # a client must name one; it is never joined
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "isolation.level": ISOLATION,
                "allow.auto.create.topics": False,
                "fetch.wait.max.ms": WAIT_AT_BROKER_MS,
                "socket.timeout.ms": WAIT_AT_BROKER_MS + 20_000,
            },
            logger=logger,
        )
        try:
            self._reader.assign(self._first_since([TopicPartition(name, number, since_ms) for number in partitions]))
        except KafkaException as error:
            self.close()
            raise Unavailable(f"Kafka at {settings.servers}: {reason_of(error)}") from error
        except Unavailable:
            self.close()
            raise

    def _first_since(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """The first offsets since a time; a topic that was made a moment ago is not known at once.

        Where nothing has come since then that is the end, and it is asked for here, before anything else: a client
        that is told to begin at the end asks for it later, and what came in between is not read.
        """
        deadline_s = time.monotonic() + ANSWERS_WITHIN_S
        while True:
            try:
                ends = [
                    bounds(self._reader, self._settings, place.topic, place.partition, ANSWERS_WITHIN_S)[1]
                    for place in places
                ]
                found = self._reader.offsets_for_times(places, timeout=ANSWERS_WITHIN_S)
            except KafkaException:
                if time.monotonic() >= deadline_s:
                    raise
                time.sleep(AGAIN_S)
            else:
                return [
                    TopicPartition(one.topic, one.partition, one.offset if one.offset >= 0 else end)
                    for one, end in zip(found, ends, strict=True)
                ]

    def read(self) -> list[Event]:
        """What is here by now; waits for nothing."""
        found: list[Event] = []
        while len(found) < _MOST_AT_ONCE:
            try:
                raws = self._reader.consume(_AT_ONCE, 0.0)
            except KafkaException as error:
                raise Unavailable(f"Kafka at {self._settings.servers}: {reason_of(error)}") from error
            for raw in raws:
                problem = raw.error()
                if problem is not None:
                    if not is_nothing_to_a_reader(problem):
                        raise Unavailable(f"Kafka at {self._settings.servers}: {problem.str()}")
                    continue
                try:
                    events = codec.decode(message_of(raw, self._settings.prefix).value)
                except RejectedMessage as error:
                    logger.warning("a message on %s cannot be read: %s", raw.topic(), error)
                    continue
                found += events
            if not raws:
                break
        return found

    def close(self) -> None:
        """Let go of the connection."""
        self._reader.close()


class _JobReader(_Reader):
    """What comes of one job on a topic, from so long ago on."""

    def __init__(self, settings: KafkaSettings, topic: Topic, job: str, since_ns: int) -> None:
        self._job = job
        super().__init__(settings, topic, [partition_of(job.encode(), topic.partitions)], since_ns)

    def read(self) -> list[Event]:
        """What is here by now; waits for nothing."""
        return [event for event in super().read() if event.job == self._job]


class KafkaCommands:
    """Where an agent asks for commands (`collector.agent.command_poll.CommandSource`)."""

    def __init__(self, settings: KafkaSettings, job: str) -> None:
        self._settings, self._job = settings, job
        self._reader: _JobReader | None = None

    def poll(self, after: int) -> Polled:
        """What came since the last time; from the first one on what still lives.

        Raises
        ------
        Unavailable
            The broker is away or refuses.

        """
        if self._reader is None:
            self._reader = _JobReader(self._settings, COMMANDS, self._job, time.time_ns() - LONGEST_LIFE_NS)
        try:
            events = self._reader.read()
        except Unavailable:
            self.close()
            raise
        return Polled(commands=tuple(one for one in events if isinstance(one, Command)), after=after)

    def close(self) -> None:
        """Let go of the connection."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class KafkaControl:
    """A controller's way: gives commands for one job, and hears what agents answer from now on."""

    def __init__(self, settings: KafkaSettings, job: str) -> None:
        ensure_topics(settings, (COMMANDS, RESULTS), ANSWERS_WITHIN_S)
        self._settings, self._job = settings, job
        self._results = _JobReader(settings, RESULTS, job, time.time_ns())
        self._given: _JobReader | None = None
        self._producer = KafkaProducer(settings, "pacehound-control")

    def command(self, command: Command) -> None:
        """Publish it, and wait until it is in the log."""
        topic, key = route(command)
        self._producer.publish(topic, key, codec.encode(command))
        self._producer.flush(ANSWERS_WITHIN_S)

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What came since the last time."""
        return [one for one in self._results.read() if isinstance(one, CommandResult) and one.job == job], after

    def given(self, job: str, after: int) -> tuple[list[Command], int]:
        """Orders that were given about the job since the last time; at first those that still live."""
        if self._given is None:
            self._given = _JobReader(self._settings, COMMANDS, self._job, time.time_ns() - LONGEST_LIFE_NS)
        return [one for one in self._given.read() if isinstance(one, Command) and one.job == job], after

    def close(self) -> None:
        """Let go of the connections."""
        if self._given is not None:
            self._given.close()
        self._results.close()
        self._producer.close()


class KafkaQuestions:
    """The way to the ranks of any job (`AskedWire`): what agents answer and ask from now on is kept for a minute."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        ensure_topics(settings, (COMMANDS, RESULTS), ANSWERS_WITHIN_S)
        self._clock, self._mailbox = clock, Mailbox(first=0)
        self._results = _Reader(settings, RESULTS, range(RESULTS.partitions), clock.now_ns())
        self._producer = KafkaProducer(settings, "pacehound-answers")

    def command(self, command: Command) -> None:
        """Publish it, and wait until it is in the log."""
        topic, key = route(command)
        self._producer.publish(topic, key, codec.encode(command))
        self._producer.flush(ANSWERS_WITHIN_S)

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What agents of a job have answered, and the number to ask for next."""
        self._read()
        return self._mailbox.results(job, after, self._clock.now_ns())

    def questions(self, after: int) -> tuple[list[CommandResult], int]:
        """What ranks of any job have asked, and the number to ask for next."""
        self._read()
        return self._mailbox.questions(after, self._clock.now_ns())

    def close(self) -> None:
        """Let go of the connections."""
        self._results.close()
        self._producer.close()

    def _read(self) -> None:
        for event in self._results.read():
            if isinstance(event, CommandResult):
                self._mailbox.put(event, self._clock.now_ns())
