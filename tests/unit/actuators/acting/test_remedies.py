"""What scripts are told against slow links and pauses of the garbage collector, and when there is nothing to tell."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from actuators.acting.act import Terms
from actuators.acting.applied import Applied
from actuators.acting.choosing import acts_against, given_back
from actuators.acting.collection import Collection
from actuators.acting.limits import Limits
from actuators.acting.places import Places
from actuators.acting.remedy import Plan
from actuators.control.pacing import Pace
from actuators.mitigation.prices import Measured
from actuators.site_commands import SiteCommands
from pacehound.model.events import Cost, Incident
from pacehound.model.evidence.straggling import Mend, Straggles
from pacehound.settings import ActuatorSettings
from tests.fakes.events import finding, incident

PACE = Pace(step_time_s=0.1, micro_batches=(0,) * 4, hosts=("a", "b", "c", "d"), layout=(2, 2), furthest_step=50)


def slow_link(**changes: object) -> Incident:
    said = {"cause": "S2", "culprits": (), "links": ((2, 3),), "candidates": (), "victims": (), "magnitude": 1.0}
    return incident(findings=(finding(**(said | changes)),), cost=Cost(excess_s=100.0, ranks=4))


def collecting(gain: float | None = 0.12, cause: str = "garbage collection") -> Incident:
    evidence = (
        Straggles(slowdown=1.2, first_step=0, last_step=9, n_windows=3, cause=cause),
        Mend(what="collect at the same step", gain=gain),
    )
    one = finding(verdict="unknown", cause=None, culprits=(), candidates=(), victims=(), evidence=evidence)
    return incident(findings=(one,), cost=Cost(excess_s=100.0, ranks=4))


def test_ranks_change_places_so_that_the_ring_does_not_run_over_the_slow_link() -> None:
    plan = Places().plan(slow_link(), PACE)
    assert isinstance(plan, Plan)
    rank_at = json.loads(plan.after)
    assert sorted(rank_at) == json.loads(plan.before) == [0, 1, 2, 3]
    rings = [set(rank_at[0:2]), set(rank_at[2:4])]
    assert {2, 3} not in rings, "the two ends of the slow link are in no ring together"
    assert plan.gain == pytest.approx(0.40 * 0.5), "Falcon 7.3: 40 % of what is lost"


@pytest.mark.parametrize(
    ("pace", "why"),
    [
        (replace(PACE, layout=None), "not all scripts say their layout"),
        (replace(PACE, hosts=("a",) * 4), "no exchange of places helps"),
    ],
)
def test_where_no_rank_can_move_it_is_said_why(pace: Pace, why: str) -> None:
    found = Places().plan(slow_link(), pace)
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize("changes", [{"verdict": "suspected"}, {"cause": "S1", "culprits": (1,), "links": ()}])
def test_a_suspicion_and_a_single_straggler_move_nobody(changes: dict[str, object]) -> None:
    assert not Places().is_against(slow_link(**changes))


def test_collections_are_planned_where_the_recorded_steps_show_the_pattern() -> None:
    plan = Collection().plan(collecting(), PACE)
    assert isinstance(plan, Plan)
    assert (json.loads(plan.before), json.loads(plan.after), plan.gain) == ({"every": 0}, {"every": 100}, 0.12)
    assert (
        Collection().plan(collecting(0.02), PACE)
        == "it would make iterations 2 % shorter, and less than 5 % is not tried"
    )
    assert not Collection().is_against(collecting(None))
    assert not Collection().is_against(collecting(cause="sequence length"))


def test_the_cheapest_that_the_incident_calls_for_comes_first_by_the_prices_of_the_job() -> None:
    settings = ActuatorSettings(stop_command="stop {job}", start_command="start {job}")
    names = [
        [
            one.action.name
            for one in acts_against(slow_link(), 1, lambda _, m=measured: Terms(measured=m), SiteCommands(settings))
        ]
        for measured in (Measured(), Measured(checkpoint_s=1.0, restart_s=9.0))
    ]
    assert names == [["adjust_topology", "checkpoint_restart"], ["checkpoint_restart", "adjust_topology"]]
    assert acts_against(slow_link(), 1, lambda _: None, SiteCommands(settings)) == []


def test_what_is_for_good_is_not_given_back_and_the_rest_is() -> None:
    assert given_back("planned_collection", collecting(), 1, Terms()) is None
    act = given_back("keep_topology", slow_link(), 1, Terms())
    assert isinstance(act, Applied)
    assert act.remedy.given_back(PACE) == Plan(before="[0, 1, 2, 3]", after="[0, 1, 2, 3]", gain=0.0, words="")


def test_no_action_is_aimed_at_more_than_half_of_the_ranks() -> None:
    assert Limits().reason_not_to_act(0, n_aimed=2, n_ranks=4) == ""
    assert "3 of 4 ranks are to blame" in Limits().reason_not_to_act(0, n_aimed=3, n_ranks=4)
