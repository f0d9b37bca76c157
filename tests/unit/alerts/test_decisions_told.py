"""Whoever is told of a decision that waits is told once, with what it costs and where to say yes."""

from __future__ import annotations

from dataclasses import replace

from alerts.asking import Asking
from alerts.notice import Delivery, Notice
from alerts.severity import Level
from alerts.sinks import alertmanager, email, slack, webhook
from pacehound.clock import ManualClock
from tests.fakes.events import START_NS
from tests.unit.web.test_approving import ASKED, KEY


class Told:
    """A receiver that may be away."""

    lowest_level: Level = "ticket"
    groups = acknowledges = False

    def __init__(self, name: str = "slack") -> None:
        self.name = name
        self.notices: list[Notice] = []
        self.is_away = self.refuses = False

    def deliver(self, notice: Notice) -> Delivery:
        if self.is_away:
            return Delivery(outcome="unavailable")
        if self.refuses:
            return Delivery(outcome="refused")
        self.notices.append(notice)
        return Delivery(outcome="delivered")

    def reach(self) -> Delivery:
        return Delivery(outcome="delivered")

    def close(self) -> None:
        pass


def test_each_is_told_once_and_who_was_away_later_and_nobody_is_woken_twice() -> None:
    clock, here, away, pager = ManualClock(START_NS), Told(), Told("webhook"), Told("pagerduty")
    away.is_away = True
    asking = Asking([here, away, pager], clock, "http://head:4319", KEY)
    asking.on_decision(ASKED)
    for _ in range(3):
        asking.turn()
    assert (len(here.notices), len(away.notices), pager.notices) == (1, 0, [])
    away.is_away = False
    clock.advance_s(100)
    asking.turn()
    assert len(away.notices) == 1


def test_what_was_answered_or_has_expired_or_never_waited_is_told_to_nobody() -> None:
    clock, told = ManualClock(START_NS), Told()
    asking = Asking([told], clock, "http://head:4319", KEY)
    asking.on_decision(replace(ASKED, until_ns=0))
    asking.on_decision(ASKED)
    asking.on_decision(replace(ASKED, number=2, until_ns=0, asked=ASKED.identity(), taken=True))
    asking.turn()
    asking.on_decision(ASKED)
    clock.advance_s(3_600)
    asking.turn()
    assert told.notices == []


def test_who_was_told_and_who_has_answered_is_said_once() -> None:
    clock, here, away, deaf = ManualClock(START_NS), Told(), Told("webhook"), Told("email")
    away.is_away, deaf.refuses = True, True
    asking = Asking([here, away, deaf], clock, "http://head:4319", KEY)
    asking.on_decision(ASKED)
    first = asking.turn()
    assert [(one.sink, one.outcome, one.decision) for one in first] == [
        ("slack", "told", ASKED.identity()),
        ("email", "refused", ASKED.identity()),
    ]
    assert {(one.job, one.incident, one.time_ns) for one in first} == {(ASKED.job, ASKED.incident, START_NS)}
    assert asking.turn() == []
    away.is_away = False
    clock.advance_s(100)
    (late,) = asking.turn()
    assert (late.sink, late.time_ns) == ("webhook", START_NS + 100 * 10**9)
    done = replace(ASKED, number=2, until_ns=0, taken=True, asked=ASKED.identity(), by="ann", time_ns=START_NS + 5)
    asking.on_decision(done)
    asking.on_decision(replace(done, number=3))
    (answered,) = asking.turn()
    assert (answered.outcome, answered.by, answered.sink, answered.time_ns) == ("answered", "ann", "", START_NS + 5)


def test_a_question_that_nobody_has_answered_is_over() -> None:
    asking = Asking([Told()], ManualClock(START_NS))
    asking.on_decision(ASKED)
    asking.turn()
    asking.on_decision(replace(ASKED, number=2, until_ns=0, asked=ASKED.identity()))
    (over,) = asking.turn()
    assert (over.outcome, over.by) == ("over", "")


def test_all_sinks_say_what_it_costs_and_carry_the_link() -> None:
    told = Told()
    asking = Asking([told], ManualClock(START_NS), "http://head:4319", KEY)
    asking.on_decision(ASKED)
    asking.turn()
    (notice,) = told.notices
    what, cost, do = notice.lines
    assert "adjust_microbatches waits for a yes: rank 1 takes 2.00 times as long" in what
    assert cost == "5 s for it, and promises 31 % shorter iterations; 9.0 s of the job's time lost so far"
    assert do.endswith(f"by this link, or by pacehound approve {ASKED.identity()[:12]}")
    assert notice.link.startswith(f"http://head:4319/approve/{ASKED.identity()}?until=")
    alert = alertmanager.alert_of(notice)
    assert (alert["labels"]["alertname"], alert["generatorURL"]) == ("PacehoundDecision", notice.link)
    assert alert["annotations"]["approve"] == notice.link
    assert "Look, and say yes or no" in str(slack.message_of(notice))
    assert notice.link in email.message_of(notice, "a@b.c", ["d@e.f"]).get_content()
    assert b'"type":"pacehound.decision"' in webhook.body_of(notice)


def test_without_a_page_the_command_is_named() -> None:
    told = Told()
    asking = Asking([told], ManualClock(START_NS))
    asking.on_decision(ASKED)
    asking.turn()
    assert told.notices[0].link == ""
    assert ", by pacehound approve" in told.notices[0].lines[2]
