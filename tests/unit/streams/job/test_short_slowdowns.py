"""What is over before it is worth a person's attention: no incident by itself, and one where it adds up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pacehound.model.events import Finding, Incident, Instant
from pacehound.settings import IncidentSettings
from streams.job.incidents import IncidentTracker
from streams.job.thresholds import MIN_SHORT
from tests.fakes.events import finding
from tests.fakes.evidence_words import words_of

S = 1_000_000_000
SETTINGS = IncidentSettings(min_duration_s=3.0, min_loss=0.02)


def slow(onset_s: float, relief_s: float | None = None, number: int = 0, **changes: object) -> Finding:
    """A slowdown that names rank 5, or what `changes` say."""
    relief = None if relief_s is None else Instant(step=None, time_ns=round(relief_s * S))
    onset = Instant(step=None, time_ns=round(onset_s * S))
    made = finding(
        id=f"slow {number}", kind="slow", verdict="culprit", cause="S1", culprits=(5,), victims=(), onset=onset
    )
    return replace(made, relief=relief, **changes)


def test_an_incident_opens_when_it_has_lasted_and_not_before() -> None:
    tracker = IncidentTracker("j", 0, SETTINGS)
    assert tracker.on_finding(slow(10.0), 11 * S, 0.3) == []
    assert tracker.on_tick(12 * S, {"slow 0": 0.6}) == []
    (opened,) = tracker.on_tick(13 * S, {"slow 0": 0.9})
    assert (opened.state, opened.opened_ns, opened.cost.excess_s) == ("open", 13 * S, 0.9)
    assert tracker.on_tick(14 * S, {"slow 0": 1.2}) == []


def test_a_slowdown_that_costs_next_to_nothing_opens_none() -> None:
    tracker = IncidentTracker("j", 0, SETTINGS)
    assert tracker.on_finding(slow(10.0), 11 * S, 0.001) == []
    assert tracker.on_tick(60 * S, {"slow 0": 0.5}) == []
    assert len(tracker.on_tick(61 * S, {"slow 0": 51 * 0.02})) == 1


def test_forty_milliseconds_of_steps_of_a_millisecond_wake_nobody() -> None:
    tracker = IncidentTracker("j", 0, SETTINGS)
    assert tracker.adding_up(Instant(step=None, time_ns=S)) == []
    assert tracker.on_finding(slow(10.0), round(10.01 * S), 0.005) == []
    assert tracker.on_finding(slow(10.0, 10.04, version=1), round(10.05 * S), 0.02) == []
    assert tracker.on_tick(20 * S, {}) == []
    (said,) = tracker.short_in_all(Instant(step=None, time_ns=100 * S))
    assert (said.kind, said.verdict, said.culprits, said.pages) == ("intermittent", "unknown", (), False)
    assert words_of(said) == ("1 short slowdowns, 0.0% of the time",)


@pytest.mark.parametrize(
    ("n", "each_s", "is_told"),
    [(MIN_SHORT, 2.5, True), (MIN_SHORT - 1, 2.9, False), (40, 0.2, False)],
    ids=["they add up", "too few", "they cost too little"],
)
def test_short_ones_are_one_incident_where_they_add_up(n: int, each_s: float, is_told: bool) -> None:
    incidents = run_of(n, each_s)
    assert bool(incidents) is is_told
    assert len({incident.id for incident in incidents}) == int(is_told)
    for incident in incidents:
        (one,) = incident.findings
        assert (one.kind, one.verdict, one.culprits) == ("intermittent", "suspected", (5,))


def run_of(n: int, each_s: float) -> list[Incident]:
    """So many slowdowns, one every fourteen seconds, and the quarter of an hour afterwards."""
    tracker, said = IncidentTracker("j", 0, SETTINGS), []
    for second in range(1, 14 * n + 900):
        at = Instant(step=None, time_ns=second * S)
        number, phase = divmod(second, 14)
        if phase == 13 and number < n:
            short = slow(second - each_s, second, number)
            said += tracker.on_finding(replace(short, relief=None), at.time_ns, 0.0)
            said += tracker.on_finding(replace(short, version=1), at.time_ns, each_s)
        for one in tracker.adding_up(at):
            said += tracker.on_finding(one, at.time_ns, tracker.short_excess_s(one))
        said += tracker.on_tick(at.time_ns, {})
    return said


def test_what_adds_up_no_longer_is_relieved() -> None:
    opened, *_, last = run_of(MIN_SHORT, 2.5)
    assert opened.state == "open"
    assert opened.cost.excess_s == pytest.approx(MIN_SHORT * 2.5)
    assert last.state == "closed"


def test_what_adds_up_on_a_crowded_machine_is_told_once_it_is_not_crowded_any_more() -> None:
    tracker = IncidentTracker("j", 0, SETTINGS)
    tracker.adding_up(Instant(step=None, time_ns=S))
    for number in range(MIN_SHORT):
        tracker.on_finding(slow(10.0 + 5 * number, 12.8 + 5 * number, number), (14 + 5 * number) * S, 2.5)
    at = Instant(step=None, time_ns=40 * S)
    asked: list[tuple[int, float]] = []

    def is_crowded(since_ns: int, share: float) -> bool:
        asked.append((since_ns, share))
        return True

    assert tracker.adding_up(at, is_crowded) == []
    assert asked == [(10 * S, MIN_SHORT * 2.5 / 30)], "what is lost is a share of the time since the first of them"
    (told,) = tracker.adding_up(at)
    assert told.kind == "intermittent"
