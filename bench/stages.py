"""What the two stages of the streams take of a processor, in this process and without Kafka, per batch of calls.

`python -m bench stages` shows where a change of the worker's code goes, where the real thing (`engine`) has a broker's
noise in it. A batch is what one host says of one communicator at a flush, as in `engine`. Hosts say their batches
together, as agents do (`agent.messages`), or apart, or they tell of iterations together (`agent.digests_from_ranks`);
all forms of one job are worked on in turns, so that what else the machine does meets all. Messages pass through the
worker as they do there: decoded, worked on, encoded. Starting, the group and snapshots are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from bench.engine import LAYOUTS
from bench.rig.digesting_agents import DigestingAgents
from bench.rig.flushes import flushed_every, messages_of, together
from pacehound.bus import Message, Place
from pacehound.clock import SystemClock
from pacehound.model import topics
from pacehound.model.calls import CallBatch
from pacehound.model.events import Markers
from pacehound.model.routing import Event
from pacehound.model.shards import RELAYED_KEY
from pacehound.model.topics import Topic
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from streams import native_loops
from streams.kafka.snapshot_records import SnapshotReader
from streams.kafka.worker import INPUTS, StreamsWorker

CASES = ((16, 1, 300), (16, 8, 300), (256, 1, 20), (256, 1, 14, 15.0), (256, 8, 40), (4_096, 1, 2), (16_384, 1, 1))
"""Ranks, flush in seconds, iterations, and how many times as long as 0.15 s each of them takes."""

TURNS = 3


def run() -> list[dict[str, Any]]:
    """One row per case and figure."""
    return [row for case in CASES for row in measured(*case)]


def measured(
    ranks: int, flush_s: int, iterations: int, times_longer: float = 1.0, turns: int = TURNS
) -> list[dict[str, Any]]:
    """All forms of one job, each the fastest of its turns."""
    native_loops.loaded()
    usual = JobSpec(layout=LAYOUTS[ranks][0], iterations=iterations, source=DEVICE_TIMES)
    spec = usual.with_longer_iterations(times_longer)
    told = list(simulate(spec).events())
    events = list(flushed_every(told, flush_s))
    sizes = [len(event) for event in events if isinstance(event, CallBatch)]
    # Marks of iterations wait for the flush that tells of them.
    digests = together(flushed_every(DigestingAgents(told, flush_s).send(told), 1), digests_from_ranks=1)
    forms = {"apart": _messages(events), "together": _messages(together(events)), "digests": _messages(digests)}
    ends_ns = [time_ns for event in told if isinstance(event, Markers) for time_ns in event.times_ns]
    lasted_s = (max(ends_ns) - min(ends_ns)) / 1e9 * iterations / max(iterations - 1, 1)  # and the first one
    taken: dict[str, list[tuple[float, float]]] = {form: [] for form in forms}
    for _ in range(turns):
        for form, messages in forms.items():
            taken[form].append(asyncio.run(_worked(messages)))
    rows: list[dict[str, Any]] = []
    where = f"{ranks:,} ranks, flush {flush_s} s, iterations of {lasted_s / iterations:.2g} s"
    for form, messages in forms.items():
        one_s, two_s = min(taken[form], key=sum)
        case = f"{where}, {len(sizes):,} batches, {len(messages):,} messages, {form}"
        for figure, value, unit in (
            ("stage one", 1e6 * one_s / len(sizes), "us/batch"),
            ("stage two", 1e6 * two_s / len(sizes), "us/batch"),
            ("both, per core", sum(sizes) / (one_s + two_s), "calls/s"),
            ("both, for 16,384 ranks", (one_s + two_s) / lasted_s / ranks * 16_384, "cores"),
        ):
            rows.append({"case": case, "figure": figure, "value": value, "unit": unit})
    apart_s, together_s, digests_s = (min(map(sum, taken[form])) for form in forms)
    rows.append({"case": where, "figure": "apart / together", "value": apart_s / together_s, "unit": "x"})
    return [*rows, {"case": where, "figure": "together / digests", "value": together_s / digests_s, "unit": "x"}]


async def _worked(messages: list[Message]) -> tuple[float, float]:
    """Processor time of both stages, in seconds."""
    log = _Log()
    worker = _WorkerFromTheStart(Settings(), _AllPartitions(), log, Telemetry(), SystemClock())  # type: ignore[arg-type]
    one_s = two_s = 0.0
    for taken in (messages, log.rounds):  # which grows while it is taken, by what homes have relayed
        for message in taken:
            before_s = time.process_time()
            await worker.take(message)
            took_s = time.process_time() - before_s
            is_of_job = message.topic == topics.ROUNDS.name and not message.key.startswith(RELAYED_KEY)
            one_s, two_s = (one_s, two_s + took_s) if is_of_job else (one_s + took_s, two_s)
    return one_s, two_s


def _messages(events: Iterable[Event]) -> list[Message]:
    """As an agent's on Kafka: what a host says at once of one key is one message."""
    log = _Log()
    names = {topic.name for topic in INPUTS}
    for _, messages in messages_of(events):
        for topic, key, value in messages:
            if topic.name in names:
                log.append(topic, topics.partition_of(key.encode(), topic.partitions), key.encode(), value)
    return log.messages


class _Log:
    """Messages with the offsets that Kafka would give them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.rounds: list[Message] = []
        self._ends: dict[Place, int] = {}

    def append(
        self, topic: Topic, partition: int, key: bytes, value: bytes, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> Message:
        offset = self._ends.get((topic.name, partition), 0)
        self._ends[topic.name, partition] = offset + 1
        self.messages.append(
            Message(
                topic=topic.name,
                key=key.decode(),
                partition=partition,
                offset=offset,
                value=value,
                headers=headers,
            )
        )
        return self.messages[-1]

    def publish_to(
        self, topic: Topic, partition: int, key: bytes, value: bytes, headers: tuple[tuple[str, bytes], ...] = ()
    ) -> None:
        if topic is topics.ROUNDS:
            self.rounds.append(self.append(topic, partition, key, value, headers))


class _AllPartitions:
    """A group of one worker."""

    def assigned(self) -> list[Place]:
        return [(topic.name, number) for topic in INPUTS for number in range(topic.partitions)]

    def generation(self) -> int:
        return 1


class _WorkerFromTheStart(StreamsWorker):
    """Finds no snapshots, and every partition from its first message on."""

    def _read(self, places: list[Place]) -> Any:
        return SnapshotReader(), dict.fromkeys(places, 0)
