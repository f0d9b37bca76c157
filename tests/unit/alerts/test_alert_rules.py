"""Who is told of what, decided without any shell."""

import pytest

from alerts.notice import Notice, summary
from alerts.rules import rule
from tests.fakes.events import finding, incident


def test_each_state_is_told_once_whatever_the_version():
    assert rule(incident(version=0), set()).reason == "new state"
    assert rule(incident(version=7), {("i0", "open")}).reason == "already sent"
    assert rule(incident(version=8, state="closed"), {("i0", "open")}).tells


@pytest.mark.parametrize("kind", ["planned", "change"])
def test_what_was_meant_wakes_nobody(kind):
    meant = finding(kind=kind, verdict="unknown", culprits=(), pages=False)
    assert rule(incident(findings=(meant,)), set()).reason == "only planned"
    assert rule(incident(findings=(meant, finding())), set()).tells


def test_slowness_is_told_when_it_says_that_it_would_wake_somebody():
    not_yet = incident(findings=(finding(pages=False, verdict="unknown", culprits=()),))
    assert rule(not_yet, set()).reason == "wakes nobody"
    assert rule(incident(version=1), set()).reason == "new state"
    spells = finding(kind="intermittent", verdict="unknown", culprits=(), pages=False)
    assert rule(incident(findings=(spells,)), set()).reason == "wakes nobody"
    assert rule(incident(findings=(finding(kind="hang", pages=False),)), set()).tells


def test_a_process_that_sees_nothing_is_told_of():
    blind = finding(kind="blind", verdict="unknown", culprits=())
    assert rule(incident(findings=(blind,)), set()).tells


def test_the_past_is_not_told_to_a_new_webhook_but_what_is_open_is():
    closed = incident(state="closed")
    assert rule(closed, set(), is_history=True).reason == "over before anybody was told"
    assert rule(closed, {("i0", "open")}, is_history=True).tells
    assert rule(incident(), set(), is_history=True).tells
    assert rule(closed, set()).tells


def test_the_key_names_incident_and_state_and_not_the_version():
    keys = [
        Notice(incident=incident(version=v, state=s)).idempotency_key
        for v, s in ((0, "open"), (3, "open"), (4, "closed"))
    ]
    assert keys[0] == keys[1] != keys[2]
    assert Notice(incident=incident(id="i1")).idempotency_key != keys[0]


def test_the_line_for_a_person_never_names_somebody_who_is_not_a_culprit():
    nobody = finding(kind="hang", verdict="unknown", cause=None, culprits=(), candidates=(0, 1), magnitude=None)
    said = summary(incident(findings=(nobody,)))
    assert said == "job j: hang, nobody named (unknown), since step 200; open"
    link = finding(verdict="suspected", cause="S2", culprits=(), links=((2, 3),), magnitude=-0.05, onset=None)
    assert summary(incident(findings=(link,))) == "job j: slow, link 2->3 (suspected, S2), -5 %; open"
    closed = incident(state="closed", closed_why="job ended", findings=())
    assert summary(closed) == "job j: no finding; closed (job ended), 4.5 s lost in all"
