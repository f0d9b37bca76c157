"""The worker beside its group: what must hold whatever the group does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import InvalidEvent
from pacehound.model import codec, topics
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import HostSample, Tick, Topology, Watermark
from pacehound.model.flushes import Flush
from pacehound.model.operations import OPERATION_SCHEMA, Operations
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.relayed import Relayed
from pacehound.model.routing import Event, route
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from streams.kafka import outputs
from streams.kafka.outputs import Followed, encoded, together, told
from streams.kafka.snapshot_records import SnapshotReader
from streams.kafka.topologies import KnownTopologies
from streams.kafka.worker import StreamsWorker
from tests.fakes.made_pairs import drawn_pairs

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

    def end(self, place: tuple[str, int]) -> int | None:
        return None

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


def test_states_are_not_written_while_what_the_last_message_has_said_is_on_its_way() -> None:
    """The last message of a burst takes long, and what follows from it comes back at once: that is no pause."""

    async def run() -> list[int]:
        world = World(Group())
        await world.hear()
        world.worker._snapshot_times.written(began_s=world.clock.monotonic_s(), took_s=1.0)
        world.clock.advance_s(21)  # they may be written, behind a burst
        tell = world.producer.publish_to

        def tell_slowly(*args, **more) -> None:
            world.clock.advance_s(1)
            tell(*args, **more)

        world.producer.publish_to = tell_slowly  # type: ignore[method-assign]
        await world.hear()
        written = []
        for passes_s in (0.0, 0.5):
            world.clock.advance_s(passes_s)
            await world.worker.keep()
            written.append(len(world.group.committed))
        return written

    assert asyncio.run(run()) == [0, 1]


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


SAME = {"job": "j", "attempt": 0}
FLUSH = Flush(**SAME, host="h", shard=0)  # type: ignore[arg-type]
TICK = Tick(**SAME, time_ns=9, stream="shard:j/0/0")  # type: ignore[arg-type]
TICK_OF_ONE = Tick(**SAME, time_ns=9, stream="a communicator")  # type: ignore[arg-type]
RAISED = Watermark(**SAME, time_ns=9, stream="a")  # type: ignore[arg-type]


def heard(said: Sequence[Event]) -> list[object]:
    """What they tell of, as whoever reads the messages hears it."""
    read = [event for one in said for event in codec.decode(codec.encode(one))]
    return [one for event in read for one in (event.said if isinstance(event, Conclusions) else (event,))]


def lines_of(events: Sequence[object]) -> list[list[int]]:
    tables = [one for one in events if isinstance(one, PairRounds)]
    return [
        [*whose, *end] for one in tables for whose, end in zip(one.ranks.tolist(), one.end_ns.tolist(), strict=True)
    ]


def following(event: Event, results: list[Event | PairRounds]) -> list[Event]:
    return list(told([Followed(event, results)]))


def test_digests_of_many_pairs_are_said_in_pieces_each_no_larger_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MAX_CONCLUDED_CELLS", 20)
    pairs = drawn_pairs(np.random.default_rng(2), 120)
    said = following(FLUSH, [RAISED, pairs, RAISED])
    told = heard(said)
    assert lines_of(told) == lines_of([pairs])
    assert [told[0], told[-1]] == [RAISED, RAISED]
    assert all(isinstance(one, Conclusions) for one in said)
    sizes = [sum(len(one) if isinstance(one, PairRounds) else 0 for one in event.said) for event in said]  # type: ignore[union-attr]
    assert len(pairs) > 50
    assert max(sizes) == 10


def test_digests_of_pairs_travel_among_conclusions_whatever_they_follow_from() -> None:
    """A host's tick, which conclusions do not hold, stays where it was among the others."""
    pairs, silent = drawn_pairs(np.random.default_rng(2), 9), Tick(**SAME, time_ns=9, stream="host:j/h")  # type: ignore[arg-type]
    said = following(TICK, [silent, RAISED, pairs, silent, RAISED])
    assert [type(event) for event in said] == [Tick, Conclusions, Tick, Conclusions]
    told = heard(said)
    assert [one for one in told if not isinstance(one, PairRounds)] == [silent, RAISED, silent, RAISED]
    assert isinstance(told[2], PairRounds)
    assert lines_of(told) == lines_of([pairs])


def test_without_digests_of_pairs_what_follows_from_nothing_of_a_shard_is_said_one_by_one() -> None:
    results: list[Event | PairRounds] = [RAISED, RAISED]
    assert following(TICK_OF_ONE, results) == results
    assert following(FLUSH, []) == []
    assert [type(event) for event in following(FLUSH, results)] == [Conclusions]
    assert [type(event) for event in following(TICK, results)] == [Conclusions]


def test_what_follows_from_flushes_that_came_together_is_said_at_once_and_of_others_apart() -> None:
    another = Flush(**{**SAME, "attempt": 1}, host="h", shard=0)  # type: ignore[arg-type]
    said = list(told([Followed(FLUSH, [RAISED]), Followed(FLUSH, []), Followed(FLUSH, [RAISED, RAISED])]))
    assert [type(event) for event in said] == [Conclusions]
    assert heard(said) == [RAISED] * 3
    apart = [
        Followed(FLUSH, [RAISED]),
        Followed(TICK_OF_ONE, [RAISED]),
        Followed(another, [replace(RAISED, attempt=1)]),
    ]
    assert [(type(event), event.attempt) for event in told(apart)] == [
        (Conclusions, 0),
        (Watermark, 0),
        (Conclusions, 1),
    ]


def test_bodies_are_joined_up_to_what_a_message_may_hold_and_by_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "LARGEST_OUTPUT_BYTES", 7)
    others = Tick(job="k", attempt=0, time_ns=9, stream="host:k/h")
    bodies = [(TICK, b"123"), (TICK, b"45"), (TICK, b"678"), (others, b"9"), (TICK, b"0")]
    assert list(together(bodies)) == [("j", b"12345"), ("j", b"678"), ("k", b"9"), ("j", b"0")]


def test_what_cannot_be_written_is_left_out_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "LARGEST_OUTPUT_BYTES", 400)
    large = Tick(job="j", attempt=0, time_ns=9, stream="host:j/" + "h" * 500)
    bodies, refused = encoded([TICK, large, TICK])
    assert [event for event, _ in bodies] == [TICK, TICK]
    assert isinstance(refused, InvalidEvent)


def test_members_whom_nobody_announces_to_their_home_are_told_of_where_they_are_missing() -> None:
    """Of hosts that are known there homes tell who is silent."""

    async def run() -> list[Event]:
        place = (topics.ROUNDS.name, 0)
        world = World(Group(places=[place]))
        known = Topology(
            **SAME, time_ns=1, host="h", communicator="c", name="world", is_world=True, members=tuple(range(2_048)),
            host_ranks=(8,), world_size=2_048,
        )  # fmt: skip
        event = Relayed(**SAME, shard=1, topologies=(known,))
        _, key = route(event)
        await world.worker.take(Message(topic=place[0], key=key, value=codec.encode(event), partition=0, offset=0))
        await world.pass_time(50)
        assert world.ticks() == 0
        await world.pass_time(30)
        return [event for event in world.producer.events if isinstance(event, Tick)]

    ticks = asyncio.run(run())
    assert {route(tick) for tick in ticks} == {(topics.ROUNDS, "relayed:j/0/1")}
