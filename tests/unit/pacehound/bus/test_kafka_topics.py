"""Topics that somebody made a moment ago: the broker hears of them a little later, and only then are they looked at."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from pacehound.bus.kafka_errors import ConnectionErrors
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.errors import InvalidInput, Unavailable
from pacehound.model.topics import HOSTS
from pacehound.settings import KafkaSettings

SETTINGS = KafkaSettings(servers="127.0.0.1:9", prefix="")


class Broker:
    """It has a topic, which nobody can make again, and tells of it from some look on; the partitions come last."""

    def __init__(self, told_from: int, n_partitions: int) -> None:
        self.looks = 0
        self._told_from, self._n_partitions = told_from, n_partitions

    def list_topics(self, timeout: float) -> Any:
        self.looks += 1
        if self.looks < self._told_from - 1:
            return SimpleNamespace(topics={})
        partitions = dict.fromkeys(range(self._n_partitions if self.looks >= self._told_from else 0))
        return SimpleNamespace(topics={HOSTS.name: SimpleNamespace(partitions=partitions)})

    def create_topics(self, new: list[Any], operation_timeout: float) -> dict[str, Future[None]]:
        refused: Future[None] = Future()
        refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS)))
        return {HOSTS.name: refused}


@pytest.fixture
def broker_that(monkeypatch: pytest.MonkeyPatch):
    def made(told_from: int, n_partitions: int) -> Broker:
        broker = Broker(told_from, n_partitions)
        monkeypatch.setattr(ConnectionErrors, "client", lambda *_: broker)
        monkeypatch.setattr("pacehound.bus.kafka_topics.LOOK_AGAIN_S", 0.0)
        return broker

    return made


def test_it_is_waited_for(broker_that) -> None:
    broker = broker_that(5, HOSTS.partitions)
    ensure_topics(SETTINGS, [HOSTS])
    assert broker.looks == 5


def test_other_partitions_than_ours_are_seen_then_too(broker_that) -> None:
    broker_that(5, HOSTS.partitions + 1)
    with pytest.raises(InvalidInput, match=f"has {HOSTS.partitions + 1} partitions, this version needs"):
        ensure_topics(SETTINGS, [HOSTS])


def test_one_that_does_not_come_is_no_topic(broker_that) -> None:
    broker_that(10**9, HOSTS.partitions)
    with pytest.raises(Unavailable, match=f"topic {HOSTS.name} was made, and 0 s later the broker does not know of it"):
        ensure_topics(SETTINGS, [HOSTS], timeout_s=0)
