"""In mode approve nothing is done before somebody has said yes to just that decision, and it is recorded who."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actuators.attendant import Rules
from actuators.mitigation.thresholds import APPROVE_WITHIN_NS
from actuators.modes import Modes
from pacehound.bus.signing import Keys, Signer
from pacehound.errors import InvalidSetting
from pacehound.model.decisions import waiting
from pacehound.model.events import Decision
from pacehound.model.orders import Answer, new_order
from pacehound.settings import Mode
from simulator.running_job import RunningJob
from tests.unit.actuators.test_attendant import SIGNER, Fleet, proven, relieved, simulated, slow

RULES = Rules(modes=Modes(Mode.APPROVE), trusts=Keys([SIGNER.key]).have_signed)


def asked() -> tuple[Fleet, RunningJob, Decision]:
    """A job whose slow rank is proven, and the decision that waits."""
    fleet, agents = Fleet(rules=RULES), simulated("j")
    fleet.agents["j"] = agents
    fleet.attendant.on_incident(proven())
    fleet.run(20)
    (decision,) = fleet.decisions
    assert (decision.action, decision.taken, decision.mode) == ("adjust_microbatches", False, "approve")
    return fleet, agents.job, decision


def say(fleet: Fleet, decision: Decision, *, approves: bool = True, signer: Signer = SIGNER, job: str = "j") -> None:
    what = Answer(decision=decision.identity(), approves=approves, by="ann")
    now_ns = fleet.clock.now_ns()
    order = new_order(what, job=job, attempt=-1, issuer="a", number=1, now_ns=now_ns, lives_ns=10**10, why="said")
    fleet.answered.append(replace(signer.signed(order), job="j"))


def test_what_waits_says_its_price_its_promise_its_alternatives_and_until_when() -> None:
    fleet, job, decision = asked()
    assert decision.price_s == 5.0
    assert decision.promised_gain == pytest.approx(1 - 11 / 16)
    assert decision.alternatives[0] == "adjust_topology at 60 s"
    assert decision.limit == "somebody has to say yes"
    assert decision.until_ns - decision.time_ns == APPROVE_WITHIN_NS
    assert waiting(fleet.decisions, fleet.clock.now_ns()) == [decision]
    fleet.run(60)
    assert (job.counts, len(fleet.decisions)) == ([8, 8], 1), "it is asked once, and nothing is done"


def test_after_a_yes_it_is_done_by_the_speeds_of_then_and_it_is_recorded_who_said_so() -> None:
    fleet, job, decision = asked()
    say(fleet, decision)
    fleet.run(40)
    assert (fleet.actions()[1:], job.counts) == (["adjust_microbatches", "keep_microbatches"], [11, 5])
    done = fleet.decisions[1]
    assert (done.taken, done.by, done.asked, done.mode) == (True, "ann", decision.identity(), "approve")
    assert waiting(fleet.decisions, fleet.clock.now_ns()) == []


def test_after_a_no_nothing_is_done_and_nobody_is_asked_again() -> None:
    fleet, job, decision = asked()
    say(fleet, decision, approves=False)
    fleet.run(5)
    say(fleet, decision)
    fleet.attendant.on_incident(proven())
    fleet.run(60)
    last = fleet.decisions[-1]
    assert (last.taken, last.limit, last.by) == (False, "ann has said no", "ann")
    assert (job.counts, len(fleet.decisions)) == ([8, 8], 2)


@pytest.mark.parametrize("how", ["another key", "another decision", "another job", "too late"])
def test_a_yes_that_is_forged_foreign_or_late_is_none(how: str) -> None:
    fleet, job, decision = asked()
    if how == "another decision":
        decision = replace(decision, time_ns=decision.time_ns + 1)
    say(fleet, decision, signer=Signer.drawn() if how == "another key" else SIGNER, job="k" if "job" in how else "j")
    if how == "too late":
        fleet.clock.advance_s(11)
    fleet.run(20)
    assert (job.counts, len(fleet.decisions)) == ([8, 8], 1)


def test_what_nobody_answers_and_what_is_over_is_not_waited_for_any_longer() -> None:
    fleet, _, _ = asked()
    fleet.clock.advance_s(APPROVE_WITHIN_NS / 1e9)
    fleet.run(1)
    assert fleet.decisions[-1].limit == "nobody has said yes in time"
    fleet, _, _ = asked()
    fleet.attendant.on_incident(relieved(proven(), fleet.clock.now_ns()))
    fleet.run(1)
    assert fleet.decisions[-1].limit == "there is nothing to act against any more"
    assert waiting(fleet.decisions, fleet.clock.now_ns()) == []
    assert fleet.open_ways == 0


def test_ranks_are_not_held_for_a_measurement_before_somebody_has_said_yes() -> None:
    fleet = Fleet(rules=RULES)
    fleet.attendant.on_incident(slow("i1"))
    fleet.run(60)
    profiled, decision = fleet.decisions
    assert (profiled.action, decision.action, decision.taken) == ("profile", "validate", False)
    say(fleet, decision)
    fleet.run(60)
    assert fleet.actions()[2:] == ["validate", "track"]
    assert (fleet.decisions[2].taken, fleet.decisions[2].by) == (True, "ann")


def test_modes_are_by_job_and_action_and_in_observe_nothing_is_even_asked() -> None:
    modes = Modes.of_settings(Mode.AUTO, "j:adjust_microbatches=observe,j:validate=observe")
    fleet = Fleet(rules=replace(RULES, modes=modes))
    fleet.attendant.on_incident(proven(is_measured=False))
    fleet.run(30)
    assert (fleet.decisions, fleet.commands) == ([], [])
    for text in ("j", "j=sometimes", ":x=auto"):
        with pytest.raises(InvalidSetting, match="write JOB=MODE"):
            Modes.of_settings(Mode.AUTO, text)
