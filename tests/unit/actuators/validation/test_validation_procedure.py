"""Measuring the ranks of a job that runs: processes first, then the hold, the result, and always the end of all."""

from __future__ import annotations

import pytest

from actuators.control.thresholds import LOCATE_WITHIN_NS
from actuators.validation.procedure import ValidationProcedure
from actuators.validation.thresholds import BUDGET_S, RENEW_EVERY_NS, START_WITHIN_NS
from collector.agent.measuring import LEASE_NS
from pacehound.model.events import CommandResult
from pacehound.model.orders import Dismiss, Hold, Keep, Locate, Measure, Prepare, Release
from tests.fakes.answering_agents import JUDGED, Agents

MS = 1_000_000
STEP_NS = 100 * MS


def run(agents: Agents, for_ns: int, **how: object) -> ValidationProcedure:
    procedure = ValidationProcedure(7, 0, **how)  # type: ignore[arg-type]
    answers: list[CommandResult] = []
    for now_ns in range(0, for_ns, STEP_NS):
        answers = agents.answers(procedure.step(answers, now_ns))
        if procedure.is_over:
            break
    assert procedure.is_over, procedure.reason
    return procedure


def test_processes_are_started_then_all_ranks_held_then_measured_and_all_is_ended() -> None:
    agents = Agents()
    procedure = run(agents, 20_000 * MS)
    assert procedure.judged == JUDGED
    assert procedure.reason == "measured"
    kinds = [type(one) for one in agents.orders if not isinstance(one, Keep)]
    assert [kind for number, kind in enumerate(kinds) if number == 0 or kind is not kinds[number - 1]] == [
        Locate, Prepare, Locate, Hold, Measure, Release, Dismiss,
    ]  # fmt: skip
    (prepare,) = [one for one in agents.orders if isinstance(one, Prepare)]
    assert prepare == Prepare(trap=7, rendezvous="10.0.0.0:29400", world_size=2)
    assert 0 < procedure.held_ns < 1_000 * MS


def test_where_some_are_asked_for_they_and_their_peers_are_measured_and_all_are_held() -> None:
    agents = Agents()
    procedure = run(agents, 20_000 * MS, only=(1,), groups=[(0, 1)])
    assert procedure.judged == JUDGED
    (prepare,) = [one for one in agents.orders if isinstance(one, Prepare)]
    assert prepare == Prepare(trap=7, rendezvous="10.0.0.0:29400", world_size=2, ranks=(0, 1))
    assert agents.state == "released"
    procedure = run(Agents(), 20_000 * MS, only=(4,))
    assert procedure.reason == "there is no rank 4: the job has ranks 0 to 1"


@pytest.mark.parametrize(
    ("limits_ms", "within_ms"), [((150_000, 150_000), 0), ((0, 0), 0), ((150_000, 15_000), 12_000), ((7_000, 0), 4_000)]
)
def test_no_more_is_measured_than_the_shortest_hold_leaves_time_for(limits_ms: tuple[int, int], within_ms: int) -> None:
    agents = Agents(hold_limits_ms=limits_ms)
    assert run(agents, 20_000 * MS).judged == JUDGED
    assert [one.within_ms for one in agents.orders if isinstance(one, Measure)] == [within_ms]


def test_where_ranks_may_stand_still_for_too_short_a_time_nothing_is_begun() -> None:
    agents = Agents(hold_limits_ms=(150_000, 5_000))
    procedure = run(agents, 20_000 * MS)
    assert procedure.judged is None
    assert procedure.reason == (
        "its ranks may stand still for 5 s, a quarter of the time after which their process groups give up; "
        "7 s are needed"
    )
    assert {type(one) for one in agents.orders} == {Locate}


def test_agents_hear_as_long_as_their_processes_are_wanted() -> None:
    agents = Agents(silent="ready")
    run(agents, START_WITHIN_NS + 2_000 * MS)
    said = [one for one in agents.orders if isinstance(one, Prepare)]
    assert len(said) == START_WITHIN_NS // RENEW_EVERY_NS + 1
    assert len(set(said)) == 1
    assert RENEW_EVERY_NS * 6 < LEASE_NS


@pytest.mark.parametrize(
    ("agents", "for_ns", "reason", "last"),
    [
        (Agents(silent="ready"), START_WITHIN_NS + 2_000 * MS, "beside ranks 0-1 nothing was ready", [Dismiss]),
        (
            Agents(silent="result"),
            round(BUDGET_S * 1e9) + 20_000 * MS,
            "no result in time: the time that was asked for is over",
            [Release, Dismiss],
        ),
        (Agents(fails=True), 20_000 * MS, "h0: the process beside rank 0 ended with 1: no memory", [Release, Dismiss]),
        (Agents(refuses="prepare"), 20_000 * MS, "h0 has refused the order to prepare: it is full", [Dismiss]),
        (Agents(refuses="hold"), 20_000 * MS, "not held: h0 has refused the order to hold", [Release, Dismiss]),
        (Agents(refuses="locate"), LOCATE_WITHIN_NS + 2_000 * MS, "no agent of this job has answered", [Locate]),
    ],
)
def test_whatever_fails_everybody_goes_on_and_the_reason_is_said(
    agents: Agents, for_ns: int, reason: str, last: list[type]
) -> None:
    procedure = run(agents, for_ns)
    assert procedure.judged is None
    assert reason in procedure.reason
    assert [type(one) for one in agents.orders[-len(last) :]] == last
    assert agents.state != "held"
