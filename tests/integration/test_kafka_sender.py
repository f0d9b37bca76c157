"""The agent's way to a real broker: what is not acknowledged in time, what is never taken, what is not there yet."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.rig.broker import Broker, free_ports
from bench.rig.realjob import until
from collector.host.kernel_files import text_of
from pacehound.bus.kafka_reader import read_to_end
from pacehound.bus.kafka_sender import KafkaSender
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.bus.otlp import SendResult
from pacehound.errors import MalformedMessage, RejectedMessage, Unavailable
from pacehound.model import codec
from pacehound.model.events import HostSample, Topology
from pacehound.model.topics import CALLS, HOSTS
from pacehound.settings import KafkaSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> KafkaSettings:
    return KafkaSettings(servers=broker.servers, prefix=f"{tmp_path.name}.")


def samples(first: int, n: int, width: int = 0) -> list[bytes]:
    """Of one host, in order."""
    said = [
        HostSample(job="j", attempt=0, time_ns=t, host="h", processes=(), closed_why="." * width)
        for t in range(first, first + n)
    ]
    return [codec.encode(sample) for sample in said]


def test_a_broker_that_stands_still_gets_it_again_from_the_first_on_and_in_order(
    broker_alone: Broker, tmp_path: Path
) -> None:
    pid, settings = broker_alone.pid, broker_alone.settings(f"{tmp_path.name}.")
    sender = KafkaSender(settings, "test", acknowledged_within_s=1.0)
    before, held, after = samples(0, 10), samples(10, 200, 1_000), samples(210, 10)
    assert until("the topics", lambda: taken(sender, before), 60, 0.1) == SendResult()
    os.kill(pid, signal.SIGSTOP)
    try:
        until("it stands still", lambda: all(state == "T" for state in thread_states(pid)), 60, 0.01)
        for _ in range(2):
            with pytest.raises(Unavailable, match=settings.servers):
                sender.send(held)
    finally:
        os.kill(pid, signal.SIGCONT)
    until("it is taken", lambda: taken(sender, held), 60, 0.1)
    until("the rest is taken", lambda: taken(sender, after), 60, 0.1)
    sender.close()
    arrived = events_of(settings)
    # Whole stretches from the first message on: in what is left when repeats are dropped, nothing has moved.
    assert list(dict.fromkeys(arrived)) == [*before, *held, *after]
    assert set(arrived[-10:]) == set(after)


def events_of(settings: KafkaSettings) -> list[bytes]:
    """What has arrived, one event each however they were joined."""
    return [codec.encode(event) for message in read_to_end(settings, HOSTS) for event in codec.decode(message.value)]


def thread_states(pid: int) -> list[str]:
    """A thread that ends while it is read has none."""
    stats = [text_of(path) for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return [stat.rpartition(")")[2].split()[0] for stat in stats if stat]


def taken(sender: KafkaSender, messages: list[bytes]) -> SendResult | None:
    try:
        return sender.send(messages)
    except Unavailable:
        return None


def test_one_message_that_is_never_taken_is_refused_and_the_next_ones_go_on(
    broker: Broker, settings: KafkaSettings
) -> None:
    topics = [replace(topic, retention_s=60) for topic in (CALLS, HOSTS)]
    ensure_topics(settings, topics)
    narrow(broker, settings.prefix + HOSTS.name)
    sender = KafkaSender(settings, "test", acknowledged_within_s=20.0)
    with pytest.raises(RejectedMessage, match="too large"):
        sender.send([incompressible(100_000)])
    with pytest.raises(MalformedMessage):
        sender.send([b"\xff"])
    sender.send(samples(0, 3))
    sender.close()
    assert events_of(settings) == samples(0, 3)


def incompressible(n: int) -> bytes:
    return codec.encode(
        HostSample(job="j", attempt=0, time_ns=1, host="h", processes=(), closed_why=os.urandom(n).hex())
    )


def narrow(broker: Broker, topic: str) -> None:
    """A topic of a cluster whose owner allows small messages only."""
    entry = ConfigEntry("max.message.bytes", "50000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)

    def is_narrow() -> bool:  # the broker says yes before it does it
        (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        try:
            return bool(found.result(30)["max.message.bytes"].value == "50000")
        except KafkaException:  # nor does it know the topic at once
            return False

    until("the topic is narrow", is_narrow, 60, 0.1)


def test_a_topology_goes_to_both_its_topics(settings: KafkaSettings) -> None:
    said = Topology(
        job="j",
        attempt=0,
        time_ns=1,
        host="h",
        communicator="c",
        name="world",
        is_world=True,
        members=(0,),
        host_ranks=(0,),
        world_size=1,
    )
    sender = KafkaSender(settings, "test", acknowledged_within_s=20.0)
    sender.send([codec.encode(said)])
    sender.close()
    (message,) = read_to_end(settings, CALLS)
    assert (message.key, codec.decode(message.value)) == ("c", [said])


def test_nobody_there_and_a_cluster_of_another_version_are_waited_for(settings: KafkaSettings) -> None:
    (port,) = free_ports(1)
    nowhere = KafkaSender(replace(settings, servers=f"127.0.0.1:{port}"), "test", acknowledged_within_s=0.5)
    with pytest.raises(Unavailable, match=str(port)):
        nowhere.send(samples(0, 1))
    nowhere.close()
    ensure_topics(settings, [replace(HOSTS, partitions=3)])
    sender = KafkaSender(settings, "test", acknowledged_within_s=20.0)
    with pytest.raises(Unavailable, match="has 3 partitions"):
        sender.send(samples(0, 1))
    sender.close()
