"""The bus that users run: Apache Kafka, through librdkafka.

Every producer sets the partition itself (`topics.partition_of`), and all of them are idempotent: what is acknowledged
is in the log once and in order. A consumer starts where its group has committed, or at the oldest message.
"""

from __future__ import annotations

import logging
import operator
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from pacehound.bus import Message, Place
from pacehound.bus.kafka_errors import is_never_taken, passes, reason_of
from pacehound.errors import BusFull, InvalidEvent, InvalidSetting, Unavailable
from pacehound.model.topics import DEAD_LETTERS, Topic, partition_of
from pacehound.settings import KafkaSettings

logger = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message: the rounds of a second over thousands of ranks need several megabytes."""

MAX_LETTER_BYTES = MAX_MESSAGE_BYTES * 4 // 3 + 256 * 1024
"""The largest dead letter: it holds a whole message in base64, and why it is there."""

BATCH_BYTES = 64 * 1024
LINGER_MS = 5
SESSION_TIMEOUT_S = 6.0
"""A dead member's partitions are given to others after this; the broker's own default is 45 s."""

ISOLATION = "read_uncommitted"
"""A transaction of somebody else's that stays open must not hold up what lies behind it; ours have none."""


def max_bytes(topic: Topic) -> int:
    """The largest message of a topic."""
    return MAX_LETTER_BYTES if topic.name == DEAD_LETTERS.name else MAX_MESSAGE_BYTES


def client_config(settings: KafkaSettings) -> dict[str, Any]:
    """What every client needs: where the brokers are, and what `kafka.client_file` says.

    Raises
    ------
    InvalidSetting
        No broker is given, or the file cannot be used.

    Examples
    --------
    >>> client_config(KafkaSettings(servers="broker:9092"))
    {'bootstrap.servers': 'broker:9092'}

    """
    if not settings.servers:
        raise InvalidSetting("kafka.servers is not set; write for example --set kafka.servers=broker:9092")
    config: dict[str, Any] = {"bootstrap.servers": settings.servers}
    if not settings.client_file:
        return config
    try:
        lines = Path(settings.client_file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InvalidSetting(f"kafka.client_file={settings.client_file!r} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, separator, value = text.partition("=")
        if not separator:
            raise InvalidSetting(f"{settings.client_file}, line {number} has no '='; write one key=value per line")
        config[key.strip()] = value.strip()
    return config


class KafkaProducer:
    """Puts messages on topics; what is acknowledged stays, once and in order.

    Thread-safe. `publish` does not wait: it puts the message into a bounded queue and raises `BusFull` when that is
    full. `flush` waits until everything is acknowledged.

    Parameters
    ----------
    settings
        Where Kafka is.
    name
        This client, in the broker's logs.
    max_bytes
        Payload bytes that may wait for acknowledgement.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        name: str,
        *,
        max_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._prefix = settings.prefix
        self._servers = settings.servers
        self._max_bytes = max_bytes
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._failure = ""
        self._is_refused = False
        self._producer = Producer(
            client_config(settings)
            | {
                "client.id": name,
                "enable.idempotence": True,
                # A broker that knows nothing of this producer yet takes any first number. With several requests on
                # their way the second one may be taken while the first is told to come again, and is then taken for
                # a repeat: lost, and acknowledged. (Seen on topics made a moment ago.)
                "max.in.flight.requests.per.connection": 1,
                "compression.type": "zstd",
                # 3 to 9 % longer than by zstd's own choice, for two thirds of the processor time (ADR 70).
                "compression.level": 1,
                "linger.ms": LINGER_MS,
                "batch.size": BATCH_BYTES,
                "message.max.bytes": MAX_LETTER_BYTES,
                "message.timeout.ms": 0,  # the queue is bounded: waiting for the broker is what it is for
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": max(2 * max_bytes // 1024, 1024),  # ours is the bound
            },
            logger=logger,
        )

    @property
    def has_given_up(self) -> bool:
        """Something will never be delivered: end, and begin again at what was committed."""
        return bool(self._failure)

    def publish(self, topic: Topic, key: str, value: bytes, on_delivered: Callable[[str], None] | None = None) -> None:
        """Append `value` to the partition of `key`.

        Parameters
        ----------
        topic, key, value
            What, and where to.
        on_delivered
            Called from `flush` or a later `publish`: with nothing, or with the reason why it failed.

        Raises
        ------
        BusFull
            As many bytes wait as may.
        InvalidEvent
            The message is larger than its topic takes (`max_bytes`), or the broker has refused an earlier one for good.
        Unavailable
            An earlier message was given up: begin again at what was acknowledged last.

        """
        partition = partition_of(key.encode(), topic.partitions)
        self.publish_to(topic, partition, key.encode(), value, on_delivered)

    def publish_to(
        self,
        topic: Topic,
        partition: int,
        key: bytes,
        value: bytes | None,
        on_delivered: Callable[[str], None] | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> None:
        """As `publish`, to a partition that the caller has chosen; no value removes a compacted key."""
        size = len(value or b"")
        if size > max_bytes(topic):
            raise InvalidEvent(f"a message of {size} bytes for {topic.name!r} is larger than {max_bytes(topic)}")
        self._producer.poll(0)
        self._raise_failure()
        with self._lock:
            if self._waiting_bytes and self._waiting_bytes + size > self._max_bytes:
                raise BusFull(f"{self._waiting_bytes} of {self._max_bytes} bytes wait for Kafka at {self._servers}")
            self._waiting_bytes += size

        def delivered(error: KafkaError | None, _: Any) -> None:
            with self._lock:
                self._waiting_bytes -= size
            if error is not None and error.code() != KafkaError._PURGE_QUEUE and not self._failure:
                self._failure, self._is_refused = error.str(), is_never_taken(error)
            if on_delivered is not None:
                on_delivered("" if error is None else error.str())

        try:
            self._producer.produce(
                self._prefix + topic.name,
                value=value,
                key=key,
                partition=partition,
                on_delivery=delivered,
                headers=list(headers),
            )
        except (BufferError, KafkaException) as error:
            with self._lock:
                self._waiting_bytes -= size
            if isinstance(error, BufferError):
                raise BusFull(f"the queue to Kafka at {self._servers} is full") from error
            raise Unavailable(f"Kafka at {self._servers}: {reason_of(error)}") from error

    def flush(self, timeout_s: float) -> None:
        """Wait until everything is acknowledged.

        Raises
        ------
        Unavailable
            It was not within `timeout_s`, or something was given up.
        InvalidEvent
            The broker will never take one of the messages: it is larger than the topic allows.

        """
        deadline_s = time.monotonic() + timeout_s
        left = self._producer.flush(timeout_s)
        while left and time.monotonic() < deadline_s:  # callbacks of others may have published meanwhile
            left = self._producer.flush(max(deadline_s - time.monotonic(), 0.0))
        self._raise_failure()
        if left:
            raise Unavailable(f"Kafka at {self._servers} did not acknowledge {left} messages within {timeout_s:g} s")

    def is_reachable(self, timeout_s: float) -> bool:
        """Whether a broker answers within `timeout_s`."""
        try:
            self._producer.list_topics(f"{self._prefix}calls", timeout=timeout_s)
        except KafkaException:
            return False
        return True

    def _raise_failure(self) -> None:
        if self._failure:
            raise (InvalidEvent if self._is_refused else Unavailable)(f"Kafka at {self._servers}: {self._failure}")

    def close(self, timeout_s: float = 5.0) -> None:
        """Deliver what waits, as far as it can be within `timeout_s`."""
        self._producer.flush(timeout_s)
        self._producer.purge()
        self._producer.flush(1)


class KafkaConsumer:
    """One member of a group; not thread-safe.

    `commit` confirms what was polled; `commit_to` confirms less of it. Nothing is confirmed by itself.

    Parameters
    ----------
    settings
        Where Kafka is.
    group
        Its members share the partitions.
    topics
        What to read.
    on_revoked
        Called from `poll` with the partitions that are no longer this member's: what was not committed will be read
        by another one.
    on_assigned
        Called from `poll` with the partitions that this member has been given.

    """

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        topics: Iterable[Topic],
        *,
        on_revoked: Callable[[list[Place]], None] | None = None,
        on_assigned: Callable[[list[Place]], None] | None = None,
    ) -> None:
        self._prefix = settings.prefix
        self._servers = settings.servers
        self._on_revoked = on_revoked
        self._on_assigned = on_assigned
        self._next: dict[Place, int] = {}
        self._trouble = ""
        self._consumer = Consumer(
            client_config(settings)
            | {
                "group.id": settings.prefix + group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": int(SESSION_TIMEOUT_S * 1000),
                "heartbeat.interval.ms": int(SESSION_TIMEOUT_S * 1000 / 3),
                "partition.assignment.strategy": "cooperative-sticky",
                "fetch.message.max.bytes": MAX_MESSAGE_BYTES,
                "queued.max.messages.kbytes": 64 * 1024,
                "allow.auto.create.topics": False,
                "isolation.level": ISOLATION,
            },
            logger=logger,
        )
        self._consumer.subscribe(
            [self._prefix + topic.name for topic in topics],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    @property
    def positions(self) -> Mapping[Place, int]:
        """The offset after the last polled message, by topic and partition."""
        return self._next

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        """Up to `max_messages` further messages, in order within each partition; waits up to `timeout_s`.

        Raises
        ------
        Unavailable
            The broker refuses (authorisation, a topic that is not there). One that is away is waited for.

        """
        if self._trouble:
            trouble, self._trouble = self._trouble, ""
            raise Unavailable(f"Kafka at {self._servers}: {trouble}")
        try:
            raw = self._consumer.consume(max_messages, timeout_s)
        except KafkaException as error:
            raise Unavailable(f"Kafka at {self._servers}: {reason_of(error)}") from error
        messages = []
        for one in raw:
            problem = one.error()
            if problem is not None:
                if not passes(problem):
                    self._trouble = problem.str()
                continue
            message = message_of(one, self._prefix)
            self._next[message.topic, message.partition] = message.offset + 1
            messages.append(message)
        if messages or not self._trouble:
            return messages  # what came with it is not lost: the trouble is told the next time
        return self.poll(0)

    def commit(self) -> None:
        """Everything polled so far has been dealt with."""
        self.commit_to(self._next)

    def commit_to(self, next_offsets: Mapping[Place, int]) -> None:
        """Everything before these offsets has been dealt with.

        Raises
        ------
        Unavailable
            The broker did not take it; another member may have the partitions by now. They are read again.

        """
        if not next_offsets:
            return
        offsets = [TopicPartition(self._prefix + t, p, offset) for (t, p), offset in next_offsets.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise Unavailable(f"Kafka at {self._servers} did not take the commit: {reason_of(error)}") from error

    def pause(self) -> None:
        """Fetch nothing more for now; `poll` still keeps this member in its group."""
        self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Fetch again."""
        self._consumer.resume(self._consumer.assignment())

    def lag(self) -> int:
        """How many messages of its partitions lie behind what was polled, as far as is known without asking."""
        behind = 0
        for (topic, partition), position in self._next.items():
            _, high = self._consumer.get_watermark_offsets(TopicPartition(self._prefix + topic, partition), cached=True)
            behind += max(high - position, 0)
        return behind

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _assigned(self, _: Any, partitions: list[TopicPartition]) -> None:
        if self._on_assigned is not None:
            self._on_assigned(self._places(partitions))

    def _places(self, partitions: list[TopicPartition]) -> list[Place]:
        return [(p.topic.removeprefix(self._prefix), p.partition) for p in partitions]

    def _revoked(self, _: Any, partitions: list[TopicPartition]) -> None:
        places = self._places(partitions)
        for place in places:
            self._next.pop(place, None)
        if self._on_revoked is not None:
            self._on_revoked(places)


def message_of(raw: Any, prefix: str) -> Message:
    return Message(
        topic=raw.topic().removeprefix(prefix),
        key=(raw.key() or b"").decode(errors="replace"),
        partition=raw.partition(),
        offset=raw.offset(),
        value=raw.value() or b"",
        headers=_headers_of(raw),
    )


_ask_headers = operator.methodcaller("headers")
# Called in this way because the client (2.16) reports a name that is no text without saying that it has failed: called
# directly, the error would come up in whatever is done next.


def _headers_of(raw: Any) -> tuple[tuple[str, bytes], ...]:
    """The headers of a message; none where a name is no text, for then the client does not give out any."""
    try:
        found = _ask_headers(raw) or ()
    except (UnicodeDecodeError, SystemError):
        found = ()
    return tuple((name, value or b"") for name, value in found)
