"""Alerts on Kafka: once per (incident, state), by what the log says was told, whoever has the partition."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from alerts.notice import Delivery, Notice
from alerts.rules import untold
from alerts.service import sink_of
from alerts.worker import GIVE_UP_AFTER_S, AlertWorker, NoticeGivenUp, NoticeRefused
from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import InvalidSetting, Unavailable
from pacehound.model.events import Incident, Notification
from pacehound.model.routing import Event
from pacehound.runtime.metric_names import NOTICES
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import AlertSettings
from tests.fakes.events import incident


class FakeSink:
    """Answers as it is told, the last one for ever."""

    def __init__(self, *outcomes: str) -> None:
        self.outcomes = list(outcomes) or ["delivered"]
        self.keys: list[str] = []

    def deliver(self, notice: Notice) -> Delivery:
        self.keys.append(notice.idempotency_key)
        return Delivery(outcome=self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0])  # type: ignore[arg-type]

    def close(self) -> None:
        """Nothing is open."""


class World:
    """A worker and the log of what was told."""

    def __init__(self, *outcomes: str) -> None:
        self.sink = FakeSink(*outcomes)
        self.clock = ManualClock(10**18)
        self.telemetry = Telemetry()
        self.log: dict[int, list[Notification]] = {}
        self.worker = self.another()

    def another(self) -> AlertWorker:
        def told(partition: int) -> Iterable[tuple[str, str]]:
            return [(note.incident, note.state) for note in self.log.get(partition, [])]

        return AlertWorker(self.sink, told, self.clock, self.telemetry)

    def take(self, one: Incident, partition: int = 0, worker: AlertWorker | None = None) -> list[Event]:
        message = Message(topic="incidents", key=one.job, partition=partition, offset=0, value=b"")
        results = (worker or self.worker).on_event(one, message)
        self.log.setdefault(partition, []).extend(r for r in results if isinstance(r, Notification))
        return results


def test_each_state_is_told_once_and_noted_with_its_key() -> None:
    world = World()
    told = [world.take(incident(version=v, state=s)) for v, s in enumerate(("open", "open", "closed", "open"))]
    assert [len(results) for results in told] == [1, 0, 1, 0]
    assert [note.idempotency_key for note in world.log[0]] == world.sink.keys
    assert world.telemetry.value(NOTICES, outcome="delivered") == 2


def test_whoever_takes_a_partition_over_knows_what_was_told_and_forgets_it_with_the_partition() -> None:
    world = World()
    world.take(incident())
    other = world.another()
    assert world.take(incident(version=1), worker=other) == []
    assert world.take(incident(version=1, state="closed"), worker=other) != []
    assert world.take(incident(version=1, state="closed")) != [], "it still believes that the partition is its own"
    world.worker.on_revoked([("incidents", 0)])
    assert world.take(incident(version=2, state="closed")) == []


def test_a_receiver_that_is_away_is_tried_for_an_hour() -> None:
    world = World("unavailable")
    for _ in range(3):
        with pytest.raises(Unavailable):
            world.take(incident())
        world.clock.advance_s(GIVE_UP_AFTER_S / 3)
    with pytest.raises(NoticeGivenUp):
        world.take(incident())
    assert world.take(incident(version=1)) == [], "given up once is enough"
    assert world.telemetry.value(NOTICES, outcome="given up") == 1


def test_a_refusal_is_not_repeated_with_each_version_but_a_replay_of_the_refused_one_is() -> None:
    world = World("refused", "delivered")
    with pytest.raises(NoticeRefused, match="incident i0"):
        world.take(incident())
    assert world.take(incident(version=1)) == []
    assert len(world.take(incident())) == 1
    assert world.take(incident()) == []


def test_of_the_past_only_what_is_open_is_told() -> None:
    over, still_open, told_open = (
        incident(state="closed"),
        incident(id="i1", time_ns=5),
        incident(id="i2", state="closed"),
    )
    assert untold([still_open, told_open, over], {("i2", "open")}) == [still_open, told_open]
    assert untold([still_open], {("i1", "open")}) == []


def test_without_a_receiver_nobody_is_told_and_a_wrong_one_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidSetting, match=r"alerts\.webhook_url"):
        sink_of(AlertSettings())
    with pytest.raises(InvalidSetting, match=r"alerts\.webhook_url"):
        sink_of(AlertSettings(webhook_url="ftp://nowhere"))
