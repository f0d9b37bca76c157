"""A stopped process is told to go on once it is proven that it holds the job up; whether that helped is said."""

from __future__ import annotations

from dataclasses import replace

from actuators.attendant import Rules
from actuators.mitigation.thresholds import RESUMED_WITHIN_NS
from pacehound.model.events import CommandResult, Incident, Instant, RankAnswer
from pacehound.model.evidence.leaving import Process
from pacehound.model.orders import Wake, What
from tests.fakes.answering_agents import Agents
from tests.fakes.events import START_NS, finding, incident
from tests.unit.actuators.test_attendant import Fleet

STOPPED = Process(rank=1, pid=77, state="stopped")


def hang(**changes: object) -> Incident:
    onset = Instant(step=1, time_ns=START_NS - 40 * 10**9)
    said = {"kind": "hang", "cause": "H1", "culprits": (1,), "candidates": (), "victims": (), "onset": onset}
    one = finding(**(said | {"magnitude": None, "evidence": (STOPPED,)} | changes))
    return incident(id="h", findings=(one,), time_ns=START_NS)


class Hosts(Agents):
    """Host 1 has the stopped process."""

    def __init__(self, why: str = "") -> None:
        super().__init__()
        self.why = why

    def answers(self, orders: list[What]) -> list[CommandResult]:
        found = super().answers(orders)
        for order in orders:
            if isinstance(order, Wake):
                answer = RankAnswer(rank=1, state="refused" if self.why else "running", why=self.why)
                found += [replace(self.result(1, "wake"), ranks=(answer,)), replace(self.result(0, "wake"), ranks=())]
        return found


def run(why: str = "", **changes: object) -> Fleet:
    fleet = Fleet(rules=Rules())
    fleet.agents["j"] = Hosts(why)
    fleet.attendant.on_incident(hang(**changes))
    fleet.run(5)
    return fleet


def test_it_is_told_to_go_on_and_the_relief_is_the_effect() -> None:
    fleet = run()
    assert any(isinstance(one, Wake) and one.processes == ((1, 77),) for one in fleet.agents["j"].orders)
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
    fleet = run(why="rank 1 is process 78 by now, and not 77")
    assert fleet.decisions[-1].limit == "rank 1 is process 78 by now, and not 77"


def test_who_is_only_suspected_or_runs_is_let_be() -> None:
    assert run(verdict="suspected").decisions == []
    assert run(evidence=()).decisions == []
