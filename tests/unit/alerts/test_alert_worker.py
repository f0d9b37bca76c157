"""Who is told of what, by the log alone, whoever has the partition and whichever sink is away."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest

from alerts.ledger import State
from alerts.notice import Delivery, Notice
from alerts.orders import Acknowledgement, OrdersFile, Silence, append
from alerts.policy import Waits
from alerts.service import policy_of, sinks_of
from alerts.severity import Level
from alerts.thresholds import ORDERS_LOOKED_AT_S, TOGETHER_NS, TRIED_AGAIN_S
from alerts.worker import AlertWorker, Past, Policy
from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.errors import InvalidSetting
from pacehound.model import codec
from pacehound.model.events import DeadLetter, Incident, Notification
from pacehound.model.routing import Event
from pacehound.runtime.event_loop import LONGEST_RETRY_S
from pacehound.runtime.metric_names import AWAY, NOTICES
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import AlertSettings
from tests.fakes.events import START_NS, finding, incident

HOUR_S = 3600.0


class FakeSink:
    """Answers as it is told, the last one for ever."""

    lowest_level: Level = "ticket"

    def __init__(self, name: str = "webhook", *, groups: bool = False, acknowledges: bool = False) -> None:
        self.name = name
        self.groups = groups
        self.acknowledges = acknowledges
        self.outcomes = ["delivered"]
        self.tried: list[Notice] = []
        self.told: list[tuple[str, Level, State]] = []

    def deliver(self, notice: Notice) -> Delivery:
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.tried.append(notice)
        if outcome == "delivered":
            self.told.append((notice.incident.id, notice.level, notice.state))
        return Delivery(outcome=outcome)  # type: ignore[arg-type]

    def reach(self) -> Delivery:
        return Delivery(outcome="delivered")

    def close(self) -> None:
        """Nothing is open."""


class World:
    """A worker, the log that it reads and writes, and a clock."""

    def __init__(self, *sinks: FakeSink, orders: Path | None = None, **policy: object) -> None:
        self.sinks = sinks or (FakeSink(),)
        self.clock = ManualClock(START_NS + 60 * 10**9)
        self.telemetry = Telemetry()
        self.log: dict[int, list[Event]] = defaultdict(list)
        self.committed: dict[int, dict[str, Incident]] = defaultdict(dict)
        self.orders = orders
        self.policy = Policy(**policy)  # type: ignore[arg-type]
        self.reads = 0
        self.worker = self.another()

    def another(self) -> AlertWorker:
        """As after a restart, or in another process."""

        def past(partitions: frozenset[int]) -> Past:
            self.reads += 1
            return Past(
                incidents=[(one, p) for p in partitions for one in self.committed[p].values()],
                notifications=[one for p in partitions for one in self.log[p] if isinstance(one, Notification)],
            )

        return AlertWorker(
            self.sinks, past, self.clock, self.telemetry, policy=self.policy, orders=OrdersFile(self.orders)
        )

    def take(self, one: Incident, partition: int = 0, worker: AlertWorker | None = None) -> list[Event]:
        worker = worker or self.worker
        results = worker.on_event(one, message_of(one, partition))
        self.log[partition] += results
        self.committed[partition][one.id] = one
        worker.on_settled()
        return results + self.turn(worker, partition)

    def turn(self, worker: AlertWorker, partition: int = 0) -> list[Event]:
        """Two of them: people are told of an end in the one after it is noted."""
        told: list[Event] = []
        for _ in range(2):
            results = worker.on_turn()
            self.log[partition] += results
            worker.on_settled()
            told += results
        return told

    def wait(self, seconds: float, worker: AlertWorker | None = None) -> list[Event]:
        """Let time pass: nothing follows from it for as long as the worker says that it may wait."""
        worker = worker or self.worker
        quiet_s = min(worker.may_wait_s(), seconds)
        if self.orders is None and quiet_s > TRIED_AGAIN_S:
            self.clock.advance_s(0.99 * quiet_s)
            assert self.turn(worker) == []
            seconds -= 0.99 * quiet_s
        self.clock.advance_s(seconds)
        return self.turn(worker)

    def restart(self) -> None:
        self.worker = self.another()
        self.worker.on_assigned([("incidents", partition) for partition in range(8)])


def message_of(one: Incident, partition: int = 0) -> Message:
    return Message(topic="incidents", key=one.job, partition=partition, offset=7, value=codec.encode(one))


def ended(**changes: object) -> Incident:
    return incident(**({"version": 5, "state": "closed", "closed_ns": START_NS + 15 * 10**9} | changes))


def test_each_state_is_told_once_and_noted_with_its_key() -> None:
    world = World()
    told = [world.take(incident(version=v, state=s)) for v, s in enumerate(("open", "open", "closed", "open"))]
    assert [len(results) for results in told] == [1, 0, 1, 0]
    notes = [one for one in world.log[0] if isinstance(one, Notification)]
    assert [note.idempotency_key for note in notes] == [one.idempotency_key for one in world.sinks[0].tried]
    assert {(note.sink, note.level) for note in notes} == {("webhook", "page")}
    assert world.telemetry.value(NOTICES, outcome="delivered") == 2


def test_whoever_takes_a_partition_over_knows_what_was_told_and_forgets_it_with_the_partition() -> None:
    world = World()
    world.take(incident())
    other = world.another()
    assert world.take(incident(version=1), worker=other) == []
    assert world.take(ended(version=1), worker=other) != []
    assert world.take(ended(version=1)) != [], "it still believes that the partition is its own"
    world.worker.on_revoked([("incidents", 0)])
    reads = world.reads
    assert world.take(ended(version=2)) == []
    assert world.reads == reads + 1


def test_notifications_of_versions_before_sinks_had_names_count_for_every_sink() -> None:
    world = World()
    world.log[0] = [
        Notification(job="j", attempt=0, time_ns=5, incident="i0", state="open", idempotency_key="k"),
    ]
    assert world.take(incident()) == []
    assert world.take(ended()) != []


def test_a_sink_that_is_away_for_an_hour_is_told_once_after_and_the_others_at_once() -> None:
    away, there = FakeSink("slack", groups=True), FakeSink("email", groups=True)
    world = World(away, there)
    away.outcomes = ["unavailable"]
    world.take(incident())
    for number in range(50):
        world.take(incident(version=1 + number))
        world.wait(HOUR_S / 50)
    assert there.told == [("i0", "page", "open")]
    assert 10 < len(away.tried) < 90, "with growing pauses"
    assert world.telemetry.value(AWAY, worker="alerts to slack") == 1
    away.outcomes = ["delivered"]
    for _ in range(5):
        world.wait(LONGEST_RETRY_S)
    assert away.told == there.told == [("i0", "page", "open")]
    assert len({one.idempotency_key for one in away.tried}) == 1
    assert world.telemetry.value(AWAY, worker="alerts to slack") == 0


def test_a_sink_that_is_away_while_the_process_is_killed_is_told_once_after() -> None:
    away, there = FakeSink("slack", groups=True), FakeSink("email", groups=True)
    world = World(away, there)
    away.outcomes = ["unavailable"]
    world.take(incident())
    world.restart()
    world.wait(HOUR_S)
    away.outcomes = ["delivered"]
    world.restart()
    for _ in range(5):
        world.wait(LONGEST_RETRY_S)
    assert away.told == there.told == [("i0", "page", "open")]


def test_what_came_and_went_while_a_sink_was_away_is_told_as_over() -> None:
    away = FakeSink("slack", groups=True)
    world = World(away)
    world.take(incident(id="before"))
    away.outcomes = ["unavailable"]
    later_ns = START_NS + 3600 * 10**9
    world.clock.time_ns = later_ns
    world.take(incident(id="i1", job="k", opened_ns=later_ns))
    world.take(ended(id="i1", job="k", opened_ns=later_ns, closed_ns=later_ns + 10**9))
    world.restart()
    world.wait(HOUR_S)
    away.outcomes = ["delivered"]
    for _ in range(3):
        world.wait(LONGEST_RETRY_S)
    assert away.told == [("before", "page", "open"), ("i1", "page", "closed")]


def test_a_process_that_is_killed_between_the_notice_and_its_note_tells_again_with_the_same_keys() -> None:
    world = World(FakeSink("pagerduty", groups=True))
    world.take(incident())
    world.log.clear()
    world.committed.clear()
    world.restart()
    world.take(incident())
    first, second = world.sinks[0].tried
    assert (first.dedup_key, first.idempotency_key) == (second.dedup_key, second.idempotency_key)


def test_the_end_is_told_when_the_opening_is_noted_so_that_a_kill_opens_no_page_again() -> None:
    sink = FakeSink()
    world = World(sink)
    world.worker.on_event(incident(), message_of(incident()))
    assert world.worker.on_event(ended(), message_of(ended())) == [], "nobody has noted the opening yet"
    assert world.worker.on_turn() == []
    world.restart()  # the log has nothing of it
    world.take(incident())
    world.take(ended())
    assert [state for _, _, state in sink.told] == ["open", "open", "closed"]


def test_no_page_is_orphaned_where_the_next_process_hears_of_incidents_in_another_order() -> None:
    sink = FakeSink("pagerduty", groups=True)
    world = World(sink)
    first, second = incident(id="a", job="a"), incident(id="b", job="b")
    for one in (first, second):  # one fault; killed before anything of it is noted
        world.worker.on_event(one, message_of(one))
    world.restart()
    for one in (second, first):
        world.take(one)
    for one in (second, first):
        world.take(ended(id=one.id, job=one.job))
    world.wait(60.0)
    opened = {name for name, _, state in sink.told if state == "open"}
    assert opened == {name for name, _, state in sink.told if state == "closed"}
    assert len(opened) == 1


def test_hundreds_of_versions_and_ten_jobs_of_one_fault_are_one_page() -> None:
    sink = FakeSink("pagerduty", groups=True)
    world = World(sink)
    for version in range(200):
        world.take(incident(version=version))
    for number in range(200):
        world.take(incident(id=f"k{number}", job=f"j{number % 10}", opened_ns=START_NS + number), number % 8)
    world.wait(1)
    assert sink.told == [("i0", "page", "open")]
    for number in range(200):
        world.take(ended(id=f"k{number}", job=f"j{number % 10}", opened_ns=START_NS + number), number % 8)
    world.restart()
    world.wait(1)
    assert len(sink.told) == 1, "the same groups are found in the log, though what opened last was heard of first"
    world.take(ended(version=201))
    world.wait(TOGETHER_NS / 1e9)
    assert sink.told == [("i0", "page", "open"), ("i0", "page", "closed")]
    assert sink.tried[-1].n_incidents == 201


def test_what_is_heard_of_after_its_alert_was_told_to_be_over_is_told_anew_and_ends_though_all_start_again() -> None:
    sink, machine = FakeSink("pagerduty", groups=True), FakeSink("alertmanager")
    world = World(sink, machine)
    world.take(incident())
    world.take(ended())
    world.wait(60)
    late = {"id": "late", "job": "k", "opened_ns": START_NS + 13 * 10**9}
    world.take(incident(**late))
    assert sink.told == [("i0", "page", "open"), ("i0", "page", "closed"), ("late", "page", "open")]
    groups = [one.group for one in machine.tried]
    world.restart()
    world.take(ended(**late))
    world.wait(60)
    assert sink.told[3:] == [("late", "page", "closed")]
    assert groups == [machine.tried[0].group] * 2 + [machine.tried[-1].group], "a group does not change with a restart"
    assert groups[0] != groups[2]


def test_what_gets_worse_is_told_again_and_its_lesser_alert_ends() -> None:
    people, machines = FakeSink("pagerduty", groups=True), FakeSink("webhook")
    world = World(people, machines)
    world.take(incident())
    world.wait(HOUR_S)
    world.take(incident(version=1, findings=(finding(), finding(id="f1", kind="hang", magnitude=None))))
    expected = {("i0", "page", "open"), ("i0", "page", "closed"), ("i0", "halt", "open")}
    assert set(people.told) == set(machines.told) == expected
    world.restart()
    world.take(incident(version=2))
    world.wait(HOUR_S)
    assert len(people.told) == len(machines.told) == 3, "it was a halt before the restart, and is one after it"


def test_a_refusal_is_set_aside_and_not_repeated_with_each_version_but_a_replay_of_the_refused_one_is_tried() -> None:
    world = World(FakeSink("slack"), FakeSink("webhook"))
    world.sinks[0].outcomes = ["refused", "delivered"]
    letter, note = world.take(incident())
    assert isinstance(letter, DeadLetter)
    assert (letter.error, letter.offset, letter.payload) == ("NoticeRefused", 7, codec.encode(incident()))
    assert isinstance(note, Notification)
    assert note.sink == "webhook"
    assert world.take(incident(version=1)) == []
    assert len(world.take(incident(version=1))) == 0, "version 0 was refused"
    world = World()
    world.sinks[0].outcomes = ["refused", "delivered"]
    world.take(incident())
    assert len(world.take(incident())) == 1
    assert world.take(incident()) == []


def test_of_the_past_only_what_is_open_is_told_to_a_new_sink() -> None:
    world = World()
    for one in (ended(), incident(id="i1"), ended(id="i2")):
        world.committed[0][one.id] = one
    world.log[0] = [Notification(job="j", attempt=0, time_ns=START_NS * 2, incident="i2", state="open",
                                 idempotency_key="k", sink="webhook", level="page")]  # fmt: skip
    world.restart()
    world.wait(1)
    assert sorted(world.sinks[0].told) == [("i1", "page", "open"), ("i2", "page", "closed")]


def test_whoever_has_told_everything_may_wait_for_ever() -> None:
    world = World()
    assert world.worker.may_wait_s() == math.inf
    world.worker.on_event(incident(), message_of(incident()))
    assert world.worker.may_wait_s() == TRIED_AGAIN_S, "it is told, and not noted"
    world.wait(1.0)
    assert world.worker.may_wait_s() == math.inf


def test_whose_orders_are_in_a_file_is_heard_soon(tmp_path: Path) -> None:
    assert World(orders=tmp_path / "orders").worker.may_wait_s() == ORDERS_LOOKED_AT_S


def test_silenced_jobs_are_told_of_when_the_silence_is_taken_back(tmp_path: Path) -> None:
    orders = tmp_path / "orders"
    world = World(orders=orders)
    day_ns = 24 * 3600 * 10**9
    append(str(orders), Silence(job="j", from_ns=0, until_ns=world.clock.time_ns + day_ns, why="new switch"))
    world.wait(0)
    assert world.take(incident()) == []
    assert world.wait(HOUR_S) == []
    orders.write_text("")
    assert len(world.wait(1)) == 1


def test_who_is_next_is_told_when_nobody_acknowledges_and_not_when_somebody_does(tmp_path: Path) -> None:
    waits = {"email": Waits(escalate_after_ns=900 * 10**9)}
    for acknowledges in (False, True):
        orders = tmp_path / str(acknowledges)
        pager, boss = FakeSink("pagerduty", groups=True, acknowledges=True), FakeSink("email", groups=True)
        world = World(boss, pager, orders=orders, waits=waits)
        world.take(incident())
        world.wait(1)
        world.restart()
        if acknowledges:
            append(str(orders), Acknowledgement(incident="i0", time_ns=world.clock.time_ns, by="ada"))
        world.wait(800)
        assert boss.told == []
        world.wait(101)
        world.wait(1)
        assert boss.told == ([] if acknowledges else [("i0", "page", "open")])
        assert [state for _, _, state in pager.told] == ["open", *(["acknowledged"] if acknowledges else [])]
        assert pager.tried[-1].acknowledged_by == ("ada" if acknowledges else "")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"webhook_url": ""}, r"nobody to tell: set alerts\.pagerduty_key"),
        ({"webhook_url": "ftp://nowhere"}, r"alerts\.webhook_url has scheme 'ftp'"),
        ({"pagerduty_key": "short"}, r"alerts\.pagerduty_key has 5 characters; it must be"),
        ({"smtp_url": "http://h", "email_to": "a@b", "email_from": "a@b"}, r"alerts\.smtp_url has scheme 'http'"),
        ({"smtp_url": "smtp://u:s3cret@h", "email_to": "a@b", "email_from": "a@b"}, "holds a password"),
        ({"smtp_url": "smtp://h", "email_from": "a@b"}, r"alerts\.email_to is empty"),
        ({"smtp_url": "smtp://h", "email_from": "a@b", "email_to": "nobody"}, r"alerts\.email_to has 'nobody'"),
        ({"escalate_to": "slack"}, r"alerts\.escalate_to names 'slack', which is not set; set are webhook"),
        ({"escalate_to": "webhook"}, "leaves nobody to be told first"),
        ({"importance": "x"}, "PATTERN=NUMBER"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_by_its_name_and_what_is_allowed(
    changes: dict[str, str], complaint: str
) -> None:
    settings = AlertSettings(**({"webhook_url": "http://h/x"} | changes))
    with pytest.raises(InvalidSetting, match=complaint) as refusal:
        policy_of(settings, sinks_of(settings))
    assert "s3cret" not in str(refusal.value)


def test_settings_name_the_sinks() -> None:
    sinks = sinks_of(
        AlertSettings(
            webhook_url="http://h/x",
            alertmanager_url="http://am:9093",
            pagerduty_key="k" * 32,
            slack_url="https://h/x",
            smtp_url="smtp://h",
            email_from="a@b",
            email_to="c@d, e@f",
        )
    )
    assert [one.name for one in sinks] == ["pagerduty", "slack", "email", "webhook", "alertmanager"]
