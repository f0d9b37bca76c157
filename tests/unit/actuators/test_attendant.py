"""Who attends to all jobs of a worker: each suspicion once, so many an hour, and what cannot be reached is let be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from actuators.attendant import Attendant
from actuators.thresholds import MOST_VALIDATIONS_PER_HOUR
from actuators.worker import ActuatorWorker
from pacehound.bus import Message
from pacehound.bus.signing import Keys, Signer
from pacehound.clock import ManualClock
from pacehound.errors import Unavailable
from pacehound.model.events import Command, CommandResult, Cost, Decision, Incident
from pacehound.model.orders import read_order
from tests.fakes.answering_agents import Agents
from tests.fakes.events import START_NS, finding, incident

SIGNER = Signer.drawn()


def slow(name: str, *suspects: int, job: str = "j", excess_s: float = 1_000.0) -> Incident:
    verdict = "suspected" if suspects else "unknown"
    one = finding(verdict=verdict, culprits=suspects, cause=None, candidates=(), victims=(), pages=False)
    return incident(id=name, job=job, findings=(one,), cost=Cost(excess_s=excess_s, ranks=2))


class Fleet:
    """An attendant, and the agents of its jobs behind a wire."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.clock = ManualClock(START_NS)
        self.commands: list[Command] = []
        self.agents: dict[str, Agents] = {}
        self.is_away = is_away
        self.open_ways = 0
        self._answers: dict[str, list[CommandResult]] = {}
        self.attendant = Attendant(SIGNER, self.clock, self._reach)
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
        agents = self.agents.setdefault(command.job, Agents())
        self._answers.setdefault(command.job, []).extend(agents.answers([read_order(command.order).what]))

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        return self._answers.pop(job, []), after

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.decisions += self.attendant.step()
            self.clock.advance_s(0.1)

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
