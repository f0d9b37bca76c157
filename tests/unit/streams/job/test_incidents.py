"""What opens an incident, and what stays a finding."""

import pytest

from pacehound.settings import IncidentSettings
from streams.job.incidents import IncidentTracker
from tests.fakes.events import START_NS, finding

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
