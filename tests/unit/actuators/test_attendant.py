"""Who attends to all jobs of a worker: each suspicion once, so many an hour, and what cannot be reached is let be."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from actuators.attendant import Attendant, Rules
from actuators.thresholds import MOST_VALIDATIONS_PER_HOUR
from actuators.worker import STEP_S, ActuatorWorker
from pacehound.bus import Message
from pacehound.bus.signing import Keys, Signer
from pacehound.clock import ManualClock
from pacehound.errors import Unavailable
from pacehound.model.events import Command, CommandResult, Cost, Decision, Incident, Instant
from pacehound.model.evidence.computing import OwnTimeGrew
from pacehound.model.evidence.machines import NobodySlow
from pacehound.model.orders import read_order
from pacehound.model.topics import INCIDENTS, partition_of
from simulator.obedient_agents import ObedientAgents
from simulator.running_job import RunningJob
from tests.fakes.events import START_NS, finding, incident

SIGNER = Signer.drawn()


def slow(name: str, *suspects: int, job: str = "j", excess_s: float = 1_000.0) -> Incident:
    verdict = "suspected" if suspects else "unknown"
    one = finding(verdict=verdict, culprits=suspects, cause=None, candidates=(), victims=(), pages=False)
    return incident(id=name, job=job, findings=(one,), cost=Cost(excess_s=excess_s, ranks=2))


STEP_NS = 100_000_000


def simulated(name: str, **how: bool) -> ObedientAgents:
    """A job of two ranks, of which one takes twice as long."""
    return ObedientAgents(name, RunningJob(slowness=[1.0, 2.0]), Keys([SIGNER.key]), **how)


class Fleet:
    """An attendant, and simulated jobs behind a wire."""

    def __init__(self, *, is_away: bool = False, is_deaf: bool = False, rules: Rules | None = None) -> None:
        self.clock = ManualClock(START_NS)
        self.commands: list[Command] = []
        self.agents: dict[str, ObedientAgents] = {}
        self.is_away, self.is_deaf = is_away, is_deaf
        self.open_ways = 0
        self.answered: list[Command] = []
        self.attendant = Attendant(SIGNER, self.clock, self._reach, rules)
        self.decisions: list[Decision] = []

    @contextlib.contextmanager
    def _reach(self, job: str) -> Iterator[Fleet]:
        if self.is_away:
            raise Unavailable("no broker")
        self.open_ways += 1
        yield self
        self.open_ways -= 1

    def command(self, command: Command) -> None:
        if self.is_away:
            raise Unavailable("no broker")
        self.commands.append(command)
        if not self.is_deaf:
            self._of(command.job).command(command)

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        return self._of(job).results(job, after)

    def _of(self, job: str) -> ObedientAgents:
        if job not in self.agents:
            self.agents[job] = simulated(job)
        return self.agents[job]

    def given(self, job: str, after: int) -> tuple[list[Command], int]:
        found, self.answered = self.answered, []
        return [one for one in found if one.job == job], after

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.decisions += self.attendant.step()
            self.attendant.on_settled()
            self.clock.advance_s(STEP_NS / 1e9)
            for agents in self.agents.values():
                agents.advance(STEP_NS)

    def run_until(self, action: str) -> None:
        for _ in range(60):
            self.run(1)
            if action in self.actions():
                return
        raise AssertionError(f"no {action}: {self.actions()}")

    def actions(self) -> list[str]:
        return [one.action for one in self.decisions]


def test_it_signs_what_it_orders_and_says_for_the_sake_of_which_incident() -> None:
    fleet = Fleet()
    fleet.attendant.on_incident(slow("i1"))
    fleet.run(60)
    assert fleet.actions() == ["profile", "validate", "track"]
    assert all(Keys([SIGNER.key]).have_signed(one) for one in fleet.commands)
    orders = [read_order(one.order) for one in fleet.commands]
    assert {one.incident for one in orders} == {"i1"}
    assert [one.number for one in orders] == list(range(1, len(orders) + 1))
    assert fleet.open_ways == 0


def test_a_suspicion_is_looked_into_once_and_another_one_anew() -> None:
    fleet = Fleet()
    for version in (slow("i1"), slow("i1"), slow("i1", 0), slow("i1", 0), slow("i1")):
        fleet.attendant.on_incident(version)
        fleet.run(60)
    assert fleet.actions() == ["profile", "validate", "track"] * 2


def test_a_job_is_measured_so_often_an_hour_at_the_most() -> None:
    fleet = Fleet()
    for number in range(MOST_VALIDATIONS_PER_HOUR + 3):
        fleet.attendant.on_incident(slow(f"i{number}"))
        fleet.run(60)
    assert fleet.actions().count("validate") == MOST_VALIDATIONS_PER_HOUR
    fleet.clock.advance_s(3_600)
    fleet.attendant.on_incident(slow("later"))
    fleet.run(60)
    assert fleet.actions().count("validate") == MOST_VALIDATIONS_PER_HOUR + 1


def test_jobs_are_looked_into_beside_each_other() -> None:
    fleet = Fleet()
    for job in ("a", "b"):
        fleet.attendant.on_incident(slow(f"of {job}", job=job))
    fleet.run(60)
    assert sorted(one.job for one in fleet.decisions if one.action == "validate") == ["a", "b"]


def test_whose_agents_cannot_be_reached_is_given_up_with_the_reason() -> None:
    fleet = Fleet(is_away=True)
    fleet.attendant.on_incident(slow("i1"))
    fleet.run(1)
    assert (fleet.commands, fleet.decisions) == ([], [])
    fleet.is_away = False
    fleet.attendant.on_incident(slow("i2"))
    fleet.run(2)
    fleet.is_away = True
    fleet.run(60)
    assert fleet.actions()[-1] == "track"
    assert fleet.decisions[-1].reason == "its agents cannot be reached: no broker"
    assert fleet.open_ways == 0


def test_jobs_that_have_gone_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actuators.attendant.MOST_JOBS", 20)
    fleet = Fleet()
    for number in range(50):
        fleet.attendant.on_incident(replace(incident(id=f"i{number}", job=f"j{number}"), state="closed"))
    assert list(fleet.attendant._jobs) == [f"j{number}" for number in range(30, 50)]


def test_it_is_asked_what_is_due_only_while_something_is_under_way() -> None:
    fleet = Fleet()
    worker = ActuatorWorker(lambda _: (), fleet.attendant)
    worker.on_assigned([("incidents", 0)])
    assert worker.may_wait_s() == STEP_S, "what was left there is not known yet"
    worker.on_turn()
    assert worker.may_wait_s() == math.inf
    fleet.attendant.on_incident(slow("i1"))
    assert worker.may_wait_s() == STEP_S
    fleet.run_until("track")
    assert worker.may_wait_s() == math.inf


def test_what_it_decides_is_told_by_the_worker_beside_what_would_be_done() -> None:
    fleet = Fleet()
    worker = ActuatorWorker(lambda _: (), fleet.attendant)
    at = {"topic": "incidents", "key": "j", "partition": 0, "offset": 0, "value": b""}
    observed = worker.on_event(slow("i1"), Message(**at))
    assert [(one.action, one.mode) for one in observed if isinstance(one, Decision)] == [("ignore", "observe")]
    assert [one.action for one in worker.on_turn() if isinstance(one, Decision)] == ["profile"]
    worker.on_revoked([("incidents", 0)])
    assert worker.on_turn() == []
    assert fleet.open_ways == 0


GREW = OwnTimeGrew(ranks=(1,), own_s=0.4, peers_s=0.0, iteration_s=0.4)
MOVED = ["adjust_microbatches", "keep_microbatches"]
GIVEN_BACK = ["restore_microbatches", "track"]


def proven(name: str = "i1", *, job: str = "j", is_measured: bool = True, excess_s: float = 8.0) -> Incident:
    measured = (NobodySlow(n_measured=2, n_cleared=2),) if is_measured else ()
    one = finding(cause="S1", culprits=(1,), candidates=(), victims=(), magnitude=1.0, evidence=(GREW, *measured))
    return incident(id=name, job=job, findings=(one,), cost=Cost(excess_s=excess_s, ranks=2), time_ns=START_NS)


def relieved(one: Incident, at_ns: int) -> Incident:
    findings = tuple(replace(each, relief=Instant(step=1, time_ns=at_ns)) for each in one.findings)
    return replace(one, state="relieved", findings=findings, version=one.version + 1)


def scripted(**how: bool) -> tuple[Fleet, ObedientAgents]:
    fleet, agents = Fleet(), simulated("j", **how)
    fleet.agents["j"] = agents
    return fleet, agents


def test_micro_batches_of_a_culprit_are_moved_and_given_back_when_it_is_over() -> None:
    fleet, agents = scripted()
    fleet.attendant.on_incident(proven())
    fleet.run(60)
    assert (fleet.actions(), agents.job.counts) == (MOVED, [11, 5])
    agents.job.slowness[1] = 1.0
    fleet.attendant.on_incident(relieved(proven(), fleet.clock.now_ns()))
    fleet.run(40)
    assert (fleet.actions(), agents.job.counts) == ([*MOVED, *GIVEN_BACK], [8, 8])
    assert fleet.open_ways == 0


def test_it_costs_less_than_a_measurement_and_comes_before_it() -> None:
    fleet, agents = scripted()
    fleet.attendant.on_incident(proven(is_measured=False, excess_s=2.0))
    fleet.run_until("keep_microbatches")
    assert fleet.actions() == ["profile", *MOVED]
    fleet.run(100)
    assert fleet.actions()[3:5] == ["validate", "track"], "the slowdown that is left is still worth a measurement"
    assert (agents.job.counts, agents.is_holding) == ([11, 5], False)


def test_what_is_relieved_by_it_is_not_measured() -> None:
    fleet, agents = scripted()
    fleet.attendant.on_incident(proven(is_measured=False, excess_s=2.0))
    fleet.run_until("keep_microbatches")
    fleet.attendant.on_incident(relieved(proven(is_measured=False), fleet.clock.now_ns()))
    fleet.run(100)
    assert fleet.actions() == ["profile", *MOVED, "track"]
    assert agents.job.counts == [11, 5]
    decided = list(fleet.decisions)
    fleet.attendant = Attendant(SIGNER, fleet.clock, fleet._reach)
    for one in decided:
        fleet.attendant.on_decided(one)
    fleet.attendant.on_incident(relieved(proven(), fleet.clock.now_ns()))
    fleet.run(60)
    assert agents.job.counts == [8, 8], "the end of the look is not the end of the action"


def test_while_agents_cannot_be_reached_what_was_moved_is_not_forgotten() -> None:
    fleet, agents = scripted()
    fleet.attendant.on_incident(proven())
    fleet.run(60)
    agents.job.slowness[1] = 1.0
    fleet.is_away = True
    fleet.run(120)
    assert agents.job.counts == [11, 5]
    fleet.is_away = False
    fleet.attendant.on_incident(relieved(proven(), fleet.clock.now_ns()))
    fleet.run(60)
    assert agents.job.counts == [8, 8]
    assert fleet.open_ways == 0


@pytest.mark.parametrize("dies", [True, False], ids=["another process goes on", "another one had its partition"])
def test_what_one_has_moved_the_next_one_gives_back(dies: bool) -> None:
    fleet, agents = scripted()
    fleet.attendant.on_incident(proven())
    fleet.run(60)
    decided = list(fleet.decisions)
    if dies:
        fleet.attendant = Attendant(SIGNER, fleet.clock, fleet._reach)
    else:
        fleet.attendant.forget()
    worker = ActuatorWorker(lambda _: decided, fleet.attendant)
    at = {"topic": "incidents", "key": "j", "offset": 0, "value": b""}
    partition = partition_of(b"j", INCIDENTS.partitions)
    worker.on_event(relieved(proven(), fleet.clock.now_ns()), Message(**at, partition=partition))
    fleet.run(60)
    assert [counts for _, counts in agents.scripts.applied.values()] == [[11, 5], [8, 8]]
    assert fleet.actions() == [*MOVED, *GIVEN_BACK]


def test_what_was_given_back_is_not_given_back_again() -> None:
    fleet, agents = scripted()
    fleet.attendant.on_incident(proven())
    fleet.run(60)
    agents.job.slowness[1] = 1.0
    over = relieved(proven(), fleet.clock.now_ns())
    fleet.attendant.on_incident(over)
    fleet.run(40)
    decided = list(fleet.decisions)
    fleet.attendant = Attendant(SIGNER, fleet.clock, fleet._reach)
    for one in decided:
        fleet.attendant.on_decided(one)
    fleet.attendant.on_incident(over)
    fleet.run(60)
    assert len(agents.scripts.applied) == 2


def test_agents_that_do_not_answer_are_asked_again_with_the_next_version() -> None:
    fleet = Fleet(is_deaf=True)
    for _ in range(2):
        fleet.attendant.on_incident(proven())
        fleet.run(100)
    assert [(one.taken, one.limit) for one in fleet.decisions] == [(False, "no agent of this job has answered")] * 2


def test_scripts_that_take_no_orders_are_asked_once_per_suspicion() -> None:
    fleet, _ = scripted(tells_micro_batches=False)
    for _ in range(3):
        fleet.attendant.on_incident(proven())
        fleet.run(100)
    assert fleet.actions() == ["adjust_microbatches"]
    assert not fleet.decisions[0].taken
    assert "not all scripts say how many micro-batches they compute" in fleet.decisions[0].limit
