"""Puts the events of a simulated job on Kafka at the time at which its agents would."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pacehound.clock import Clock
from pacehound.errors import BusFull
from pacehound.model import codec, topics
from pacehound.model.calls import CallBatch
from pacehound.model.events import Topology
from pacehound.model.routing import Event, route
from pacehound.model.topics import Topic
from pacehound.runtime.liveness import Pulse

if TYPE_CHECKING:
    from pacehound.bus.kafka import KafkaProducer

BUSY_S = 0.05
LONGEST_WAIT_S = 5.0


def feed(
    events: Iterable[Event],
    producer: KafkaProducer,
    clock: Clock,
    pulse: Pulse,
    stopping: threading.Event,
    *,
    is_paced: bool,
) -> int:
    """Publish events in order, and say how many they were.

    Parameters
    ----------
    events
        As `simulator.job.Simulation.events` gives them.
    producer
        To Kafka; a full one is waited for.
    clock, pulse, stopping
        The time, where it shows that it lives, and whether to end.
    is_paced
        No event is sent before its own time.

    Raises
    ------
    Unavailable
        Kafka takes nothing any more.

    """
    sent = 0
    for event in events:
        while is_paced and not stopping.is_set() and (wait_ns := due_ns(event) - clock.now_ns()) > 0:
            pulse.beat()
            stopping.wait(min(wait_ns / 1e9, LONGEST_WAIT_S))
        if stopping.is_set():
            break
        pulse.beat()
        topic, key = route(event)
        value = codec.encode(event)
        _put(producer, topic, key, value, stopping)
        if isinstance(event, Topology):
            _put(producer, topics.TOPOLOGY, key, value, stopping)
        sent += 1
    return sent


def due_ns(event: Event) -> int:
    """When an agent could have sent an event at the earliest: a batch, when its last call had ended."""
    if not isinstance(event, CallBatch):
        return event.time_ns
    return int(max(event.integers("end_ns").max(initial=0), event.integers("launch_ns").max(initial=0)))


def _put(producer: KafkaProducer, topic: Topic, key: str, value: bytes, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            producer.publish(topic, key, value)
            return
        except BusFull:
            stopping.wait(BUSY_S)
