"""A job whose state is lost and which is older than what the log keeps goes on, in both stages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from bench.rig.flushes import together
from pacehound.bus import Message, Place
from pacehound.clock import ManualClock
from pacehound.model import codec, topics
from pacehound.model.calls import CallBatch
from pacehound.model.events import DeadLetter, Finding, Topology
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event, route
from pacehound.model.topics import Topic
from pacehound.model.topology import Layout
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from streams.kafka import worker as worker_module
from streams.kafka.snapshot_records import record_key
from streams.kafka.topologies import KnownTopologies
from streams.kafka.worker import StreamsWorker
from streams.snapshots.schema import SCHEMA_VERSION

SPEC = JobSpec(
    layout=Layout(tp=2, dp=2),
    iterations=240,
    source=DEVICE_TIMES,
    faults=(SlowCompute(ranks=(3,), factor=2.0, from_step=180),),
)


@dataclass
class Log:
    """Topics of one partition each, and a group in which everything is ours."""

    messages: dict[str, list[Message]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    """By topic, the offset of the first message that is kept: what stood there before a worker begins has expired."""

    def publish_to(
        self, topic: Topic, partition: int, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> None:
        log = self.messages.setdefault(topic.name, [])
        log.append(
            Message(
                topic=topic.name,
                partition=0,
                offset=len(log),
                key=key.decode(),
                value=value or b"",
                headers=tuple(headers),
            )
        )

    def flush(self, timeout_s: float) -> None: ...

    def assigned(self) -> list[Place]:
        return [(name, 0) for name in ("calls", "hosts", "ops", "rounds")]

    def generation(self) -> int:
        return 1

    def end(self, place: Place) -> int | None:
        return None

    async def seek(self, place: Place, offset: int) -> None:
        raise AssertionError(f"{place} is to begin at {offset}")

    def events(self, topic: Topic) -> list[Event]:
        return [event for one in self.messages.get(topic.name, []) for event in codec.decode(one.value)]

    def work(self, events: Sequence[Event]) -> None:
        """A worker that finds nothing but what stands on these topics takes the events in, and what follows."""

        async def inside() -> None:
            worker = StreamsWorker(Settings(), self, self, Telemetry(), ManualClock(0))  # type: ignore[arg-type]
            self.first = {name: len(messages) for name, messages in self.messages.items()}
            at = self.first.get("rounds", 0)
            for event in events:
                topic, key = route(event)
                self.publish_to(topic, 0, key.encode(), codec.encode(event))
                await worker.take(self.messages[topic.name][-1])
                for message in self.messages.get("rounds", [])[at:]:
                    await worker.take(message)
                    at += 1

        asyncio.run(inside())


def announced(events: Iterable[Event]) -> list[Topology]:
    """All topologies, also those that hosts say at once with their calls."""
    of_each = (event.topologies if isinstance(event, Flush) else [event] for event in events)
    return [one for said in of_each for one in said if isinstance(one, Topology)]


Recorded = tuple[list[Event], list[Event]]


@pytest.fixture(params=["communicator by communicator", "at once"])
def recorded(request: pytest.FixtureRequest) -> Recorded:
    """The first and the second half of what the hosts of a job say."""
    events = list(simulate(SPEC).events())
    events = events if request.param == "communicator by communicator" else list(together(events))
    half = len(events) // 2
    assert not announced(events[half:])
    return events[:half], events[half:]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(worker_module, "read_to_end", lambda _, topic: made.messages.get(topic.name, []))
    monkeypatch.setattr(
        worker_module, "oldest_offsets", lambda _, places: {place: made.first.get(place[0], 0) for place in places}
    )
    return made


def lose_the_states(log: Log) -> None:
    """Workers of another schema have left snapshots that this one cannot read."""
    for topic, key in sorted({(m.topic, m.key) for name in ("calls", "hosts", "rounds") for m in log.messages[name]}):
        record = record_key(topic, 0, SCHEMA_VERSION + 1, "old.0", 0, key)
        log.publish_to(topics.SNAPSHOTS, 0, record, b"9 1 another schema")


def test_a_job_older_than_the_log_goes_on_where_its_state_is_lost(log: Log, recorded: Recorded) -> None:
    before, after = recorded
    log.work(before)
    assert log.events(topics.FINDINGS) == []
    lose_the_states(log)
    log.work(after)
    assert [event for event in log.events(topics.DEAD_LETTERS) if isinstance(event, DeadLetter)] == []
    named = {event.culprits for event in log.events(topics.FINDINGS) if isinstance(event, Finding) and event.culprits}
    assert named == {(3,)}


def test_what_no_record_speaks_of_is_set_aside(log: Log, recorded: Recorded) -> None:
    """The test above would show it: without the records the same calls are refused."""
    before, after = recorded
    log.work(before)
    lose_the_states(log)
    del log.messages["topology"]
    log.work(after)
    assert len(log.events(topics.DEAD_LETTERS)) >= sum(isinstance(event, (CallBatch, Flush)) for event in after)


def test_records_are_removed_when_their_communicators_have_closed(log: Log, recorded: Recorded) -> None:
    before, after = recorded
    log.work(before + after[:-40])
    kept = log.messages["topology"]
    assert len(kept) == sum(isinstance(event, Topology) or bool(announced([event])) for event in before)
    assert {one.identity() for one in announced(log.events(topics.TOPOLOGY))} == {
        one.identity() for one in announced(before)
    }
    assert all(int(dict(one.headers)["at"]) >= 0 for one in kept)
    log.messages.clear()
    log.work([*before, *after])
    assert {one.key for one in log.messages["topology"] if not one.value} == {one.key for one in kept}
    assert KnownTopologies.read(log.messages["topology"]) == KnownTopologies()


def as_kept_before(log: Log) -> None:
    """Each topology a record of its own, as workers did until a message was one."""
    kept, log.messages["topology"] = log.messages["topology"], []
    for message in kept:
        said = dict(message.headers)
        for one in announced(codec.decode(message.value)):
            headers = [("communicator", one.communicator.encode()), *((name, said[name]) for name in ("job", "at"))]
            headers += [("key", said["key"])] if said["key"].decode() != one.communicator else []
            log.publish_to(topics.TOPOLOGY, 0, one.identity().encode(), codec.encode(one), headers)


def test_records_of_workers_of_before_are_read_and_removed_as_well(log: Log, recorded: Recorded) -> None:
    before, after = recorded
    log.work(before)
    as_kept_before(log)
    lose_the_states(log)
    log.work(after)
    assert [event for event in log.events(topics.DEAD_LETTERS) if isinstance(event, DeadLetter)] == []
    assert KnownTopologies.read(log.messages["topology"]) == KnownTopologies()


def test_records_of_before_are_removed_also_where_the_log_has_forgotten_nothing(log: Log, recorded: Recorded) -> None:
    """The state is lost with another schema; the job is told anew from its first message on."""
    before, after = recorded
    log.work(before)
    as_kept_before(log)
    lose_the_states(log)
    for name in ("calls", "hosts", "ops", "rounds", "findings"):
        log.messages.pop(name, None)
    log.work([*before, *after])
    assert KnownTopologies.read(log.messages["topology"]) == KnownTopologies()


def test_what_stands_behind_the_first_message_is_told_by_the_log_alone(log: Log, recorded: Recorded) -> None:
    """Else the outputs of two workers that begin at the same message would differ."""
    before, _ = recorded
    log.work(before)
    said = [message.value for message in log.messages["rounds"]]
    lose_the_states(log)
    for name in ("calls", "hosts", "rounds"):
        del log.messages[name]
    log.work(before)
    assert [message.value for message in log.messages["rounds"]] == said
