"""Deliveries, retries and restarts, with a clock that is stepped."""

import pytest

from alerts.app import GIVE_UP_AFTER_S, MAX_WAITING, Alerts, make_alerts
from alerts.notice import Delivery
from pacehound.clock import ManualClock
from pacehound.errors import InvalidSetting, Unavailable
from pacehound.settings import AlertSettings
from tests.fakes.events import incident


class FakeSink:
    def __init__(self, *outcomes):
        self.outcomes = list(outcomes) or ["delivered"]
        self.asked = []

    def deliver(self, notice):
        self.asked.append((notice.incident.id, notice.incident.state))
        return Delivery(outcome=self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0])


class FakeLedger:
    def __init__(self):
        self.rows = {}
        self.is_away = False

    def sent(self):
        return set(self.rows)

    def record(self, incident, state, idempotency_key, sent_ns):
        if self.is_away:
            raise Unavailable("the store is away")
        self.rows[incident, state] = idempotency_key


@pytest.fixture
def clock():
    return ManualClock()


def test_every_state_of_an_incident_is_told_once_and_in_order(clock):
    sink, ledger = FakeSink(), FakeLedger()
    alerts = Alerts(sink, ledger, clock)
    for version, state in enumerate(["open", "open", "relieved", "open", "closed", "closed"]):
        alerts.on_incident(incident(version=version, state=state))
    assert alerts.step() is None
    assert sink.asked == [("i0", "open"), ("i0", "relieved"), ("i0", "closed")]
    assert set(ledger.rows) == set(sink.asked)
    assert alerts.counters.delivered == 3


def test_a_restart_tells_nothing_again_and_what_was_missed(clock):
    ledger = FakeLedger()
    before = Alerts(FakeSink(), ledger, clock)
    before.on_incident(incident())
    before.step()
    sink = FakeSink()
    after = Alerts(sink, ledger, clock)
    after.catch_up([incident(id="i1"), incident(version=4, state="closed"), incident(id="old", state="closed")])
    after.on_incident(incident(version=4, state="closed"))
    after.on_incident(incident(version=5))
    after.step()
    assert sorted(sink.asked) == [("i0", "closed"), ("i1", "open")]


def test_taking_an_incident_does_not_wait_for_the_receiver(clock):
    sink = FakeSink()
    Alerts(sink, FakeLedger(), clock).on_incident(incident())
    assert sink.asked == []


def test_a_receiver_who_is_away_is_asked_again_after_longer_and_longer_waits(clock):
    sink = FakeSink("unavailable")
    alerts = Alerts(sink, FakeLedger(), clock)
    alerts.on_incident(incident())
    waits = []
    for _ in range(9):
        waits.append(alerts.step())
        clock.advance_s(waits[-1])
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert len(sink.asked) == alerts.counters.retried == 9


def test_before_the_wait_is_over_nobody_is_asked(clock):
    sink = FakeSink("unavailable")
    alerts = Alerts(sink, FakeLedger(), clock)
    alerts.on_incident(incident())
    assert [alerts.step(), alerts.step()] == [1.0, 1.0]
    clock.advance_s(0.25)
    assert alerts.step() == 0.75
    assert len(sink.asked) == 1


def test_later_notices_wait_behind_and_arrive_in_order(clock):
    sink = FakeSink("unavailable", "delivered")
    alerts = Alerts(sink, FakeLedger(), clock)
    alerts.on_incident(incident())
    clock.advance_s(alerts.step())
    alerts.on_incident(incident(version=1, state="closed"))
    assert alerts.step() is None
    assert sink.asked == [("i0", "open"), ("i0", "open"), ("i0", "closed")]


def test_after_an_hour_a_notice_is_given_up_counted_and_not_recorded_as_told(clock):
    sink, ledger = FakeSink("unavailable"), FakeLedger()
    alerts = Alerts(sink, ledger, clock)
    alerts.on_incident(incident())
    while (wait_s := alerts.step()) is not None:
        clock.advance_s(wait_s)
    assert clock.monotonic_s() >= GIVE_UP_AFTER_S
    assert (alerts.counters.given_up, alerts.counters.delivered, ledger.rows) == (1, 0, {})
    assert len(sink.asked) < 80
    assert alerts.on_incident(incident(version=1)).tells  # a later version in the same state tries again


def test_a_refusal_is_counted_and_does_not_hold_up_the_next(clock):
    sink, ledger = FakeSink("refused", "delivered"), FakeLedger()
    alerts = Alerts(sink, ledger, clock)
    alerts.on_incident(incident())
    alerts.on_incident(incident(id="i1"))
    assert alerts.step() is None
    assert alerts.counters.refused == 1
    assert set(ledger.rows) == {("i1", "open")}


def test_what_waits_is_bounded_and_the_oldest_is_dropped_and_counted(clock):
    sink = FakeSink("unavailable", "delivered")
    alerts = Alerts(sink, FakeLedger(), clock)
    for number in range(MAX_WAITING + 5):
        alerts.on_incident(incident(id=f"i{number}"))
    assert alerts.counters.dropped == 5
    clock.advance_s(alerts.step())
    assert alerts.step() is None
    assert sink.asked[0] == ("i5", "open")
    assert alerts.counters.delivered == MAX_WAITING


def test_a_store_that_is_away_is_counted_and_the_notice_is_not_repeated_by_this_process(clock):
    sink, ledger = FakeSink(), FakeLedger()
    ledger.is_away = True
    alerts = Alerts(sink, ledger, clock)
    alerts.on_incident(incident())
    alerts.step()
    alerts.on_incident(incident(version=1))
    assert alerts.step() is None
    assert (len(sink.asked), alerts.counters.unrecorded, alerts.counters.delivered) == (1, 1, 1)


def test_a_sink_that_raises_is_tried_again(clock):
    class BrokenSink(FakeSink):
        def deliver(self, notice):
            super().deliver(notice)
            raise RuntimeError("a bug")

    alerts = Alerts(BrokenSink(), FakeLedger(), clock)
    alerts.on_incident(incident())
    assert alerts.step() == 1.0
    assert alerts.counters.retried == 1


def test_without_a_url_nobody_is_told_and_a_wrong_one_is_refused_at_the_start():
    assert make_alerts(AlertSettings(), FakeLedger()) is None
    with pytest.raises(InvalidSetting, match="webhook_url"):
        make_alerts(AlertSettings(webhook_url="nonsense"), FakeLedger())


def test_closing_without_a_thread_says_how_many_notices_were_left(clock):
    alerts = Alerts(FakeSink("unavailable"), FakeLedger(), clock)
    alerts.on_incident(incident())
    alerts.step()
    assert alerts.close() == 1
