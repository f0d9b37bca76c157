"""Actuators on Kafka: each decision once, by what the log says was decided, whoever has the partition."""

from __future__ import annotations

from dataclasses import replace

from actuators.worker import REMEMBERED, ActuatorWorker
from pacehound.bus import Message
from pacehound.model.events import Decision, Incident
from tests.fakes.events import incident


def taken(worker: ActuatorWorker, one: Incident, partition: int = 0) -> list[Decision]:
    message = Message(topic="incidents", key=one.job, partition=partition, offset=0, value=b"")
    return [event for event in worker.on_event(one, message) if isinstance(event, Decision)]


def test_a_version_that_comes_again_adds_nothing_also_after_the_incident_was_closed() -> None:
    worker = ActuatorWorker(lambda _: [])
    assert taken(worker, incident()) != []
    assert taken(worker, incident(version=1)) == []
    assert [decision.is_last for decision in taken(worker, incident(version=2, state="closed"))] == [True]
    assert taken(worker, incident(version=2, state="closed")) == []
    assert taken(worker, incident()) == []


def test_whoever_takes_a_partition_over_knows_what_was_decided() -> None:
    log: list[Decision] = []
    first, second = ActuatorWorker(lambda _: log), ActuatorWorker(lambda _: log)
    log += taken(first, incident())
    assert log
    assert taken(second, incident(version=1)) == []
    first.on_revoked([("incidents", 0)])
    log.clear()
    assert taken(first, incident()) != [], "it asks again what was decided"


def test_partitions_are_remembered_apart_and_read_when_they_are_met() -> None:
    asked: list[int] = []

    def decided(partition: int) -> list[Decision]:
        asked.append(partition)
        return []

    worker = ActuatorWorker(decided)
    taken(worker, incident(), 0)
    taken(worker, incident(id="i1"), 3)
    taken(worker, incident(id="i2"), 3)
    assert asked == [0, 3]


def test_what_was_decided_is_remembered_for_so_long_and_not_for_ever() -> None:
    worker = ActuatorWorker(lambda _: [])
    opened = incident()
    said = sum(len(taken(worker, replace(opened, id=f"{number:032x}"))) for number in range(REMEMBERED + 1))
    assert said > REMEMBERED
    assert taken(worker, replace(opened, id=f"{REMEMBERED:032x}")) == []
    assert sum(map(len, worker._said.values())) == REMEMBERED
