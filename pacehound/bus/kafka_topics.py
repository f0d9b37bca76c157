"""The topics of `pacehound.model.topics` on a Kafka cluster: made once, and looked at before anything is put there."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pacehound.bus.kafka import client_config, max_bytes
from pacehound.bus.kafka_errors import ConnectionErrors, code_of
from pacehound.errors import InvalidInput, Unavailable
from pacehound.model.topics import TOPICS, Topic
from pacehound.settings import KafkaSettings

COMPACTED_SEGMENT_BYTES = 16 * 1024 * 1024
"""Only closed segments are compacted: small ones, so that what is read at a restart stays small."""

LOOK_AGAIN_S = 0.05
"""Between two looks at what the broker knows of (chosen: it hears of a new topic within tens of milliseconds)."""


def ensure_topics(settings: KafkaSettings, topics: Iterable[Topic] = TOPICS.values(), timeout_s: float = 30.0) -> None:
    """Create the topics that are missing, and check the partitions of those that are there.

    Safe to run from several processes at once.

    Raises
    ------
    Unavailable
        No broker answers within `timeout_s`, it refuses, or does not know of what was made by then.
    InvalidInput
        A topic has another number of partitions: keys would move, and events lose their order.

    """
    wanted = {settings.prefix + topic.name: topic for topic in topics}
    errors = ConnectionErrors()
    admin = errors.client(client_config(settings))
    try:
        there = admin.list_topics(timeout=timeout_s).topics
        missing = [name for name in wanted if name not in there]
        if missing:
            made = admin.create_topics(
                [_new(name, wanted[name], settings) for name in missing], operation_timeout=timeout_s
            )
            for future in made.values():
                try:
                    future.result()
                except KafkaException as error:
                    if code_of(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        n_partitions = _when_known(admin, wanted, timeout_s)
    except KafkaException as error:
        raise errors.unavailable(admin, settings.servers, error) from error
    for name, topic in wanted.items():
        if name not in n_partitions:
            raise Unavailable(
                f"Kafka at {settings.servers}: topic {name} was made, and {timeout_s:g} s later the broker does not "
                "know of it"
            )
        if (partitions := n_partitions[name]) != topic.partitions:
            raise InvalidInput(
                f"topic {name} has {partitions} partitions, this version needs {topic.partitions}; "
                "set kafka.prefix to another one: growth is a new generation of the topics"
            )


def _when_known(admin: AdminClient, names: Collection[str], timeout_s: float) -> dict[str, int]:
    """By topic, how many partitions it has, once the broker knows of all of them: which were made a moment ago, by
    whomever, it hears of a little later.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        there = admin.list_topics(timeout=timeout_s).topics
        found = {name: len(there[name].partitions) for name in names if name in there and there[name].partitions}
        if all(name in found for name in names) or time.monotonic() >= deadline_s:
            return found
        time.sleep(LOOK_AGAIN_S)


def log_name(settings: KafkaSettings, topic: Topic = TOPICS["calls"], timeout_s: float = 30.0) -> str:
    """What tells the offsets of these topics from those of others: the topic's own id, which a new one does not share.

    Raises
    ------
    Unavailable
        No broker answers within `timeout_s`, or the topic is not there.

    """
    errors = ConnectionErrors()
    admin = errors.client(client_config(settings))
    name = settings.prefix + topic.name
    try:
        described = admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s)[name].result()
    except KafkaException as error:
        raise errors.unavailable(admin, settings.servers, error) from error
    return f"{settings.prefix}{described.topic_id}"


def _new(name: str, topic: Topic, settings: KafkaSettings) -> NewTopic:
    config = {"max.message.bytes": str(max_bytes(topic)), "compression.type": "producer"}
    if topic.retention_s is None:
        config |= {
            "cleanup.policy": "compact",
            "segment.bytes": str(COMPACTED_SEGMENT_BYTES),
            "min.cleanable.dirty.ratio": "0.2",
        }
    else:
        config["retention.ms"] = str(topic.retention_s * 1000)
    return NewTopic(name, topic.partitions, settings.replication, config=config)
