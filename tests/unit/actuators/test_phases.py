"""Tracking, profiling, validation: a slowdown is looked into, and measured once it has cost as much."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from actuators.looks import VALIDATE
from actuators.now import Now
from actuators.phases import Phases, unmeasured
from actuators.thresholds import PROFILE_FOR_NS
from pacehound.model.events import Cost, Decision, Incident, Instant
from pacehound.model.evidence.machines import NobodySlow
from pacehound.model.orders import Dismiss, Keep, Measure, Profile, Release, What
from tests.fakes.answering_agents import Agents
from tests.fakes.events import SECOND_NS, START_NS, finding, incident

STEP_NS = SECOND_NS // 10
MEASURED = finding(evidence=(NobodySlow(n_measured=2, n_cleared=2),))


def unnamed(excess_s: float = 0.0, **changes: Any) -> Incident:
    one = finding(verdict="unknown", culprits=(), cause=None, candidates=(0, 1), victims=(), pages=False)
    return incident(findings=(one,), cost=Cost(excess_s=excess_s, ranks=2), **changes)


class Attended:
    """One incident that is looked into, in simulated time."""

    def __init__(self, agents: Agents, first: Incident, begin_ns: int = 0) -> None:
        self.agents = agents
        self.now = Now(monotonic_ns=begin_ns, unix_ns=START_NS)
        self.phases = Phases(first, 7, self.now)
        self.decisions: list[Decision] = []
        self.orders: list[What] = []
        self._answers: list[Any] = []

    def run(self, for_ns: int, until: Callable[[], bool] = lambda: False) -> None:
        end_ns = self.now.monotonic_ns + for_ns
        while self.now.monotonic_ns < end_ns and not self.phases.is_over and not until():
            orders, decisions = self.phases.step(self._answers, self.now)
            self.orders += orders
            self.decisions += decisions
            self._answers = self.agents.answers(orders)
            self.now = Now(monotonic_ns=self.now.monotonic_ns + STEP_NS, unix_ns=self.now.unix_ns + STEP_NS)

    @property
    def actions(self) -> list[str]:
        return [one.action for one in self.decisions]


@pytest.mark.parametrize("first", [unnamed(VALIDATE.price_s), incident(cost=Cost(excess_s=VALIDATE.price_s, ranks=2))])
def test_a_slowdown_that_has_cost_as_much_as_a_measurement_is_profiled_then_measured(first: Incident) -> None:
    attended = Attended(Agents(), first)
    attended.run(60 * SECOND_NS)
    assert attended.actions == ["profile", "validate", "track"]
    assert [one.mode for one in attended.decisions] == ["auto"] * 3
    assert all(one.taken for one in attended.decisions)
    assert attended.orders[0] == Profile(for_ms=PROFILE_FOR_NS // 1_000_000)
    assert sum(isinstance(one, Measure) for one in attended.orders) == 1
    kinds = [type(one) for one in attended.orders if not isinstance(one, Keep)]
    assert kinds[-2:] == [Release, Dismiss]
    assert attended.decisions[-1].reason.startswith(
        "rank 1 takes 2.00 times its peers' time (memory); the job was held"
    )
    assert attended.agents.state == "released"


def test_before_it_has_cost_so_much_ranks_are_not_held() -> None:
    attended = Attended(Agents(), unnamed(1.0))
    loss_s, slower = 1.0, 0.4
    attended.run(round(0.9 * (VALIDATE.price_s - loss_s) * (1 + slower) / slower * SECOND_NS))
    assert attended.actions == ["profile"]
    attended.run(60 * SECOND_NS, lambda: "validate" in attended.actions)
    assert attended.actions == ["profile", "validate"], "what it goes on to cost between two versions counts"


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (incident(version=1, findings=(MEASURED,)), "its ranks were measured"),
        (replace(unnamed(version=1), state="relieved"), "it is over"),
        (replace(unnamed(version=1), state="closed"), "it is over"),
    ],
)
def test_what_was_measured_or_is_over_while_it_is_profiled_is_not_measured(later: Incident, reason: str) -> None:
    attended = Attended(Agents(), unnamed(1_000.0))
    attended.run(PROFILE_FOR_NS // 2)
    attended.phases.on_incident(later, attended.now)
    attended.run(60 * SECOND_NS)
    assert attended.actions == ["profile", "track"]
    assert attended.decisions[-1].reason == reason
    assert attended.orders[-1] == Profile(for_ms=0)


def test_what_is_over_before_ranks_are_held_holds_nobody() -> None:
    attended = Attended(Agents(silent="ready"), unnamed(1_000.0))
    attended.run(60 * SECOND_NS, lambda: "validate" in attended.actions)
    attended.run(3 * SECOND_NS)
    attended.phases.on_incident(replace(unnamed(version=1), state="relieved"), attended.now)
    attended.run(SECOND_NS)
    assert attended.phases.is_over
    assert attended.orders[-1] == Dismiss(trap=7)
    assert attended.agents.state == "running"


@pytest.mark.parametrize("agents", [Agents(fails=True), Agents(refuses="hold"), Agents(silent="ready")])
def test_where_nothing_can_be_measured_it_is_said_why_and_the_job_followed_as_before(agents: Agents) -> None:
    attended = Attended(agents, unnamed(1_000.0))
    attended.run(300 * SECOND_NS)
    assert attended.actions == ["profile", "validate", "track"]
    assert attended.decisions[-1].reason.startswith("nothing was measured: ")
    assert agents.state != "held"


def test_whenever_it_is_given_up_nobody_stays_held() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        attended = Attended(Agents(), unnamed(1_000.0))
        attended.run(chance.randrange(0, 20 * SECOND_NS))
        if attended.phases.is_over:
            continue
        orders, decisions = attended.phases.end("as was said", attended.now)
        attended.agents.answers(orders)
        assert attended.agents.state != "held", f"seed {seed}"
        assert [one.action for one in decisions] == (["track"] if attended.decisions else []), f"seed {seed}"


@pytest.mark.parametrize(
    ("one", "is_looked_into"),
    [
        (unnamed(), True),
        (incident(findings=(finding(verdict="suspected"),)), True),
        (incident(), True),
        (incident(findings=(MEASURED,)), False),
        (incident(findings=(finding(kind="hang", verdict="suspected"),)), False),
        (replace(unnamed(), state="closed"), False),
        (incident(findings=(finding(verdict="unknown", culprits=(), relief=Instant(step=1, time_ns=1)),)), False),
    ],
    ids=["nobody named", "suspected", "culprit", "measured", "hang", "closed", "relieved"],
)
def test_only_slowness_that_goes_on_without_a_proven_culprit_is_looked_into(
    one: Incident, is_looked_into: bool
) -> None:
    assert (unmeasured(one) is not None) is is_looked_into
