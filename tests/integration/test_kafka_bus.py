"""The Kafka bus on a real broker: what every bus promises, restarts, back-pressure, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.rig.broker import Broker, free_ports
from bench.rig.realjob import until
from pacehound.bus.kafka import KafkaConsumer, KafkaProducer
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.errors import BusFull, InvalidEvent, InvalidInput, InvalidSetting, Unavailable
from pacehound.model.topics import CALLS, FINDINGS, HOSTS, TOPICS, Topic
from pacehound.settings import KafkaSettings
from tests.contract.bus_contract import BusContract, read, values

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]


@pytest.fixture
def settings(broker: Broker, request: pytest.FixtureRequest) -> KafkaSettings:
    made = KafkaSettings(servers=broker.servers, prefix=f"{request.node.name}.")
    ensure_topics(made, [CALLS, FINDINGS, HOSTS])
    return made


class KafkaBus:
    """One producer, and consumers of different groups."""

    def __init__(self, settings: KafkaSettings, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._settings = settings
        self._producer = KafkaProducer(settings, "test", max_bytes=max_bytes)
        self._consumers: list[KafkaConsumer] = []
        self.publish = self._producer.publish

    def subscribe(self, topics: list[Topic]) -> KafkaConsumer:
        self._consumers.append(KafkaConsumer(self._settings, f"readers-{len(self._consumers)}", topics))
        return self._consumers[-1]

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        self._producer.close()


class TestKafkaBus(BusContract):
    @pytest.fixture
    def make_bus(self, settings: KafkaSettings) -> Iterator[Callable[..., KafkaBus]]:
        made: list[KafkaBus] = []

        def make(**bounds: int) -> KafkaBus:
            made.append(KafkaBus(settings, **bounds))
            return made[-1]

        yield make
        for bus in made:
            bus.close()


def test_a_consumer_that_comes_back_reads_what_was_not_committed_again(settings: KafkaSettings) -> None:
    producer = KafkaProducer(settings, "test")
    for number in range(10):
        producer.publish(HOSTS, "h", str(number).encode())
    producer.flush(30)
    first = KafkaConsumer(settings, "readers", [HOSTS])
    assert len(read(first, 10)) == 10
    (place,) = first.positions
    first.commit_to({place: 4})
    first.close()
    second = KafkaConsumer(settings, "readers", [HOSTS])
    assert values(read(second, 6)) == [str(n).encode() for n in range(4, 10)]
    second.close()
    producer.close()


@pytest.mark.prove
def test_a_full_queue_says_so_and_what_it_holds_arrives_when_the_broker_is_back(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path / "kafka")
    broker.start()
    try:
        settings = KafkaSettings(servers=broker.servers)
        ensure_topics(settings, [CALLS])
        producer = KafkaProducer(settings, "test", max_bytes=100_000)
        producer.publish(CALLS, "c", b"first")
        producer.flush(30)
        broker.kill()
        held = 99
        for number in range(held):
            producer.publish(CALLS, "c", b"%06d" % number + b"." * 1_000)
        with pytest.raises(BusFull, match="bytes wait for Kafka"):
            producer.publish(CALLS, "c", bytes(1_000))
        with pytest.raises(Unavailable, match="did not acknowledge"):
            producer.flush(0.1)
        broker.start()
        producer.flush(60)
        consumer = KafkaConsumer(settings, "readers", [CALLS])
        found = [value[:6] for value in values(read(consumer, held + 1))]
        assert found == [b"first", *(b"%06d" % number for number in range(held))]
        consumer.close()
        producer.close()
    finally:
        broker.stop()


def test_topics_are_made_once_and_another_number_of_partitions_is_refused(settings: KafkaSettings) -> None:
    ensure_topics(settings, [CALLS, HOSTS])
    wider = replace(TOPICS["hosts"], partitions=9)
    with pytest.raises(InvalidInput, match="has 8 partitions, this version needs 9"):
        ensure_topics(settings, [wider])


def test_what_cannot_be_used_is_said_with_its_value(settings: KafkaSettings, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"kafka\.servers is not set"):
        KafkaProducer(KafkaSettings(), "test")
    with pytest.raises(InvalidSetting, match="cannot be read"):
        KafkaProducer(replace(settings, client_file=str(tmp_path / "none")), "test")
    wrong = tmp_path / "client.properties"
    wrong.write_text("# SASL\nsecurity.protocol SASL_SSL\n", encoding="utf-8")
    with pytest.raises(InvalidSetting, match="line 2 has no '='"):
        KafkaProducer(replace(settings, client_file=str(wrong)), "test")
    with pytest.raises(InvalidEvent, match="larger than"):
        KafkaProducer(settings, "test").publish(CALLS, "c", bytes(17 * 1024 * 1024))
    (port,) = free_ports(1)
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
        ensure_topics(KafkaSettings(servers=f"127.0.0.1:{port}"), timeout_s=1)
    unknown = Topic(name="unknown", key="none", partitions=1, retention_s=60)
    consumer = KafkaConsumer(settings, "readers", [unknown])

    def is_refused() -> bool:
        try:
            return bool(consumer.poll(1, 0.1))
        except Unavailable as error:
            return "nknown" in str(error)

    until("it is refused", is_refused, 60, 0.0)
    consumer.close()
