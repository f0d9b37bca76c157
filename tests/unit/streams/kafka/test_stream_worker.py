"""The worker beside its group: what must hold whatever the group does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model import codec, topics
from pacehound.model.events import HostSample
from pacehound.model.operations import OPERATION_SCHEMA, Operations
from pacehound.model.routing import Event, route
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from streams.kafka.partition import SnapshotReader
from streams.kafka.topologies import KnownTopologies
from streams.kafka.worker import StreamsWorker

PLACE = (topics.HOSTS.name, 0)


@dataclass
class Group:
    """Has one partition or none, and refuses so many commits."""

    refusals: int = 0
    places: list[tuple[str, int]] = field(default_factory=lambda: [PLACE])
    number: int = 1
    committed: list[Mapping[tuple[str, int], int]] = field(default_factory=list)

    def assigned(self) -> list[tuple[str, int]]:
        return self.places

    def generation(self) -> int:
        return self.number

    async def seek(self, place: tuple[str, int], offset: int) -> None:
        raise AssertionError("nobody goes back here")

    async def commit(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.committed.append(dict(offsets))
        return True


class Producer:
    """Takes everything."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def publish_to(self, topic, partition, key, value, headers=()) -> None:
        if topic is not topics.SNAPSHOTS:
            self.events += codec.decode(value)

    def flush(self, timeout_s: float) -> None: ...

    def is_reachable(self, timeout_s: float) -> bool:
        return True


class FirstWorker(StreamsWorker):
    """Nobody has written a snapshot; the log begins at `oldest`."""

    oldest = 0

    def _read(self, places):
        return SnapshotReader(), dict.fromkeys(places, self.oldest)

    def _read_topologies(self):
        return KnownTopologies()


@dataclass
class World:
    """A worker with a host on its one partition."""

    group: Group
    producer: Producer = field(default_factory=Producer)
    clock: ManualClock = field(default_factory=ManualClock)
    offset: int = 0

    def __post_init__(self) -> None:
        self.worker = FirstWorker(Settings(), self.group, self.producer, Telemetry(), self.clock)

    async def hear(self) -> None:
        event = HostSample(job="j", attempt=0, time_ns=self.clock.now_ns(), host="h", processes=())
        _, key = route(event)
        at = {"partition": 0, "offset": self.offset}
        self.worker.oldest = self.offset
        await self.worker.take(Message(topic=PLACE[0], key=key, value=codec.encode(event), **at))
        self.offset += 1

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance_s(1)
            await self.worker.keep()
            await self.worker.tick()

    def ticks(self) -> int:
        return sum(type(event).__name__ == "Tick" for event in self.producer.events)


def test_a_commit_that_the_group_refuses_is_made_later_though_no_message_comes() -> None:
    async def run() -> Group:
        world = World(Group(refusals=2))
        await world.hear()
        await world.pass_time(20)
        return world.group

    assert asyncio.run(run()).committed == [{PLACE: 1}]


def test_operations_go_on_to_stage_two() -> None:
    async def run() -> list[Event]:
        place = (topics.OPS.name, 0)
        world = World(Group(places=[place]))
        rows = pa.RecordBatch.from_pydict({field.name: [0] for field in OPERATION_SCHEMA}, schema=OPERATION_SCHEMA)
        event = Operations(job="j", attempt=0, host="h", rows=rows)
        _, key = route(event)
        message = Message(topic=place[0], key=key, value=codec.encode(event), partition=0, offset=0)
        await world.worker.take(message)
        await world.pass_time(20)
        return world.producer.events

    (passed_on,) = asyncio.run(run())
    assert isinstance(passed_on, Operations)


def test_a_silent_host_on_a_partition_of_ours_is_told_of() -> None:
    async def run() -> int:
        world = World(Group())
        await world.hear()
        await world.pass_time(30)
        return world.ticks()

    assert asyncio.run(run()) > 0


def test_what_went_to_another_worker_is_not_called_silent_here() -> None:
    """And what comes back has some seconds to be heard."""

    async def run() -> tuple[int, int]:
        world = World(Group())
        await world.hear()
        await world.pass_time(2)
        world.group.places, world.group.number = [], 2
        await world.pass_time(60)
        while_away = world.ticks()
        world.group.places, world.group.number = [PLACE], 3
        await world.hear()
        await world.pass_time(9)
        return while_away, world.ticks()

    assert asyncio.run(run()) == (0, 0)
