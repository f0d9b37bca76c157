"""Killed at any moment, whatever the order of incidents: no page stays open for ever, and none is opened again."""

from __future__ import annotations

import logging
import random
from collections import Counter

import pytest

from alerts.notice import Delivery, Notice
from alerts.severity import Level
from alerts.worker import AlertWorker, Past
from pacehound.bus import Place
from pacehound.clock import ManualClock
from pacehound.model import codec, topics
from pacehound.model.events import Incident, Notification
from pacehound.model.topics import Topic
from pacehound.runtime.event_loop import EventLoop
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.phases import Stages
from pacehound.runtime.telemetry import Telemetry
from tests.fakes.events import SECOND_NS, START_NS, incident
from tests.fakes.partitioned_log import LogConsumer, PartitionedLog

PARTITIONS = 4
N_INCIDENTS = 12
DAY_NS = 24 * 3600 * SECOND_NS


class Killed(BaseException):
    """The process is no more."""


class Fate:
    """Kills at one of the moments at which a process can die."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.share = rng.choice((0.003, 0.06))
        self.is_on = True

    def may_kill(self) -> None:
        if self.is_on and self.rng.random() < self.share:
            raise Killed


class Sink:
    """A pager where it groups, else a webhook; keeps what it was sent."""

    lowest_level: Level = "ticket"
    acknowledges = False

    def __init__(self, name: str, fate: Fate, *, groups: bool) -> None:
        self.name = name
        self.groups = groups
        self.fate = fate
        self.open: set[str] = set()
        self.opened: list[str] = []

    def deliver(self, notice: Notice) -> Delivery:
        self.fate.may_kill()
        if self.fate.is_on and self.fate.rng.random() < 0.1:
            return Delivery(outcome="unavailable")
        key = notice.group if self.groups else notice.incident.id
        if notice.state == "closed":
            self.open.discard(key)
        elif key not in self.open:
            self.open.add(key)
            self.opened.append(key)
        self.fate.may_kill()
        return Delivery(outcome="delivered")

    def reach(self) -> Delivery:
        return Delivery(outcome="delivered")

    def close(self) -> None:
        """Nothing is open."""


class Producer:
    """What is published is in the log when it is flushed, or a part of it when the process dies meanwhile."""

    has_given_up = False

    def __init__(self, log: PartitionedLog, fate: Fate) -> None:
        self.log = log
        self.fate = fate
        self.waiting: list[tuple[Topic, str, bytes]] = []

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        self.waiting.append((topic, key, value))

    def flush(self, timeout_s: float) -> None:
        while self.waiting:
            self.fate.may_kill()
            topic, key, value = self.waiting.pop(0)
            self.log.append_bytes((topic.name, partition_of(key)), value, key)
        self.fate.may_kill()


class Consumer(LogConsumer):  # type: ignore[misc]
    """A few of the messages at a time, of any partition."""

    def __init__(self, log: PartitionedLog, fate: Fate) -> None:
        super().__init__(log, lambda places: None, PLACES)
        self.rng = fate.rng
        self.max_poll = 5

    def _mine(self) -> list[Place]:
        return self.rng.sample(PLACES, len(PLACES))

    def close(self) -> None:
        """Nobody waits for it."""


PLACES = [(topics.INCIDENTS.name, partition) for partition in range(PARTITIONS)]


def partition_of(key: str) -> int:
    return sum(key.encode()) % PARTITIONS


class World:
    """The log, who reads it, and who is told."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fate = Fate(self.rng)
        self.clock = ManualClock(START_NS + self.rng.choice((0, 60 * SECOND_NS, 40 * DAY_NS)))
        self.log = PartitionedLog(PARTITIONS)
        self.pager = Sink("pager", self.fate, groups=True)
        self.webhook = Sink("webhook", self.fate, groups=False)
        self.kills = 0
        self.loop = self.begin()

    def begin(self) -> EventLoop:
        sinks = self.rng.sample([self.pager, self.webhook], 2)
        worker = AlertWorker(sinks, self.past, self.clock, Telemetry())
        worker.on_assigned(PLACES)
        return EventLoop(
            name="alerts",
            worker=worker,
            subscribe=lambda revoked: Consumer(self.log, self.fate),
            producer=Producer(self.log, self.fate),
            telemetry=Telemetry(),
            liveness=Liveness(self.clock),
            clock=self.clock,
            stages=Stages(Telemetry(), self.clock),
        )

    def past(self, partitions: frozenset[int]) -> Past:
        latest: dict[str, tuple[Incident, int]] = {}
        for partition in self.rng.sample(sorted(partitions), len(partitions)):
            place = (topics.INCIDENTS.name, partition)
            for message in self.log.messages.get(place, [])[: self.log.committed.get(place, 0)]:
                for event in codec.decode(message.value):
                    assert isinstance(event, Incident)
                    latest[event.id] = (event, partition)
        return Past(incidents=list(latest.values()), notifications=self.notifications())

    def notifications(self) -> list[Notification]:
        found = [
            event
            for partition in range(PARTITIONS)
            for message in self.log.messages.get((topics.NOTIFICATIONS.name, partition), [])
            for event in codec.decode(message.value)
        ]
        return [one for one in found if isinstance(one, Notification)]

    def turn(self) -> None:
        self.clock.advance_s(self.rng.choice((0.0, 1.0, 30.0)))
        try:
            self.loop.turn()
        except Killed:
            self.kills += 1
            self.loop = self.begin()

    def publish(self, one: Incident) -> None:
        self.log.append(one, partition_of(one.job))


def somebody_is_paged_for_another_one(world: World) -> None:
    """Whatever was told, noted or lost before."""
    was_on, world.fate.is_on = world.fate.is_on, False
    name = f"another at {world.clock.now_ns()}"
    opened_ns = START_NS + 12 * SECOND_NS
    for version in range(2):
        world.publish(incident(id=name, job="j0", version=version, opened_ns=opened_ns))
    for _ in range(80):
        if world.pager.open:
            break
        world.turn()
    assert world.pager.open
    world.publish(incident(id=name, job="j0", version=2, state="closed", opened_ns=opened_ns, closed_ns=1))
    world.fate.is_on = was_on


def lives(rng: random.Random, start_ns: int) -> list[list[Incident]]:
    """Incidents of a few jobs that begin together or minutes apart, and end at once, later, or in another age."""
    made = []
    spread_s = rng.choice((0, 30, 600))
    for number in range(N_INCIDENTS):
        opened_ns = start_ns + rng.randint(0, spread_s) * SECOND_NS
        same = {"id": f"i{number}", "job": f"j{number % 5}", "opened_ns": opened_ns}
        closed_ns = rng.choice((1, opened_ns + 5 * SECOND_NS, opened_ns + 400 * SECOND_NS))
        open_ones = [incident(**same, version=version) for version in range(rng.choice((1, 2)))]
        made.append([*open_ones, incident(**same, version=2, state="closed", closed_ns=closed_ns)])
    return made


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(20), id="short"),
        pytest.param(range(20, 5000), id="long", marks=[pytest.mark.prove]),
    ],
)
def test_killed_at_any_moment_it_leaves_no_page_open_opens_none_again_and_leaves_none_out(
    seeds: range, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    kills = Counter(killed_at_any_moment(seed) for seed in seeds)
    assert kills[1] > len(seeds) / 20
    assert sum(n for count, n in kills.items() if count > 3) > len(seeds) / 5


def killed_at_any_moment(seed: int) -> int:
    """How often it was."""
    world = World(seed)
    waiting = lives(world.rng, START_NS)
    while waiting:
        for _ in range(world.rng.randint(0, 4)):
            if waiting:
                life = world.rng.choice(waiting)
                world.publish(life.pop(0))
                waiting = [one for one in waiting if one]
        world.turn()
        if not world.pager.open and world.rng.random() < 0.2:
            somebody_is_paged_for_another_one(world)
    world.fate.is_on = False
    world.clock.advance_s(3600)
    for _ in range(20):
        world.turn()
        world.clock.advance_s(3600)
    told = f"seed {seed}, {world.kills} kills"
    assert world.log.committed == {place: len(world.log.messages[place]) for place in world.log.committed}, told
    assert world.pager.open == set(), told
    if world.kills <= 1:  # of two that leave no note behind, the second knows nothing of what the first has told
        assert {key: n for key, n in Counter(world.pager.opened).items() if n > 1} == {}, told
    return world.kills
