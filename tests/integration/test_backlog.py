"""A worker of the streams that finds a backlog reads its partitions side by side."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from engine_world import Ours, events_on, is_all_committed

from bench.rig.broker import Broker
from bench.rig.realjob import until
from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.model import topics
from pacehound.model.events import DeadLetter
from pacehound.settings import KafkaSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

PARTITIONS, MESSAGES, MESSAGE_BYTES = 6, 60, 200_000
"""72 MB, more than comes with one request however it is asked for."""
AHEAD = 12
"""Messages: what two requests bring of a partition, and what is on its way, is less."""
WITHIN_S = 120


def test_no_partition_of_a_backlog_is_read_far_ahead_of_others(broker: Broker, tmp_path: Path) -> None:
    """What cannot be read is set aside in the order in which it was taken: dead letters tell that."""
    kafka = KafkaSettings(servers=broker.servers, prefix="backlog.")
    ensure_topics(kafka)
    noise = random.Random(23)
    producer = KafkaProducer(kafka, "test")
    for _ in range(MESSAGES):
        for partition in range(PARTITIONS):
            producer.publish_to(topics.CALLS, partition, b"c", b"\xff" + noise.randbytes(MESSAGE_BYTES))
        producer.flush(60)
    producer.close()
    with Ours("streams", kafka, tmp_path / "log"):
        until("all is read", lambda: is_all_committed(kafka, "streams", [topics.CALLS]), WITHIN_S, 0.2)
    taken: Counter[int] = Counter(dict.fromkeys(range(PARTITIONS), 0))
    ahead = 0
    for letter in events_on(kafka, topics.DEAD_LETTERS):
        assert isinstance(letter, DeadLetter)
        taken[letter.partition] += 1
        ahead = max(ahead, max(taken.values()) - min(taken.values()))
    assert set(taken.values()) == {MESSAGES}
    assert ahead <= AHEAD
