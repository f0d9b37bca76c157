"""What a worker of the streams does with messages that are not as they should be, and with a bus that is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from events import call_batch, one_of_each
from poison import every_poison

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import BusFull
from pacehound.model import codec, topics
from pacehound.model.events import DeadLetter, Tick, Topology
from pacehound.model.routing import Event
from pacehound.model.topics import Topic
from pacehound.runtime.metric_names import DEAD_LETTERED, MISSING, PIPELINE_FAILURES, SKIPPED
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from streams.kafka import outputs
from streams.kafka import worker as worker_module
from streams.kafka.going_back import ASKED_AGAIN_AFTER_S
from streams.kafka.partition import Stamp
from streams.kafka.snapshot_records import MARKER
from streams.kafka.worker import StreamsWorker

Place = tuple[str, int]
HOSTS, ROUNDS, CALLS = ("hosts", 0), ("rounds", 0), ("calls", 0)


@dataclass
class FakeGroup:
    """Everything is ours; remembers what it was asked for."""

    sought: list[tuple[Place, int]] = field(default_factory=list)
    committed: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)

    def assigned(self) -> list[Place]:
        return [CALLS, HOSTS, ROUNDS]

    def generation(self) -> int:
        return 1

    def end(self, place: Place) -> int | None:
        return self.ends.get(place)

    async def seek(self, place: Place, offset: int) -> None:
        self.sought.append((place, offset))

    async def commit(self, offsets: Mapping[Place, int]) -> bool:
        self.committed |= offsets
        return True


@dataclass
class FakeProducer:
    """Remembers what it was given; full as often as it is told."""

    sent: list[tuple[str, bytes | None, tuple[tuple[str, bytes], ...]]] = field(default_factory=list)
    full_times: int = 0

    def publish_to(
        self, topic: Topic, partition: int, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        if self.full_times:
            self.full_times -= 1
            raise BusFull("full")
        self.sent.append((topic.name, value, tuple(headers)))

    def flush(self, timeout_s: float) -> None:
        pass

    def is_reachable(self, timeout_s: float) -> bool:
        return True

    def on(self, topic: Topic) -> list[Event]:
        return [event for name, value, _ in self.sent if name == topic.name for event in codec.decode(value or b"")]

    def letters(self) -> list[DeadLetter]:
        return [event for event in self.on(topics.DEAD_LETTERS) if isinstance(event, DeadLetter)]

    def stamps(self) -> list[int]:
        """The numbers of what went to stage two."""
        found = [Stamp.of(headers) for name, _, headers in self.sent if name == "rounds"]
        return [stamp.number for stamp in found if stamp is not None]


@dataclass
class World:
    """A worker, and all around it."""

    group: FakeGroup = field(default_factory=FakeGroup)
    producer: FakeProducer = field(default_factory=FakeProducer)
    telemetry: Telemetry = field(default_factory=Telemetry)
    clock: ManualClock = field(default_factory=lambda: ManualClock(0))
    there: dict[int, int | None] = field(default_factory=dict)
    """By offset, that of the first message from there on."""

    def run(self, act: Callable[[StreamsWorker], Awaitable[None]]) -> None:
        async def inside() -> None:
            await act(StreamsWorker(Settings(), self.group, self.producer, self.telemetry, self.clock))  # type: ignore[arg-type]

        asyncio.run(inside())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(worker_module, "read_to_end", lambda *_: [])
    monkeypatch.setattr(worker_module, "oldest_offsets", lambda _, places: dict.fromkeys(places, 0))
    monkeypatch.setattr(worker_module, "first_offset_from", lambda _k, _p, offset, _t: made.there.get(offset, offset))
    return made


def message(place: Place, offset: int, value: bytes, key: str = "j", **more: Any) -> Message:
    return Message(topic=place[0], partition=place[1], offset=offset, key=key, value=value, **more)


def tick(time_ns: int = 5, stream: str = "host:j/h") -> bytes:
    """On `hosts`: told on to stage two as it is."""
    return codec.encode(Tick(job="j", attempt=0, time_ns=time_ns, stream=stream))


def test_every_poison_is_one_letter_and_what_lies_between_is_told_on(world: World) -> None:
    poisons = [poison for poison in every_poison(topics.HOSTS) if len(poison.payload) < 1_000_000]

    async def act(worker: StreamsWorker) -> None:
        for number, poison in enumerate(poisons):
            await worker.take(message(HOSTS, 2 * number, poison.payload, "host:j/h"))
            await worker.take(message(HOSTS, 2 * number + 1, tick(number), "host:j/h"))
        await worker.keep()

    world.run(act)
    assert [(one.offset, one.error) for one in world.producer.letters()] == [
        (2 * number, poison.error) for number, poison in enumerate(poisons)
    ]
    assert [event.time_ns for event in world.producer.on(topics.ROUNDS)] == list(range(len(poisons)))
    assert world.producer.stamps() == list(range(len(poisons)))
    assert world.telemetry.value(PIPELINE_FAILURES) == 0
    assert world.group.committed == {HOSTS: 2 * len(poisons)}


def test_a_bad_record_does_not_take_the_good_ones_of_its_message_with_it(world: World) -> None:
    foreign = tick(9, stream="host:j/another")
    several = tick(1) + foreign + tick(2)
    world.run(lambda worker: worker.take(message(HOSTS, 0, several, "host:j/h")))
    assert [event.time_ns for event in world.producer.on(topics.ROUNDS)] == [1, 2]
    (letter,) = world.producer.letters()
    assert (letter.error, codec.decode(letter.payload)) == ("InvalidEvent", codec.decode(foreign))


def test_the_key_of_snapshots_and_broken_stamps_are_set_aside_and_counted(world: World) -> None:
    marker = codec.encode(Tick(job=MARKER, attempt=0, time_ns=5, stream="c"))
    header = (("output", b"\xff"),)

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(ROUNDS, 0, marker, MARKER))
        await worker.take(message(ROUNDS, 1, tick(), headers=header))
        await worker.take(message(HOSTS, 0, tick(), "host:j/h", headers=header))
        await worker.keep()

    world.run(act)
    assert [(one.offset, one.error) for one in world.producer.letters()] == [
        (0, "InvalidEvent"),
        (1, "MalformedMessage"),
    ]
    assert world.telemetry.value(DEAD_LETTERED, topic="rounds", error="MalformedMessage") == 1
    assert len(world.producer.on(topics.ROUNDS)) == 1  # a header of somebody else's on `hosts` says nothing
    assert world.group.committed == {ROUNDS: 2, HOSTS: 1}


def test_what_came_before_is_counted_and_not_taken_in_again(world: World) -> None:
    async def act(worker: StreamsWorker) -> None:
        for offset in (0, 1, 0, 1):
            await worker.take(message(HOSTS, offset, tick(offset), "host:j/h"))

    world.run(act)
    assert len(world.producer.on(topics.ROUNDS)) == 2
    assert world.telemetry.value(SKIPPED, topic="hosts") == 2


def test_a_result_that_is_too_large_leaves_no_gap_in_the_numbers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage two would wait behind it for ever."""
    small, large = tick(), tick(stream="host:j/" + "h" * 500)
    monkeypatch.setattr(outputs, "LARGEST_OUTPUT_BYTES", len(small) + 100)
    key = "host:j/" + "h" * 500

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(HOSTS, 0, small, "host:j/h"))
        await worker.take(message(HOSTS, 1, large, key))
        await worker.take(message(HOSTS, 2, small + small, "host:j/h"))

    world.run(act)
    assert world.producer.stamps() == [0, 1, 2]
    (letter,) = world.producer.letters()
    assert (letter.offset, letter.error) == (1, "InvalidEvent")


def test_what_has_not_come_is_asked_for_until_it_comes(world: World) -> None:
    """Nothing new may come on a quiet partition, and the group may have changed while it went back."""

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(HOSTS, 3, tick(3), "host:j/h"))
        await worker.take(message(HOSTS, 4, tick(4), "host:j/h"))
        for _ in range(5):
            world.clock.advance_s(1.0)
            await worker.tick()
        assert world.group.sought == [(HOSTS, 0)] * 3
        for offset in range(5):
            await worker.take(message(HOSTS, offset, tick(offset), "host:j/h"))
        for _ in range(5):
            world.clock.advance_s(1.0)
            await worker.tick()
        assert len(world.group.sought) == 3

    world.run(act)
    assert [event.time_ns for event in world.producer.on(topics.ROUNDS)] == [0, 1, 2, 3, 4]
    assert world.telemetry.value(MISSING, topic="hosts") == 0


async def pass_time(world: World, worker: StreamsWorker, seconds: int) -> None:
    for _ in range(seconds):
        world.clock.advance_s(1.0)
        await worker.tick()


def test_last_messages_that_are_not_brought_are_asked_for_until_they_come(world: World) -> None:
    """Faust lost them, and no later one tells of a gap."""

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(HOSTS, 0, tick(0), "host:j/h"))
        world.group.ends = {HOSTS: 3, ROUNDS: 0}
        await pass_time(world, worker, 10)
        assert world.group.sought == []
        await pass_time(world, worker, 4)
        assert world.group.sought == [(HOSTS, 1), (HOSTS, 1)]
        await worker.take(message(HOSTS, 1, tick(1), "host:j/h"))
        await worker.take(message(HOSTS, 2, tick(2), "host:j/h"))
        await pass_time(world, worker, 30)
        assert len(world.group.sought) == 2

    world.run(act)
    assert [event.time_ns for event in world.producer.on(topics.ROUNDS)] == [0, 1, 2]


def test_while_others_come_messages_may_wait_for_their_turn(world: World) -> None:
    async def act(worker: StreamsWorker) -> None:
        world.group.ends = {CALLS: 36}
        for offset in range(6):
            await worker.take(message(HOSTS, offset, tick(offset), "host:j/h"))
            await pass_time(world, worker, 9)

    world.run(act)
    assert world.group.sought == []


def test_messages_of_which_none_was_ever_brought_are_asked_for(world: World) -> None:
    async def act(worker: StreamsWorker) -> None:
        world.group.ends = {CALLS: 36}
        await pass_time(world, worker, 13)

    world.run(act)
    assert world.group.sought == [(CALLS, 0)]


def test_a_log_that_ends_with_no_message_is_asked_for_each_ten_seconds(world: World) -> None:
    """The end of somebody's transaction is the last offset: nothing is there to come."""
    world.there = {1: None}

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(HOSTS, 0, tick(0), "host:j/h"))
        world.group.ends = {HOSTS: 2}
        await pass_time(world, worker, 35)

    world.run(act)
    assert world.group.sought == [(HOSTS, 1)] * 3
    assert world.telemetry.value(MISSING, topic="hosts") == 0


def test_what_comes_while_another_partition_is_asked_for_is_not_asked_for(world: World) -> None:
    topology = codec.encode(next(event for event in one_of_each() if isinstance(event, Topology)))

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(HOSTS, 3, tick(3), "host:j/h"))
        await worker.take(message(CALLS, 3, topology, "c0"))

        async def seek(place: Place, offset: int) -> None:
            world.group.sought.append((place, offset))
            await worker.take(message(CALLS, 0, topology, "c0"))

        world.group.seek = seek  # type: ignore[method-assign]
        world.clock.advance_s(ASKED_AGAIN_AFTER_S)
        await worker.tick()

    world.run(act)
    assert world.group.sought == [(HOSTS, 0), (CALLS, 0), (HOSTS, 0)]


def test_offsets_without_a_message_hold_nothing_up_and_take_nothing_with_them(world: World) -> None:
    """What marks the end of a transaction takes an offset, and is delivered to nobody."""
    world.there = {0: 2}

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(HOSTS, 3, tick(3), "host:j/h"))
        world.clock.advance_s(ASKED_AGAIN_AFTER_S)
        await worker.tick()
        assert world.group.sought == [(HOSTS, 0), (HOSTS, 2)]
        await worker.take(message(HOSTS, 2, tick(2), "host:j/h"))
        await worker.take(message(HOSTS, 3, tick(3), "host:j/h"))

    world.run(act)
    assert [event.time_ns for event in world.producer.on(topics.ROUNDS)] == [2, 3]
    assert world.telemetry.value(MISSING, topic="hosts") == 2


def test_no_snapshot_is_taken_in_the_middle_of_a_message(world: World) -> None:
    """It would cover the message, and what follows from it would not be in the log."""

    async def act(worker: StreamsWorker) -> None:
        await worker.take(message(HOSTS, 0, tick(0), "host:j/h"))
        world.producer.full_times = 3
        taking = asyncio.create_task(worker.take(message(HOSTS, 1, tick(1), "host:j/h")))
        await asyncio.sleep(0)  # it waits for the bus now
        assert not taking.done()
        keeping = asyncio.create_task(worker.keep())
        await asyncio.gather(taking, keeping)

    world.run(act)
    rounds = [at for at, (topic, _, _) in enumerate(world.producer.sent) if topic == "rounds"]
    snapshots = [at for at, (topic, _, _) in enumerate(world.producer.sent) if topic == "snapshots"]
    assert len(rounds) == 2
    assert max(rounds) < min(snapshots)
    assert world.group.committed == {HOSTS: 2}


def test_calls_are_set_aside_until_somebody_has_announced_them(world: World) -> None:
    topology = next(event for event in one_of_each() if isinstance(event, Topology))
    values = [codec.encode(event) for event in (call_batch(), call_batch(), topology, call_batch(host="node0"))]

    async def act(worker: StreamsWorker) -> None:
        for offset, value in enumerate(values):
            await worker.take(message(CALLS, offset, value, "c0"))

    world.run(act)
    assert [(one.offset, one.error) for one in world.producer.letters()] == [(0, "InvalidEvent"), (1, "InvalidEvent")]
