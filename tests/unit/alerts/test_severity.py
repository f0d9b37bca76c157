"""How bad an incident is, by what is lost, whose job it is, and whether it stands still."""

from __future__ import annotations

import pytest

from alerts.importance import Importance
from alerts.severity import severity
from pacehound.errors import InvalidSetting
from pacehound.model.events import Cost, Incident
from tests.fakes.events import finding, incident


def level(one: Incident, jobs: str = "", page_lost_ranks: float = 1.0) -> str:
    return severity(one, Importance.parse(jobs), page_lost_ranks).level


@pytest.mark.parametrize("kind", ["planned", "change"])
def test_what_was_meant_wakes_nobody(kind: str) -> None:
    meant = finding(kind=kind, verdict="unknown", culprits=(), pages=True)
    assert severity(incident(findings=(meant,)), Importance(), 0).reason == "only planned"
    assert level(incident(findings=(meant, finding()))) == "page"


def test_slowness_is_told_when_it_says_that_it_would_wake_somebody() -> None:
    not_yet = incident(findings=(finding(pages=False, verdict="unknown", culprits=()),))
    assert severity(not_yet, Importance(), 0).reason == "wakes nobody"
    episodes = finding(kind="intermittent", verdict="unknown", culprits=(), pages=False)
    assert level(incident(findings=(episodes,))) == "none"
    assert level(incident(findings=(finding(kind="hang", pages=False),))) == "halt"


def test_a_process_that_sees_nothing_wakes_somebody() -> None:
    blind = finding(kind="blind", verdict="unknown", culprits=(), magnitude=None)
    assert level(incident(findings=(blind,)), page_lost_ranks=100) == "page"


@pytest.mark.parametrize(
    ("ranks", "magnitude", "kind", "jobs", "expected"),
    [
        (64, 0.25, "slow", "", "page"),  # 12.8 ranks
        (16, 0.25, "slow", "", "ticket"),  # 3.2 ranks
        (16, 0.25, "slow", "j=4", "page"),
        (64, 0.25, "slow", "other=9,j*=0.5", "ticket"),
        (64, 0.25, "slow", "j=0", "none"),
        (4, None, "hang", "", "ticket"),  # a job of four ranks that stands still loses four
        (8, None, "hang", "", "halt"),
        (0, 0.25, "slow", "", "page"),  # what is lost but not measured wakes, too
        (16, None, "slow", "", "page"),
    ],
)
def test_lost_ranks_times_importance_decide_who_is_woken(
    ranks: int, magnitude: float | None, kind: str, jobs: str, expected: str
) -> None:
    one = incident(findings=(finding(kind=kind, magnitude=magnitude),), cost=Cost(ranks=ranks))
    assert level(one, jobs, page_lost_ranks=8) == expected


@pytest.mark.parametrize("text", ["j", "j=x", "=4", "j=-1", "j=inf", "j=nan"])
def test_a_weight_that_is_none_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"alerts\.importance.*PATTERN=NUMBER"):
        Importance.parse(text)
