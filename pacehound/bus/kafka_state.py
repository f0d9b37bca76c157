"""What Kafka knows of the pipeline: its topics, and how far each group has come."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from pacehound.bus import Place
from pacehound.bus.kafka import client_config
from pacehound.bus.kafka_errors import ConnectionErrors, reason_of
from pacehound.model.topics import TOPICS, Topic
from pacehound.settings import KafkaSettings

AGAIN_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """One topic; `problem` is empty where it is as it should be."""

    name: str
    messages: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group and one of its topics: how many members share it, and how many messages lie before them.

    Where Kafka does not tell of the group, `problem` says why and the topic is empty.
    """

    group: str
    topic: str = ""
    state: str = "unknown"
    members: int = 0
    lag: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaState:
    """Topics and groups."""

    topics: tuple[TopicState, ...]
    groups: tuple[GroupState, ...]


def kafka_state(
    settings: KafkaSettings, topics: Iterable[Topic] = TOPICS.values(), timeout_s: float = 10.0
) -> KafkaState:
    """Ask the brokers.

    Raises
    ------
    Unavailable
        They are away or refuse.

    """
    errors = ConnectionErrors()
    admin = errors.client(client_config(settings))
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return _asked(admin, settings, list(topics), timeout_s)
        except KafkaException as error:
            # Of topics that were made a moment ago, the brokers do not know yet who leads them.
            if time.monotonic() >= deadline_s:
                raise errors.unavailable(admin, settings.servers, error) from error
            time.sleep(AGAIN_S)


def _asked(admin: AdminClient, settings: KafkaSettings, topics: list[Topic], timeout_s: float) -> KafkaState:
    found = admin.list_topics(timeout=timeout_s).topics
    partitions = {
        topic.name: len(found[name].partitions) if (name := settings.prefix + topic.name) in found else 0
        for topic in topics
    }
    # The library gives these two no types.
    begins = _offsets(admin, settings, partitions, OffsetSpec.earliest(), timeout_s)  # type: ignore[no-untyped-call]
    ends = _offsets(admin, settings, partitions, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
    states = tuple(
        TopicState(
            name=topic.name,
            messages=sum(ends[topic.name, p] - begins[topic.name, p] for p in range(partitions[topic.name])),
            problem=_problem(topic, partitions[topic.name]),
        )
        for topic in topics
    )
    return KafkaState(topics=states, groups=tuple(_groups(admin, settings, begins, ends, timeout_s)))


def _problem(topic: Topic, partitions: int) -> str:
    if partitions == 0:
        return "is not there; run `pacehound topics`"
    if partitions != topic.partitions:
        return f"has {partitions} partitions and needs {topic.partitions}; set kafka.prefix to another one"
    return ""


Offsets = dict[Place, int]


def _offsets(
    admin: AdminClient, settings: KafkaSettings, partitions: dict[str, int], which: OffsetSpec, timeout_s: float
) -> Offsets:
    asked = {
        TopicPartition(settings.prefix + name, partition): which
        for name, n in partitions.items()
        for partition in range(n)
    }
    if not asked:
        return {}
    answers = admin.list_offsets(asked, request_timeout=timeout_s)
    return {
        (place.topic.removeprefix(settings.prefix), place.partition): future.result().offset
        for place, future in answers.items()
    }


def _groups(
    admin: AdminClient, settings: KafkaSettings, begins: Offsets, ends: Offsets, timeout_s: float
) -> Iterable[GroupState]:
    listing = admin.list_consumer_groups(request_timeout=timeout_s).result()
    names = sorted(one.group_id for one in listing.valid or [] if one.group_id.startswith(settings.prefix))
    if not names:
        return
    described = admin.describe_consumer_groups(names, request_timeout=timeout_s)
    for name in names:
        own = name.removeprefix(settings.prefix)
        try:
            group = described[name].result()
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)], request_timeout=timeout_s)
            places = asked[name].result().topic_partitions or []
        except KafkaException as error:
            # Its coordinator is moving, say: the others can be told of all the same.
            yield GroupState(group=own, problem=reason_of(error))
            continue
        committed = {(one.topic.removeprefix(settings.prefix), one.partition): one.offset for one in places}
        read = {topic for topic, _ in committed} | _assigned(group, settings.prefix)
        for topic in sorted(read & {name for name, _ in ends}):
            lag = sum(
                # Where nothing was committed, a member begins at the oldest message.
                max(end - max(committed.get(place, -1), begins[place]), 0)
                for place, end in ends.items()
                if place[0] == topic
            )
            yield GroupState(
                group=own, topic=topic, state=group.state.name.lower(), members=len(group.members), lag=lag
            )


def _assigned(group: Any, prefix: str) -> set[str]:
    return {
        place.topic.removeprefix(prefix) for member in group.members for place in member.assignment.topic_partitions
    }
