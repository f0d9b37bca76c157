"""A stopped process is told to go on once it is proven that it holds the job up; whether that helped is said."""

from __future__ import annotations

from dataclasses import replace

from actuators.attendant import Rules
from actuators.mitigation.thresholds import RESUMED_WITHIN_NS
from pacehound.model.events import Incident, Instant
from pacehound.model.evidence.leaving import Process
from pacehound.model.orders import Wake, read_order
from tests.fakes.events import START_NS, finding, incident
from tests.unit.actuators.test_attendant import Fleet, simulated

STOPPED = Process(rank=1, pid=77, state="stopped")


def hang(**changes: object) -> Incident:
    onset = Instant(step=1, time_ns=START_NS - 40 * 10**9)
    said = {"kind": "hang", "cause": "H1", "culprits": (1,), "candidates": (), "victims": (), "onset": onset}
    one = finding(**(said | {"magnitude": None, "evidence": (STOPPED,)} | changes))
    return incident(id="h", findings=(one,), time_ns=START_NS)


def run(pid: int = 77, **changes: object) -> Fleet:
    fleet, agents = Fleet(rules=Rules()), simulated("j")
    agents.stopped = {1: pid}
    fleet.agents["j"] = agents
    fleet.attendant.on_incident(hang(**changes))
    fleet.run(5)
    return fleet


def test_it_is_told_to_go_on_and_the_relief_is_the_effect() -> None:
    fleet = run()
    orders = [read_order(one.order).what for one in fleet.commands]
    assert any(isinstance(one, Wake) and one.processes == ((1, 77),) for one in orders)
    assert fleet.agents["j"].stopped == {}
    assert fleet.decisions[0].reason.startswith("process 77 of rank 1 is stopped")
    over = replace(hang(relief=Instant(step=2, time_ns=START_NS)), state="relieved")
    fleet.attendant.on_incident(over)
    fleet.run(1)
    assert [(one.action, one.taken, one.seen_gain) for one in fleet.decisions] == [
        ("resume_rank", True, None),
        ("track", True, 1.0),
    ]


def test_a_job_that_still_stands_after_a_minute_was_not_helped() -> None:
    fleet = run()
    fleet.run(RESUMED_WITHIN_NS / 1e9 + 1)
    assert (fleet.decisions[-1].reason, fleet.decisions[-1].seen_gain) == ("the job still stands", 0.0)


def test_another_process_of_that_rank_is_let_be_and_it_is_said() -> None:
    fleet = run(pid=78)
    assert fleet.decisions[-1].limit == "rank 1 is process 78 by now, and not 77"


def test_who_is_only_suspected_or_runs_is_let_be() -> None:
    assert run(verdict="suspected").decisions == []
    assert run(evidence=()).decisions == []
