"""A dead man's switch: heard every minute while all is well, and silent when nothing is."""

from __future__ import annotations

import httpx

from alerts.heartbeat import Heartbeat
from alerts.receiver import Receiver
from pacehound.errors import Unavailable
from pacehound.runtime.metric_names import HEARTBEATS
from pacehound.runtime.telemetry import Telemetry


class World:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.status = 200
        self.problems: list[str] = []
        self.is_away = False
        self.telemetry = Telemetry()
        receiver = Receiver(
            "https://h/s3cret",
            setting="alerts.heartbeat_url",
            example="https://h/x",
            transport=httpx.MockTransport(self.answer),
        )
        self.heartbeat = Heartbeat(receiver, self.ask, self.telemetry)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.heard.append(request.method)
        return httpx.Response(self.status)

    def ask(self) -> list[str]:
        if self.is_away:
            raise Unavailable("Kafka is away")
        return self.problems


def test_it_is_heard_once_a_minute() -> None:
    world = World()
    for second in range(0, 181, 10):
        n_heard, is_due = len(world.heard), world.heartbeat.may_wait_s(1_000.0 + second) == 0.0
        world.heartbeat.turn(1_000.0 + second)
        assert (len(world.heard) > n_heard) == is_due
    assert world.heard == ["POST"] * 4


def test_it_is_silent_while_something_is_wrong_and_heard_again_after() -> None:
    world = World()
    world.problems = ["group streams has no member"]
    world.heartbeat.turn(0.0)
    world.problems = []
    world.is_away = True
    world.heartbeat.turn(60.0)
    assert world.heard == []
    world.is_away = False
    world.heartbeat.turn(120.0)
    assert world.heard == ["POST"]
    assert world.telemetry.value(HEARTBEATS, outcome="withheld") == 2
    assert world.telemetry.value(HEARTBEATS, outcome="delivered") == 1


def test_one_that_is_not_taken_is_counted_and_ends_nothing() -> None:
    world = World()
    world.status = 500
    world.heartbeat.turn(0.0)
    world.heartbeat.turn(60.0)
    assert world.telemetry.value(HEARTBEATS, outcome="unavailable") == 2
