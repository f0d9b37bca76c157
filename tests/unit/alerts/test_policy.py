"""Whether a sink is told now, later or never; every answer with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.orders import Acknowledgement, Orders, OrdersFile, Silence, append
from alerts.policy import Subject, Waits, decide
from pacehound.errors import InvalidInput


def subject(**changes: object) -> Subject:
    fields = {"id": "i", "level": "page", "state": "open", "opened_ns": 100, "jobs": frozenset({"j"})}
    return Subject(**(fields | changes))  # type: ignore[arg-type]


def silenced(until_ns: int, job: str = "j") -> Silence:
    return Silence(job=job, from_ns=0, until_ns=until_ns, why="maintenance")


def test_a_sink_is_told_of_nothing_below_its_level() -> None:
    ticket = decide(subject(level="ticket"), {}, Waits(lowest_level="page"), Orders(), 200)
    assert ticket.reason == "a ticket is below page"


def test_what_may_pass_by_itself_is_told_when_it_has_not() -> None:
    waits = Waits(tell_after_ns=50)
    assert decide(subject(), {}, waits, Orders(), 120).due_ns == 150
    assert decide(subject(), {}, waits, Orders(), 150).action == "tell"
    over = subject(state="closed", ended_ns=149)
    assert decide(over, {}, waits, Orders(), 1_000).reason == "over before it was told: it may pass by itself"
    assert decide(subject(state="closed", ended_ns=151), {}, waits, Orders(), 1_000).action == "tell", (
        "it would have been told, had the sink been there"
    )


def test_in_a_silence_nothing_opens_and_what_goes_on_is_told_when_it_ends() -> None:
    orders = Orders((silenced(500),))
    found = decide(subject(), {}, Waits(), orders, 200)
    assert (found.action, found.reason, found.due_ns) == ("wait", "silenced: maintenance", 500)
    assert decide(subject(), {}, Waits(), orders, 500).action == "tell"
    assert decide(subject(state="closed", ended_ns=300), {"open": 1}, Waits(), orders, 300).action == "tell", (
        "who was told that it opened hears that it is over"
    )
    assert decide(subject(state="closed", ended_ns=300), {}, Waits(), orders, 900).action == "nothing"


def test_a_silence_of_some_jobs_does_not_silence_the_others_of_an_alert() -> None:
    both = subject(jobs=frozenset({"j", "k"}))
    assert decide(both, {}, Waits(), Orders((silenced(500),)), 200).action == "tell"
    assert decide(both, {}, Waits(), Orders((silenced(500), silenced(300, "k*"))), 200).due_ns == 300


def test_the_next_is_told_when_nobody_acknowledges() -> None:
    waits = Waits(escalate_after_ns=900)
    assert decide(subject(), {}, waits, Orders(), 200).reason == "nobody else has been told yet"
    assert decide(subject(), {}, waits, Orders(), 200, first_told_ns=110).due_ns == 1010
    assert decide(subject(), {}, waits, Orders(), 1010, first_told_ns=110).action == "tell"
    found = decide(subject(), {}, waits, Orders(), 1010, first_told_ns=110, is_acknowledged=True)
    assert (found.action, found.reason) == ("nothing", "acknowledged")


def test_what_was_over_before_this_process_began_is_not_told_to_a_new_sink() -> None:
    past = subject(state="closed", is_history=True)
    assert decide(past, {}, Waits(), Orders(), 200).reason == "over before anybody was told"
    assert decide(past, {"open": 1}, Waits(), Orders(), 200).action == "tell"
    assert decide(subject(is_history=True), {}, Waits(), Orders(), 200).action == "tell"


def test_the_orders_of_people_are_read_when_they_change_and_a_bad_line_undoes_no_other(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    file = OrdersFile(path)
    assert not file.look()
    append(str(path), silenced(500))
    with path.open("a") as raw:
        raw.write(
            '{"order": "silence", "job": "*"}\n[[[\n{"order":"silence","job":"*","from_ns":5,"until_ns":1,"why":""}\n'
        )
    append(str(path), Acknowledgement(incident="i", time_ns=7, by="ada"))
    assert file.look()
    assert not file.look()
    assert file.orders.said == (silenced(500), Acknowledgement(incident="i", time_ns=7, by="ada"))
    assert path.stat().st_mode & 0o777 == 0o600
    assert file.orders.acknowledgement({"i"}, 5) is not None
    assert file.orders.acknowledgement({"i"}, 8) is None, "it is of something older"
    path.unlink()
    assert file.look()
    assert file.orders.said == ()


def test_an_order_that_nobody_would_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"set alerts\.orders_file"):
        append("", silenced(5))
    with pytest.raises(InvalidInput, match="cannot be written"):
        append(str(tmp_path / "no" / "file"), silenced(5))
