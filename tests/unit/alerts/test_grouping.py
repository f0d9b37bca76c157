"""One fault is one alert: of a job, over jobs, and when it flaps."""

from __future__ import annotations

import random

from alerts.grouping import Alert, Book
from alerts.thresholds import FLAPS_AFTER, MINUTE_NS, QUIET_NS, TOGETHER_NS
from pacehound.model.events import Incident
from tests.fakes.events import START_NS, incident


def at(minutes: float) -> int:
    return START_NS + round(minutes * MINUTE_NS)


def opened(name: str, minutes: float, job: str = "j", **changes: object) -> Incident:
    return incident(id=name, job=job, opened_ns=at(minutes), time_ns=at(minutes), **changes)


def closed(name: str, began: float, ended: float, job: str = "j") -> Incident:
    return opened(name, began, job, version=9, state="closed", closed_ns=at(ended))


def alerts_of(book: Book) -> list[Alert]:
    return list(book.alerts())


def test_a_switch_that_takes_ten_jobs_down_is_one_alert_until_the_last_is_over() -> None:
    book = Book()
    for number in range(10):
        book.note(opened(f"i{number}", number / 20, f"j{number}"), "halt", number)
    (alert,) = alerts_of(book)
    assert (len(alert.jobs), alert.n_incidents, alert.lead.id) == (10, 10, "i0")
    for number in range(9):
        book.note(closed(f"i{number}", number / 20, 5, f"j{number}"), "halt", number)
    assert not alert.is_over(at(60))
    book.note(closed("i9", 9 / 20, 5, "j9"), "halt", 9)
    assert alert.is_over(at(5))


def test_jobs_that_go_down_at_once_are_one_alert_although_each_is_over_in_a_second() -> None:
    book = Book()
    for number in range(10):
        book.note(opened(f"i{number}", number / 20, f"j{number}"), "halt", number)
        book.note(closed(f"i{number}", number / 20, number / 20 + 0.01, f"j{number}"), "halt", number)
    (alert,) = alerts_of(book)
    assert not alert.is_over(at(0.9))
    assert alert.is_over(alert.opened_ns + TOGETHER_NS)


def test_what_begins_later_in_another_job_is_another_alert() -> None:
    book = Book()
    book.note(opened("a", 0, "j"), "page", 0)
    book.note(opened("b", 2, "k"), "page", 1)
    assert len(alerts_of(book)) == 2


def test_ten_thousand_incidents_of_one_fault_are_one_alert() -> None:
    book = Book()
    for number in range(10_000):
        book.note(opened(f"i{number}", number / 100), "page", 0)
    (alert,) = alerts_of(book)
    assert alert.n_incidents == 10_000


def test_what_gets_worse_is_an_alert_of_its_own_and_ends_the_one_before() -> None:
    book = Book()
    (slow,) = book.note(opened("a", 0), "page", 0)
    changed = book.note(opened("a", 0, version=1), "halt", 0)
    assert [one.level for one in changed] == ["page", "halt"]
    assert (slow.is_over(at(1)), changed[1].is_over(at(1))) == (True, False)
    assert slow.key != changed[1].key
    book.note(opened("a", 0, version=2), "ticket", 0)
    assert book.alert_of("a", "halt") is changed[1], "it is not less bad an hour later"


def test_what_flaps_is_one_alert_until_it_is_quiet() -> None:
    book = Book()
    for number in range(40):
        book.note(opened(f"i{number}", 4 * number), "page", 0)
        book.note(closed(f"i{number}", 4 * number, 4 * number + 2), "page", 0)
    assert len(alerts_of(book)) == FLAPS_AFTER + 1
    last = alerts_of(book)[-1]
    assert last.flaps
    assert last.n_incidents == 40 - FLAPS_AFTER
    ended_ns = at(4 * 39 + 2)
    assert not last.is_over(ended_ns + QUIET_NS - 1)
    assert last.is_over(ended_ns + QUIET_NS)


def test_who_comes_later_and_sees_only_the_last_versions_finds_the_same_groups() -> None:
    chance = random.Random(7)
    spans = [(f"i{n}", minutes := n * chance.random() * 3, minutes + chance.random() * 20) for n in range(60)]
    spans.sort(key=lambda one: one[1])
    jobs = {name: f"j{chance.randrange(6)}" for name, _, _ in spans}
    live, later = Book(), Book()
    moments = sorted([(began, 0, name) for name, began, _ in spans] + [(ended, 1, name) for name, _, ended in spans])
    of = {name: (began, ended) for name, began, ended in spans}
    for _, is_end, name in moments:
        one = closed(name, *of[name], jobs[name]) if is_end else opened(name, of[name][0], jobs[name])
        live.note(one, "page", 0)
    for name, began, ended in spans:
        later.note(closed(name, began, ended, jobs[name]), "page", 0)
    groups = [{frozenset(one.ids) for one in book.alerts()} for book in (live, later)]
    assert groups[0] == groups[1]
    assert 5 < len(groups[0]) < 60


def test_what_ended_long_ago_and_the_partitions_of_others_are_forgotten() -> None:
    book = Book()
    book.note(opened("a", 0), "page", 0)
    book.note(opened("b", 10, "k"), "page", 1)
    book.forget_over(at(300))
    assert len(alerts_of(book)) == 2, "both go on"
    book.forget_partitions({1})
    assert (book.version("b"), len(alerts_of(book))) == (-1, 1)
    book.note(closed("a", 0, 20), "page", 0)
    book.forget_over(at(81))
    assert alerts_of(book) == []
