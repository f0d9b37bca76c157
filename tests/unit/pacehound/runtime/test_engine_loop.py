"""The loop of a process: what is confirmed, what is tried again, what is set aside, and what is forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from events import incident, one_of_each
from poison import every_poison

from pacehound.bus import Message, Place
from pacehound.clock import ManualClock
from pacehound.errors import BusFull, InvalidEvent, Unavailable
from pacehound.model import codec, topics
from pacehound.model.events import DeadLetter, Decision, Incident, IterationSample
from pacehound.model.routing import Event
from pacehound.model.topics import Topic
from pacehound.runtime.event_loop import MOST_TOGETHER, EventLoop, EventWorker
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.metric_names import (
    COMMIT_FAILURES,
    DEAD_LETTERED,
    LAST_BATCH,
    MESSAGES,
    RETRIES,
    STAGE_RUNS,
    WORKER_FAILURES,
)
from pacehound.runtime.phases import Stages
from pacehound.runtime.telemetry import Telemetry


class FakeConsumer:
    """Hands out what it is given, unless it is paused."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.committed: dict[Place, int] = {}
        self.is_paused = self.is_closed = self.refuses_commits = False
        self.on_revoked: Callable[[list[Place]], None] = lambda _: None

    def poll(self, max_messages: int, timeout_s: float = 0.0) -> list[Message]:
        if self.is_paused:
            return []
        taken, self.messages = self.messages[:max_messages], self.messages[max_messages:]
        return taken

    def commit_to(self, next_offsets: Mapping[Place, int]) -> None:
        if self.refuses_commits:
            raise Unavailable("rebalancing")
        self.committed |= next_offsets

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def lag(self) -> int:
        return len(self.messages)

    def close(self) -> None:
        self.is_closed = True


class FakeProducer:
    """Remembers what it was given; can be full, slow, or broken."""

    def __init__(self) -> None:
        self.sent: list[Event] = []
        self.n_messages = 0
        self.room = 1_000_000
        self.is_away = self.has_given_up = False

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        if self.room <= 0:
            raise BusFull("full")
        self.room -= 1
        self.n_messages += 1
        self.sent += codec.decode(value)

    def flush(self, timeout_s: float) -> None:
        if self.is_away or self.has_given_up:
            raise Unavailable("away")


class FakeWorker(EventWorker):
    """Makes a decision of each incident, or says what it is told to; `moods` are raised first."""

    kinds: tuple[type, ...] = (Incident,)

    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []
        self.moods: list[Exception] = []
        self.revoked: list[Place] = []
        self.later: list[Event] = []
        self.said: list[Event] | None = None
        self.n_settled = 0

    def on_turn(self) -> list[Event]:
        told, self.later = self.later, []
        return told

    def on_settled(self) -> None:
        self.n_settled += 1

    def on_event(self, event: Event, message: Message) -> list[Event]:
        if self.moods:
            raise self.moods.pop(0)
        self.seen.append((message.partition, message.offset))
        if self.said is not None:
            return self.said
        return [next(one for one in one_of_each() if isinstance(one, Decision))]

    def on_revoked(self, places: list[Place]) -> None:
        self.revoked += places


class World:
    """A loop and what surrounds it."""

    def __init__(self, *messages: Message) -> None:
        self.consumer = FakeConsumer(list(messages))
        self.producer = FakeProducer()
        self.worker = FakeWorker()
        self.telemetry = Telemetry()
        self.clock = ManualClock(10**18)
        self.liveness = Liveness(self.clock)
        self.loop = EventLoop(
            name="test",
            worker=self.worker,
            subscribe=self._subscribed,
            producer=self.producer,
            telemetry=self.telemetry,
            liveness=self.liveness,
            clock=self.clock,
            stages=Stages(self.telemetry, self.clock),
        )

    def _subscribed(self, on_revoked: Callable[[list[Place]], None]) -> FakeConsumer:
        self.consumer.on_revoked = on_revoked
        return self.consumer

    @property
    def letters(self) -> list[DeadLetter]:
        return [event for event in self.producer.sent if isinstance(event, DeadLetter)]


def message(offset: int, partition: int = 0, value: bytes | None = None) -> Message:
    good = codec.encode(incident()) if value is None else value
    return Message(topic="incidents", key="j", partition=partition, offset=offset, value=good)


def test_what_was_dealt_with_is_committed_after_its_results_and_counted() -> None:
    world = World(message(4), message(5), message(9, partition=3))
    world.loop.turn()
    assert world.consumer.committed == {("incidents", 0): 6, ("incidents", 3): 10}
    assert len(world.producer.sent) == 3
    assert world.telemetry.value(MESSAGES, topic="incidents") == 3
    assert world.telemetry.value(LAST_BATCH) == 1e9
    assert {
        stage: world.telemetry.value(STAGE_RUNS, stage=stage) for stage in ("poll", "work", "publish", "commit")
    } == {
        "poll": 1,
        "work": 1,
        "publish": 1,
        "commit": 1,
    }


def test_nothing_is_committed_while_results_are_not_durable() -> None:
    world = World(message(0))
    world.producer.is_away = True
    world.loop.turn()
    world.loop.turn()
    assert world.consumer.committed == {}
    world.producer.is_away = False
    world.loop.turn()
    assert world.consumer.committed == {("incidents", 0): 1}
    assert world.worker.seen == [(0, 0)]


def test_a_worker_hears_when_what_it_said_is_durable_also_of_what_it_said_as_time_passed() -> None:
    world = World()
    world.loop.turn()
    assert world.worker.n_settled == 0, "it has said nothing"
    world.worker.later = [incident()]
    world.producer.is_away = True
    world.loop.turn()
    assert world.worker.n_settled == 0
    world.producer.is_away = False
    world.loop.turn()
    assert world.worker.n_settled == 1


def test_results_that_follow_each_other_under_one_key_are_one_message() -> None:
    """In their order, a bounded number of them, and without one that cannot be written."""
    sample = next(one for one in one_of_each() if isinstance(one, IterationSample))
    samples: list[Event] = [replace(sample, step=step) for step in range(MOST_TOGETHER + 2)]
    of_another = replace(sample, job="another")
    cannot = replace(sample, step_time_s=float("nan"))
    for results, n_messages in (
        (samples, 2),
        ([*samples[:3], of_another, *samples[3:5]], 3),
        ([*samples[:2], incident(), *samples[2:4]], 3),
        ([], 0),
    ):
        world = World(message(0))
        world.worker.said = results
        world.loop.turn()
        assert world.producer.sent == results
        assert world.producer.n_messages == n_messages
    world = World(message(0))
    world.worker.said = [*samples[:2], cannot, samples[2]]
    world.loop.turn()
    assert world.producer.sent == samples[:3]
    assert world.telemetry.value(WORKER_FAILURES, worker="test") == 1
    assert world.consumer.committed == {("incidents", 0): 1}


def test_of_a_message_that_is_decoded_already_only_what_was_refused_is_set_aside() -> None:
    good, bad = incident(), next(one for one in one_of_each() if isinstance(one, Decision))
    value = codec.encode(good, bad, good)
    many = Message(topic="incidents", key="j", partition=0, offset=3, value=value, events=(good, bad, good))
    world = World(many)
    world.loop.turn()
    assert world.worker.seen == [(0, 3), (0, 3)]
    (letter,) = world.letters
    assert codec.decode(letter.payload) == [bad]


def test_a_full_producer_holds_the_work_up_and_loses_nothing() -> None:
    world = World(*(message(offset) for offset in range(5)))
    world.producer.room = 2
    world.loop.turn()
    assert (len(world.producer.sent), world.consumer.committed) == (2, {})
    world.producer.room = 100
    world.loop.turn()
    assert len(world.producer.sent) == 5
    assert world.consumer.committed == {("incidents", 0): 5}


def test_what_is_away_is_tried_again_later_in_order_and_meanwhile_nothing_is_fetched() -> None:
    world = World(message(0), message(1))
    world.worker.moods = [Unavailable("away"), Unavailable("away")]
    world.loop.turn()
    assert world.worker.seen == []
    world.loop.turn()
    assert world.consumer.is_paused
    assert len(world.worker.moods) == 1
    assert world.loop.lag == 2
    world.clock.advance_s(1.1)
    world.loop.turn()
    world.clock.advance_s(1.1)
    world.loop.turn()
    assert world.worker.seen == []
    world.clock.advance_s(1.0)
    world.loop.turn()
    assert world.worker.seen == [(0, 0), (0, 1)]
    assert world.telemetry.value(RETRIES) == 2
    world.loop.turn()
    assert not world.consumer.is_paused
    assert world.consumer.committed == {("incidents", 0): 2}


def test_a_message_of_several_records_is_not_begun_again_and_one_bad_record_goes_alone() -> None:
    good, bad = codec.encode(incident()), codec.encode(incident()).replace(b"pacehound.incident", b"pacehound.nonsense")
    world = World(message(0, value=good + bad + good))
    world.loop.turn()
    assert len(world.worker.seen) == 2
    assert [(letter.error, letter.payload) for letter in world.letters] == [("UnknownSchema", bad)]
    again = World(message(0, value=good + good))
    moods = iter([None, Unavailable("away"), None])
    on_event = again.worker.on_event

    def moody(event: Event, one: Message) -> list[Event]:
        if (mood := next(moods)) is not None:
            raise mood
        return on_event(event, one)

    again.worker.on_event = moody  # type: ignore[method-assign]
    again.loop.turn()
    again.clock.advance_s(1.1)
    again.loop.turn()
    assert len(again.worker.seen) == 2
    assert len(again.producer.sent) == 2


def test_every_kind_of_poison_and_our_own_faults_are_set_aside_with_the_whole_of_what_was_there() -> None:
    poisons = [poison for poison in every_poison(topics.INCIDENTS) if len(poison.payload) < 1_000_000]
    world = World(*(message(offset, value=poison.payload) for offset, poison in enumerate(poisons)), message(99))
    world.worker.moods = [ZeroDivisionError("ours")]
    world.loop.turn()
    assert [letter.error for letter in world.letters] == [*(poison.error for poison in poisons), "ZeroDivisionError"]
    assert [letter.payload for letter in world.letters][:-1] == [poison.payload for poison in poisons]
    assert {letter.key for letter in world.letters} == {"j"}
    assert world.telemetry.value(WORKER_FAILURES, worker="test") == 1
    assert world.telemetry.value(DEAD_LETTERED, topic="incidents", error="ZeroDivisionError") == 1
    assert world.consumer.committed == {("incidents", 0): 100}


def test_an_event_of_another_topic_and_a_refusal_are_set_aside() -> None:
    stray = next(event for event in one_of_each() if type(event).__name__ == "Tick")
    world = World(message(0, value=codec.encode(stray)), message(1))
    world.worker.moods = [InvalidEvent("no such job")]
    world.loop.turn()
    assert [letter.reason for letter in world.letters] == ["a Tick on the topic of incidents", "no such job"]


def test_what_was_taken_away_is_neither_worked_on_nor_committed() -> None:
    world = World(message(0), message(0, partition=1))
    world.worker.moods = [Unavailable("away")]
    world.loop.turn()
    world.consumer.on_revoked([("incidents", 0)])
    world.clock.advance_s(2)
    world.loop.turn()
    assert world.worker.seen == [(1, 0)]
    assert world.worker.revoked == [("incidents", 0)]
    assert world.consumer.committed == {("incidents", 1): 1}


def test_a_commit_that_is_refused_is_counted_and_made_up_for() -> None:
    world = World(message(0))
    world.consumer.refuses_commits = True
    world.loop.turn()
    assert world.telemetry.value(COMMIT_FAILURES) == 1
    world.consumer.refuses_commits = False
    world.loop.turn()
    assert world.consumer.committed == {("incidents", 0): 1}


def test_it_ends_in_order_and_in_haste_only_when_a_result_is_lost() -> None:
    stopping = threading.Event()
    world = World(message(0))
    stopping.set()
    world.loop.run(stopping)
    assert world.consumer.is_closed
    broken = World(message(0))
    broken.producer.has_given_up = True
    with pytest.raises(Unavailable):
        broken.loop.run(threading.Event())
    assert broken.consumer.is_closed
    assert broken.consumer.committed == {}
