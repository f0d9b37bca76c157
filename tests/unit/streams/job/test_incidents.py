"""What opens an incident, and what stays a finding."""

import pytest

from pacehound.model.events import Instant
from pacehound.settings import IncidentSettings
from streams.job.incidents import IncidentTracker
from streams.job.thresholds import MAX_EPISODES_TOLD, QUIET_NS, REPEAT_NS
from tests.fakes.events import SECOND_NS, START_NS, finding
from tests.fakes.evidence_words import words_of

AT_ONCE = IncidentSettings(min_duration_s=0.0, min_loss=0.0)
NOW = START_NS + 60_000_000_000
"""After the onset of every finding here."""
UNNAMED = {"verdict": "unknown", "cause": None, "culprits": (), "victims": ()}


@pytest.mark.parametrize("kind", ["slow", "intermittent"])
def test_slowness_without_a_name_that_wakes_nobody_stays_a_finding_until_it_would(kind):
    tracker = IncidentTracker("j", 0, AT_ONCE)
    assert tracker.on_finding(finding(kind=kind, pages=False, lasting=False, **UNNAMED), NOW, 1.0) == []
    (opened,) = tracker.on_finding(finding(kind=kind, pages=True, version=1, **UNNAMED), NOW, 2.0)
    assert (opened.state, opened.cost.excess_s) == ("open", 2.0)


def test_a_name_a_link_or_a_halt_opens_one_whether_it_pages_or_not():
    links = {**UNNAMED, "verdict": "suspected", "links": ((0, 1),)}
    for quiet in (finding(pages=False), finding(pages=False, **links), finding(kind="hang", pages=False, **UNNAMED)):
        assert len(IncidentTracker("j", 0, AT_ONCE).on_finding(quiet, NOW, 0.0)) == 1


@pytest.mark.parametrize("kind", ["planned", "change"])
def test_what_was_meant_opens_none(kind):
    assert IncidentTracker("j", 0, AT_ONCE).on_finding(finding(kind=kind, pages=False, **UNNAMED), NOW, 0.0) == []


def episode(number, *, relief_ns=None, **changes):
    onset_ns = START_NS + number * 60 * SECOND_NS
    relief = None if relief_ns is None else Instant(step=None, time_ns=relief_ns)
    return finding(id=f"s{number}", onset=Instant(step=number, time_ns=onset_ns), relief=relief, **changes)


def episodes(tracker, n, **changes):
    """Ten seconds of every minute, each quiet for long enough to be closed; every version of their incidents."""
    said = []
    for number in range(n):
        began = episode(number, **changes)
        over_ns = began.onset.time_ns + 10 * SECOND_NS
        over = episode(number, relief_ns=over_ns, version=1, **changes)
        said += tracker.on_finding(tracker.with_spells(began), began.onset.time_ns, 0.5)
        said += tracker.on_finding(tracker.with_spells(over), over_ns, 4.0)
        said += tracker.on_tick(over_ns + QUIET_NS, {})
    return said


def test_spells_of_one_cause_are_one_incident_that_goes_on():
    said = episodes(IncidentTracker("j", 0, AT_ONCE), 5)
    assert len({incident.id for incident in said}) == 1
    assert [incident.version for incident in said] == list(range(15))
    assert [incident.state for incident in said] == ["open", "relieved", "closed"] * 5
    assert [(i.closed_ns is None, i.closed_why is None) for i in said] == [
        (True, True),
        (True, True),
        (False, False),
    ] * 5
    last = said[-1]
    assert (len(last.findings), last.cost.excess_s) == (5, 20.0)
    assert (
        words_of(last.findings[4])[-1] == "the same again: episode 5 of one incident, 16.0 s were lost in those before"
    )
    assert not any("the same again" in sentence for sentence in words_of(last.findings[0]))


def test_an_incident_of_many_spells_holds_the_first_and_the_latest_and_the_cost_of_all():
    last = episodes(IncidentTracker("j", 0, AT_ONCE), 40)[-1]
    assert [f.id for f in last.findings] == ["s0", *(f"s{n}" for n in range(40 - MAX_EPISODES_TOLD + 1, 40))]
    assert last.cost.excess_s == 160.0
    assert "episode 40 of one incident" in words_of(last.findings[-1])[-1]


def test_spells_of_a_link_are_one_incident_and_others_are_not():
    link = {**UNNAMED, "verdict": "suspected", "cause": "S2", "links": ((0, 1),)}
    tracker = IncidentTracker("j", 0, AT_ONCE)
    assert len({incident.id for incident in episodes(tracker, 3, **link)}) == 1
    (other,) = tracker.on_finding(episode(3), START_NS + 180 * SECOND_NS, 0.5)
    (another_cause,) = tracker.on_finding(episode(4, **(link | {"cause": "S3"})), START_NS + 240 * SECOND_NS, 0.5)
    assert (other.version, another_cause.version) == (0, 0)


def test_what_comes_back_long_after_is_another_incident():
    tracker = IncidentTracker("j", 0, AT_ONCE)
    episodes(tracker, 1)
    tracker.on_tick(START_NS + 20 * SECOND_NS + REPEAT_NS, {})
    (again,) = tracker.on_finding(episode(20), START_NS + 1200 * SECOND_NS, 0.5)
    assert again.version == 0
