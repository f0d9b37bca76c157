"""A simulated job obeys the commands that real agents do, through the same wire, in simulated time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from actuators.control.applying import ApplyProcedure
from actuators.control.controlled_job import ControlledJob
from actuators.control.holding import HoldProcedure
from actuators.control.pacing import PaceProcedure
from actuators.validation.procedure import ValidationProcedure
from pacehound.bus.signing import Keys, Signer
from pacehound.model.events import Command
from pacehound.model.orders import Hold, Locate, Offer, Profile, Release
from simulator.obedient_agents import ObedientAgents
from simulator.running_job import RunningJob

OURS, THEIRS = Signer.drawn(), Signer.drawn()
STEP_NS = 100_000_000
START_NS = 1_800_000_000_000_000_000
SLOWNESS = (1.0, 1.0, 2.0, 1.0)


def job(**how: Any) -> ObedientAgents:
    running = RunningJob(slowness=list(SLOWNESS), step_s=0.05)
    return ObedientAgents("j", running, Keys([OURS.key]), [(0, 1), (2, 3)], **how)


class Driven:
    """A procedure and the job that it is about."""

    def __init__(self, agents: ObedientAgents, procedure: Any) -> None:
        self.agents, self.procedure, self.now_ns = agents, procedure, agents.now_ns
        self.control = ControlledJob(agents, OURS, "j", "a test")

    def steps(self) -> Iterator[str]:
        while not self.procedure.is_over and self.now_ns < 200e9:
            for what in self.procedure.step(self.control.results(), self.now_ns):
                self.control.order(what, START_NS + self.now_ns)
            yield getattr(self.procedure, "state", "")
            self.now_ns += STEP_NS
            self.agents.advance(STEP_NS)

    def run(self) -> list[str]:
        """The states that it went through."""
        return list(dict.fromkeys(self.steps()))


def test_it_is_held_as_a_whole_at_one_round_and_goes_on() -> None:
    agents, hold = job(), HoldProcedure(7, 3_000_000_000, 0)
    driven = Driven(agents, hold)
    stood = [agents.job.launched for state in driven.steps() if state == "held"]
    assert hold.reason == "the time that was asked for is over"
    assert len(stood) >= 30
    assert len(set(stood)) == 1
    agents.advance(STEP_NS * 10)
    assert agents.job.launched > stood[0]


def test_one_whose_controller_has_died_goes_on_after_its_lease() -> None:
    agents, hold = job(), HoldProcedure(7, 60_000_000_000, 0)
    driven = Driven(agents, hold)
    assert "held" in driven.steps()
    agents.advance(1_400_000_000)
    assert agents.job.is_still
    agents.advance(200_000_000)
    assert not agents.is_holding


def test_it_is_measured_by_its_truth() -> None:
    agents = job()
    validation = ValidationProcedure(7, 0)
    assert Driven(agents, validation).run() == ["locating", "starting", "holding", "measuring", "over"]
    assert validation.judged is not None
    assert [(one.ranks, one.verdict, one.ratio) for one in validation.judged if one.verdict == "culprit"] == [
        ((2,), "culprit", 2.0)
    ]
    assert not agents.is_holding
    some = ValidationProcedure(8, agents.now_ns, only=(2,), groups=[(1, 2, 3)])
    Driven(agents, some).run()
    assert [one.ranks for one in some.judged or ()] == [(1,), (2,), (3,)]


def test_its_scripts_apply_an_order_at_the_step_that_was_agreed() -> None:
    agents = job()
    order = ApplyProcedure(7, "microbatches", "[9, 9, 5, 9]", 20_000_000_000, 0)
    Driven(agents, order).run()
    assert order.outcome == "applied"
    assert agents.scripts.applied == {order.at_step: ("microbatches", [9, 9, 5, 9])}
    assert agents.job.iteration_s == pytest.approx(0.05 * 10 / 8)
    unknown = ApplyProcedure(8, "collect", "null", 20_000_000_000, agents.now_ns)
    Driven(agents, unknown).run()
    assert (unknown.outcome, len(agents.scripts.applied)) == ("kept", 1)


def test_it_says_how_fast_it_goes() -> None:
    pace = PaceProcedure(7, 20, 60_000_000_000, 0)
    Driven(job(), pace).run()
    assert pace.pace is not None
    assert (pace.pace.step_time_s, pace.pace.micro_batches) == (pytest.approx(0.1), (8, 8, 8, 8))


def test_orders_whose_controller_dies_at_any_moment_leave_it_as_it_was_or_are_applied_by_all() -> None:
    outcomes = set()
    for seed in range(40):
        agents = job()
        driven = Driven(agents, ApplyProcedure(7, "microbatches", "[9, 9, 5, 9]", 20_000_000_000, 0))
        dies_ns = random.Random(seed).randrange(2_000_000_000)
        for _ in driven.steps():
            if driven.now_ns >= dies_ns:
                break
        agents.advance(30_000_000_000)
        assert agents.job.counts in ([8, 8, 8, 8], [9, 9, 5, 9])
        outcomes.add(tuple(agents.job.counts))
    assert len(outcomes) == 2


def test_what_is_not_to_be_obeyed_is_refused_with_the_reason_of_real_agents() -> None:
    agents = job()
    control = ControlledJob(agents, OURS, "j", "a test")
    control.order(Locate(), START_NS)
    sent: list[Command] = []
    other = ControlledJob(_Kept(sent), OURS, "j", "a test")
    other.order(Release(trap=3), START_NS)
    other.order(Offer(ticket=1, kind="microbatches"), START_NS - 30_000_000_000)
    stranger = ControlledJob(_Kept(sent), THEIRS, "j", "a test")
    stranger.order(Hold(trap=1, round=1, hold_ms=9, lease_ms=9), START_NS)
    foreign = ControlledJob(_Kept(sent), OURS, "k", "a test")
    foreign.order(Locate(), START_NS)
    for one in (*sent, sent[0], replace(sent[0], order=b"{}", signature=OURS._private.sign(b"{}"))):
        agents.command(one)
    assert agents.refused == ["expired", "forged", "foreign", "replayed", "damaged"]
    assert {one.refused for one in agents.results("j", 0)[0]} == {"", "cannot", *agents.refused}
    assert not agents.is_holding


def test_a_closer_look_is_remembered() -> None:
    agents = job()
    ControlledJob(agents, OURS, "j", "a test").order(Profile(for_ms=5_000), START_NS)
    assert agents.profiled_until_ns == pytest.approx(5e9, abs=10)


class _Kept:
    """A wire that hands nothing over."""

    def __init__(self, sent: list[Command]) -> None:
        self._sent = sent

    def command(self, command: Command) -> None:
        self._sent.append(command)

    def results(self, job: str, after: int) -> tuple[list[Any], int]:
        return [], after
