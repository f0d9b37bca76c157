"""The loop of a process that reads events from Kafka, works on them, and confirms what it has done.

At least once: results are durable before the offsets are committed. What cannot be read goes to the dead letters and
never stops a partition; what cannot be done *now* is tried again, in order, while the member stays in its group.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from pacehound.bus import Message, Place
from pacehound.clock import Clock
from pacehound.errors import BusFull, MalformedMessage, RejectedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.routing import Event, route
from pacehound.model.topics import Topic
from pacehound.runtime.dead_letter import letter_of
from pacehound.runtime.liveness import Pulse
from pacehound.runtime.metric_names import (
    COMMIT_FAILURES,
    DEAD_LETTERED,
    EVENT_AGE_SECONDS,
    EVENT_AGES,
    LAG,
    MESSAGES,
    RETRIES,
    WORKER_FAILURES,
)
from pacehound.runtime.phases import Stages
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

MAX_MESSAGES = 64
POLL_S = 0.5
PAUSED_POLL_S = 0.1
FLUSH_S = 10.0
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0


class GroupConsumer(Protocol):
    """What the loop needs of `bus.kafka.KafkaConsumer`."""

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        """Further messages."""
        ...

    def commit_to(self, next_offsets: Mapping[Place, int]) -> None:
        """Everything before these offsets has been dealt with."""
        ...

    def pause(self) -> None:
        """Fetch nothing more for now."""
        ...

    def resume(self) -> None:
        """Fetch again."""
        ...

    def lag(self) -> int:
        """Messages behind what was polled."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


class Sender(Protocol):
    """What the loop needs of `bus.kafka.KafkaProducer`."""

    @property
    def has_given_up(self) -> bool:
        """Something will never be delivered."""
        ...

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        """Append, or `BusFull`."""
        ...

    def flush(self, timeout_s: float) -> None:
        """Wait for acknowledgement, or `Unavailable`."""
        ...


class Worker(Protocol):
    """What a process does with an event."""

    kinds: tuple[type, ...]
    """The events that it takes; any other one on its topics is a dead letter."""

    def on_event(self, event: Event, message: Message) -> list[Event]:
        """What follows from the next event of a partition.

        Raises
        ------
        Unavailable
            Not now: the same event comes again later, and none of its partition in between.
        RejectedMessage
            Never: the message is set aside.

        """
        ...

    def on_revoked(self, places: list[Place]) -> None:
        """These partitions belong to somebody else now: forget what was kept about them."""
        ...


class EventLoop:
    """Turns until it is told to stop.

    Parameters
    ----------
    name
        Of the process, in logs and counts.
    worker
        What is done.
    subscribe
        Makes the consumer; is given what to call when partitions are taken away.
    producer
        Where results and dead letters go.
    telemetry, pulse, clock, stages
        What is counted, where it shows that it lives, the time, how long it takes.

    """

    def __init__(
        self,
        *,
        name: str,
        worker: Worker,
        subscribe: Callable[[Callable[[list[Place]], None]], GroupConsumer],
        producer: Sender,
        telemetry: Telemetry,
        pulse: Pulse,
        clock: Clock,
        stages: Stages,
    ) -> None:
        self._name = name
        self._worker = worker
        self._producer = producer
        self._telemetry = telemetry
        self._pulse = pulse
        self._clock = clock
        self._stages = stages
        self._waiting: deque[Message] = deque()
        self._results: deque[tuple[Topic, str, bytes]] = deque()
        self._done: dict[Place, int] = {}
        self._begun = 0  # records of the first waiting message that are dealt with
        self._is_paused = False
        self._retry_s = 0.0
        self._retries = 0
        self._consumer = subscribe(self._revoked)

    def run(self, stopping: threading.Event) -> None:
        """Until `stopping` is set; then what was worked on is confirmed and the group left.

        Raises
        ------
        Unavailable
            A result will never be delivered. A new process begins again at what was confirmed.

        """
        pause_s = FIRST_RETRY_S
        try:
            while not stopping.is_set():
                try:
                    self.turn()
                    pause_s = FIRST_RETRY_S
                except Unavailable as error:
                    if self._producer.has_given_up:
                        raise
                    logger.warning("%s cannot get on: %s", self._name, error)
                    self._pulse.trouble(str(error))
                    stopping.wait(pause_s)
                    pause_s = min(pause_s * 2, LONGEST_RETRY_S)
            self._confirm()
        finally:
            self._consumer.close()

    def turn(self) -> None:
        """Poll, work, publish, commit, once.

        Raises
        ------
        Unavailable
            Kafka refuses to be read. (A Kafka that is away is waited for.)

        """
        with self._stages.stage("poll"):
            self._waiting += self._poll()
        self._pulse.beat()
        with self._stages.stage("work"):
            worked = self._work()
        if worked or self._results or self._done:
            self._confirm()
        self._telemetry.set(LAG, self._consumer.lag() + len(self._waiting))
        self._stages.end_batch(worked)

    def _poll(self) -> list[Message]:
        if not self._waiting and not self._results:
            if self._is_paused:
                self._consumer.resume()
                self._is_paused = False
            return self._consumer.poll(MAX_MESSAGES, POLL_S)
        # Polling keeps this member in its group; partitions that it is given meanwhile are paused the next time.
        self._consumer.pause()
        self._is_paused = True
        return self._consumer.poll(MAX_MESSAGES, PAUSED_POLL_S)

    def _work(self) -> int:
        """Deal with what waits, in order, as far as it goes; how many messages that were."""
        worked = 0
        if not self._send() or self._clock.monotonic_s() < self._retry_s:
            return worked
        while self._waiting:
            message = self._waiting[0]
            try:
                self._deal_with(message)
            except Unavailable as error:
                self._postpone(message, error)
                break
            self._retries = 0
            self._begun = 0
            self._waiting.popleft()
            self._done[message.topic, message.partition] = message.offset + 1
            self._telemetry.add(MESSAGES, topic=message.topic)
            worked += 1
            if not self._send():
                break
        return worked

    def _deal_with(self, message: Message) -> None:
        """Add what follows from a message to the results; each of its records stands for itself."""
        try:
            records = codec.records_of(message.value)
        except RejectedMessage as error:
            self._set_aside(message, error)
            return
        for resource, record in records[self._begun :]:
            try:
                event = codec.decode_record(resource, record)
                if not isinstance(event, self._worker.kinds):
                    raise MalformedMessage(f"a {type(event).__name__} on the topic of {message.topic}")
                self._results += [_encoded(result) for result in self._worker.on_event(event, message)]
                age_s = (self._clock.now_ns() - _time_ns(event)) / 1e9
                self._telemetry.add(EVENT_AGE_SECONDS, max(age_s, 0.0))
                self._telemetry.add(EVENT_AGES)
            except Unavailable:
                raise
            except Exception as error:
                if not isinstance(error, RejectedMessage):
                    # A fault of ours: it must neither stop the partition nor disappear.
                    logger.exception("%s failed on %s/%d", self._name, message.topic, message.partition)
                    self._telemetry.add(WORKER_FAILURES, worker=self._name)
                self._set_aside(message, error, None if len(records) == 1 else codec.single(resource, record))
            self._begun += 1

    def _set_aside(self, message: Message, error: Exception, payload: bytes | None = None) -> None:
        self._telemetry.add(DEAD_LETTERED, topic=message.topic, error=type(error).__name__)
        self._results.append(_encoded(letter_of(message, error, self._clock.now_ns(), payload)))

    def _postpone(self, message: Message, error: Unavailable) -> None:
        pause_s = min(FIRST_RETRY_S * 2**self._retries, LONGEST_RETRY_S)
        self._retry_s = self._clock.monotonic_s() + pause_s
        self._retries = min(self._retries + 1, 10)
        self._telemetry.add(RETRIES)
        logger.warning(
            "%s tries %s/%d at %d again in %g s: %s",
            self._name, message.topic, message.partition, message.offset, pause_s, error,
        )  # fmt: skip

    def _send(self) -> bool:
        """Hand results to the producer; whether it took all of them."""
        while self._results:
            try:
                self._producer.publish(*self._results[0])
            except BusFull:
                return False
            self._results.popleft()
        return True

    def _confirm(self) -> None:
        """Make the results durable, then commit; what does not work now is tried in the next turn."""
        with self._stages.stage("publish"):
            try:
                self._producer.flush(FLUSH_S)
            except Unavailable as error:
                if self._producer.has_given_up:
                    raise
                logger.warning("%s waits for Kafka: %s", self._name, error)
                return
        if self._results or not self._done:
            return  # what is done has results that are not durable yet
        with self._stages.stage("commit"):
            try:
                self._consumer.commit_to(dict(self._done))
            except Unavailable as error:
                # Somebody else may have the partitions by now; what was done is done again there, to the same ids.
                logger.warning("%s could not commit: %s", self._name, error)
                self._telemetry.add(COMMIT_FAILURES)
                return
        self._done.clear()

    def _revoked(self, places: list[Place]) -> None:
        gone = set(places)
        if self._waiting and (self._waiting[0].topic, self._waiting[0].partition) in gone:
            self._begun = 0
        self._waiting = deque(m for m in self._waiting if (m.topic, m.partition) not in gone)
        for place in gone:
            self._done.pop(place, None)
        self._worker.on_revoked(places)


def _encoded(event: Event) -> tuple[Topic, str, bytes]:
    topic, key = route(event)
    return topic, key, codec.encode(event)


def _time_ns(event: Event) -> int:
    """When what an event tells of was over."""
    return int(event.integers("end_ns").max(initial=0)) if isinstance(event, CallBatch) else event.time_ns
