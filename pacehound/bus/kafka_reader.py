"""Reading a stretch of a Kafka topic once, in no group: what a process has to know before it begins, or is asked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from pacehound.bus import Message, Place
from pacehound.bus.kafka import ISOLATION, client_config, message_of
from pacehound.bus.kafka_errors import code_of, is_nothing_to_a_reader, reason_of
from pacehound.errors import Unavailable
from pacehound.model.topics import Topic
from pacehound.settings import KafkaSettings

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SILENT_FOR_S = 30.0
AGAIN_S = 0.2
# What brokers say of a topic that was made, or has moved, a moment ago.
_LEADERLESS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)
# What they say of a group whose first member they have not seen yet.
_NO_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def read_to_end(
    settings: KafkaSettings, topic: Topic, partitions: Iterable[int] | None = None, silent_for_s: float = SILENT_FOR_S
) -> Iterator[Message]:
    """Every message that is in the log by now, in order within each partition.

    Parameters
    ----------
    settings
        Where Kafka is.
    topic, partitions
        What to read; all partitions when `None`.
    silent_for_s
        How long the broker may say nothing.

    Raises
    ------
    Unavailable
        The broker is away or refuses.

    """
    wanted = range(topic.partitions) if partitions is None else partitions
    left = dict.fromkeys(wanted, 0)
    with _reader(settings) as reader:
        name = settings.prefix + topic.name
        for partition in left:
            left[partition] = bounds(reader, settings, name, partition, silent_for_s)[1]
        reader.assign([TopicPartition(name, partition, OFFSET_BEGINNING) for partition in left])
        heard_s = time.monotonic()
        while left:
            for raw in reader.consume(500, 0.5):
                heard_s = time.monotonic()
                place, problem = raw.partition(), raw.error()
                if place is None or place not in left:
                    if problem is not None and not is_nothing_to_a_reader(problem):
                        raise Unavailable(f"Kafka at {settings.servers}: {problem.str()}")
                    continue  # behind what was the end when we began
                if problem is None:
                    message = message_of(raw, settings.prefix)
                    if message.offset < left[place]:
                        yield message
                    if message.offset + 1 >= left[place]:
                        del left[place]
                elif problem.code() == KafkaError._PARTITION_EOF:
                    del left[place]
                elif not is_nothing_to_a_reader(problem):
                    raise Unavailable(f"Kafka at {settings.servers}: {problem.str()}")
            if time.monotonic() - heard_s > silent_for_s:
                raise Unavailable(f"Kafka at {settings.servers} has said nothing about {name} for {silent_for_s:g} s")


def starts_and_ends(
    settings: KafkaSettings, group: str, topic: Topic, timeout_s: float = SILENT_FOR_S
) -> dict[int, tuple[int | None, int]]:
    """By partition: what `group` has committed (`None`: nothing yet), and the offset after the last message.

    Raises
    ------
    Unavailable
        The broker is away or refuses.

    """
    name = settings.prefix + topic.name
    with _reader(settings, group) as reader:
        committed = _committed(reader, name, topic.partitions, timeout_s)
        return {
            one.partition: (
                one.offset if one.offset >= 0 else None,
                bounds(reader, settings, name, one.partition, timeout_s)[1],
            )
            for one in committed
        }


def oldest_offsets(
    settings: KafkaSettings, places: Iterable[Place], timeout_s: float = SILENT_FOR_S
) -> dict[Place, int]:
    """The offset of the first message that is still there, of each of some partitions.

    Raises
    ------
    Unavailable
        The broker is away or refuses.

    """
    with _reader(settings) as reader:
        return {
            (topic, partition): bounds(reader, settings, settings.prefix + topic, partition, timeout_s)[0]
            for topic, partition in places
        }


def first_offset_from(
    settings: KafkaSettings, place: Place, offset: int, timeout_s: float = SILENT_FOR_S
) -> int | None:
    """The offset of the first message at `offset` or behind it; `None` where there is none yet.

    Offsets have gaps: what marks the end of a transaction takes one, and what has expired is not there any more.

    Raises
    ------
    Unavailable
        The broker is away or refuses.

    """
    deadline_s = time.monotonic() + timeout_s
    with _reader(settings, begin="earliest") as reader:
        reader.assign([TopicPartition(settings.prefix + place[0], place[1], offset)])
        while time.monotonic() < deadline_s:
            for raw in reader.consume(1, 0.2):
                problem = raw.error()
                if problem is None:
                    return message_of(raw, settings.prefix).offset
                if problem.code() == KafkaError._PARTITION_EOF:
                    return None
                if not is_nothing_to_a_reader(problem):
                    raise Unavailable(f"Kafka at {settings.servers}: {problem.str()}")
    raise Unavailable(f"Kafka at {settings.servers} has said nothing about {place[0]}/{place[1]} for {timeout_s:g} s")


def begin_at_end(settings: KafkaSettings, group: str, topic: Topic) -> None:
    """The first time of all a group begins at the end: what lies before it is the past.

    Raises
    ------
    Unavailable
        The broker is away or refuses; to be tried again.

    """
    places = starts_and_ends(settings, group, topic)
    if all(committed is None for committed, _ in places.values()):
        _begin_at(settings, group, topic, {partition: end for partition, (_, end) in places.items()})


def _begin_at(settings: KafkaSettings, group: str, topic: Topic, offsets: Mapping[int, int]) -> None:
    """Say where a group that has no members yet begins; where it has some, they have begun and nothing is changed.

    Raises
    ------
    Unavailable
        The broker is away or refuses.

    """
    name = settings.prefix + topic.name
    with _reader(settings, group) as reader:
        try:
            reader.commit(
                offsets=[TopicPartition(name, partition, offset) for partition, offset in offsets.items()],
                asynchronous=False,
            )
        except KafkaException as error:
            if code_of(error) not in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION):
                raise


@contextmanager
def _reader(settings: KafkaSettings, group: str = "reader", begin: str = "latest") -> Iterator[Consumer]:
    """In a group's name it may ask what was committed; it never joins one. `begin`: where what it asks for is gone."""
    reader = Consumer(
        client_config(settings)
        | {
            "group.id": settings.prefix + group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": begin,
            "isolation.level": ISOLATION,
            "allow.auto.create.topics": False,
        },
        logger=logger,
    )
    try:
        yield reader
    except KafkaException as error:
        raise Unavailable(f"Kafka at {settings.servers}: {reason_of(error)}") from error
    finally:
        reader.close()


def _committed(reader: Consumer, name: str, n_partitions: int, timeout_s: float) -> list[TopicPartition]:
    """What the reader's group has committed."""
    places = [TopicPartition(name, partition) for partition in range(n_partitions)]
    return list(_settled(lambda: reader.committed(places, timeout=timeout_s), _NO_COORDINATOR, timeout_s))


def bounds(reader: Consumer, settings: KafkaSettings, name: str, partition: int, timeout_s: float) -> tuple[int, int]:
    """The offsets of the first message and after the last one.

    Raises
    ------
    KafkaException
        The broker is away or refuses.
    Unavailable
        It says nothing in time.

    """
    place = TopicPartition(name, partition)
    found = _settled(lambda: reader.get_watermark_offsets(place, timeout=timeout_s), _LEADERLESS, timeout_s)
    if found is None:
        raise Unavailable(f"Kafka at {settings.servers} does not say what {name}/{partition} holds")
    return int(found[0]), int(found[1])


def _settled(ask: Callable[[], Answer], passing: tuple[int, ...], timeout_s: float) -> Answer:
    """The answer to a question; waits for a leader or coordinator that is just being chosen."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if code_of(error) not in passing or time.monotonic() >= deadline_s:
                raise
            time.sleep(AGAIN_S)
