"""A simulated job is put on its topics in order, no event before its time, and a full bus is waited for."""

from __future__ import annotations

import threading
from functools import cache

import pytest

from pacehound.clock import ManualClock
from pacehound.errors import BusFull
from pacehound.model import codec, topics
from pacehound.model.routing import Event
from pacehound.model.topics import Topic
from pacehound.runtime.feed import due_ns, feed
from pacehound.runtime.liveness import Liveness
from simulator.job import simulate
from simulator.suites.demo_load import demo_job

START_NS = 1_790_000_000 * 10**9


class Waiting(threading.Event):
    """Waits by moving the clock."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self.clock.advance_s((timeout or 0.0) + 1e-9)
        return False


class FakeProducer:
    """Takes one message less than it is given, now and then."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.calls = 0
        self.sent: list[tuple[int, Topic, Event]] = []

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        self.calls += 1
        if self.calls % 50 == 0:
            raise BusFull("full")
        self.sent += [(self.clock.now_ns(), topic, event) for event in codec.decode(value)]


@cache
def job() -> tuple[Event, ...]:
    return tuple(simulate(demo_job(0, name="d", ranks=8, iterations=120, start_unix_ns=START_NS)).events())


@pytest.mark.parametrize("is_paced", [True, False])
def test_all_events_arrive_in_order_and_paced_ones_not_before_their_time(is_paced: bool) -> None:
    events = job()
    clock = ManualClock(START_NS)
    producer = FakeProducer(clock)
    liveness = Liveness(clock)
    sent = feed(events, producer, clock, liveness, Waiting(clock), is_paced=is_paced)
    assert liveness.problem() == ""
    assert sent == len(events)
    plain = [(type(e).__name__, due_ns(e)) for _, topic, e in producer.sent if topic is not topics.TOPOLOGY]
    assert plain == [(type(e).__name__, due_ns(e)) for e in events]
    explained = [e for _, topic, e in producer.sent if topic is topics.TOPOLOGY]
    assert {type(e).__name__ for e in explained} == {"Topology"}
    too_early = [e for at_ns, _, e in producer.sent if at_ns < due_ns(e)]
    assert bool(too_early) != is_paced


def test_it_ends_when_it_is_told_to() -> None:
    clock = ManualClock(START_NS)
    stopping = threading.Event()
    stopping.set()
    assert feed(job(), FakeProducer(clock), clock, Liveness(clock), stopping, is_paced=True) == 0


def test_jobs_differ_and_what_does_not_fit_is_refused() -> None:
    same = {"name": "d", "ranks": 8, "iterations": 120, "start_unix_ns": 0}
    faults = [demo_job(number, **same).faults for number in range(6)]  # type: ignore[arg-type]
    assert len({str(fault) for fault in faults}) == 4
    with pytest.raises(ValueError, match="multiple of 4"):
        demo_job(0, **(same | {"ranks": 10}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="too few"):
        demo_job(0, **(same | {"iterations": 10}))  # type: ignore[arg-type]
