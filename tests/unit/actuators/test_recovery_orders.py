"""Survivors that ask are answered by the policy with the store's failures: ordered in mode `auto`, else told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from actuators.modes import Modes
from actuators.recovery_orders import RecoveryOrders
from pacehound.bus.signing import Keys, Signer
from pacehound.clock import ManualClock
from pacehound.model.events import Command, CommandResult, Decision
from pacehound.model.events.control import RecoveryQuestion, TrainerAnswer, TrainerState
from pacehound.model.orders import Confirm, Offer, Order, Withdraw, read_order
from pacehound.settings import Mode, RecoverySettings
from pacehound.trainer.order import RECOVERY
from tests.unit.actuators.test_recovering import lost

pytest.importorskip("scipy")

MS = 1_000_000
START_NS = 10**18
SURVIVORS = (0, 1, 2, 3, 4, 6, 7)
ABOUT = {
    "stages": [[4, 4]] * 4,
    "batches": [8] * 4,
    "holders": [[0, 4], [1, None], [2, 6], [3, 7]],
    "lost": [5],
    "layer": {"forward_s": 0.01, "parameter_bytes": 1e8},
}
SIGNER = Signer.drawn()


class Wire:
    """A head's, by hand."""

    def __init__(self) -> None:
        self.asked: list[CommandResult] = []
        self.answered: list[CommandResult] = []
        self.given_orders: list[Order] = []

    def questions(self, after: int) -> tuple[list[CommandResult], int]:
        return self.asked[after:], len(self.asked)

    def results(self, _job: str, after: int) -> tuple[list[CommandResult], int]:
        return self.answered[after:], len(self.answered)

    def given(self, _job: str, after: int) -> tuple[list[Command], int]:
        return [], after

    def command(self, command: Command) -> None:
        assert Keys([SIGNER.key]).have_signed(command)
        self.given_orders.append(read_order(command.order))


class Head:
    """Whoever answers, in a time of its own, and a store."""

    def __init__(self, mode: Mode = Mode.AUTO, **past: Any) -> None:
        self.wire, self.clock = Wire(), ManualClock(START_NS)
        self.past = {"n_failures": 2, "rank_s": 1e7, "n_attempts": 3} | past
        self.effect: dict[str, Any] = {"n_before": 20, "n_after": 0, "before_s": 0.1, "after_s": 0.0, "down_s": 0.0}
        self.asked_for: list[dict[str, str]] = []
        modes = Modes(mode)
        self.orders = RecoveryOrders(self.wire, SIGNER, self.clock, modes, self._asks, RecoverySettings())

    def _asks(self, name: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        self.asked_for.append({"name": name, **parameters})
        return [self.past if name == "recovery/failures" else self.effect]

    def ask(self, about: object = ABOUT, within_ms: int = 2_000, ranks: tuple[int, ...] = SURVIVORS) -> None:
        question = RecoveryQuestion(
            digest="a" * 32, survivors=SURVIVORS, ranks=ranks, payload=json.dumps(about), within_ms=within_ms
        )
        self.wire.asked.append(self._result(asked=question))

    def _result(self, **more: Any) -> CommandResult:
        return CommandResult(job="j", attempt=0, time_ns=self.clock.now_ns(), host="h", number=1, **more)

    def say(self, *states: TrainerState, ranks: tuple[int, ...] = SURVIVORS) -> None:
        (offer,) = {one.what.ticket for one in self.wire.given_orders if isinstance(one.what, Offer)}
        found = states * len(ranks) if len(states) == 1 else states
        answers = tuple(TrainerAnswer(rank=rank, state=one) for rank, one in zip(ranks, found, strict=True))
        self.wire.answered.append(self._result(ticket=offer, trainers=answers))

    def step(self, seconds: float = 0.1) -> list[Decision]:
        self.clock.advance_s(seconds)
        return self.orders.step(lambda job: job == "j")

    def whats(self) -> list[object]:
        return [one.what for one in self.wire.given_orders]

    def payload(self) -> dict[str, Any]:
        offer = next(one for one in self.whats() if isinstance(one, Offer))
        found: dict[str, Any] = json.loads(offer.payload)
        return found

    def applied(self) -> None:
        self.ask()
        self.step()
        self.say("armed")
        self.step()
        self.say("applied")
        self.step()


def test_in_auto_the_best_plan_is_handed_out_and_confirmed_when_all_survivors_have_it() -> None:
    head = Head()
    head.ask()
    head.step()
    (order,) = head.wire.given_orders
    assert isinstance(order.what, Offer)
    assert (order.what.kind, order.ranks, order.job, order.attempt) == (RECOVERY, SURVIVORS, "j", 0)
    body = head.payload()
    assert (body["digest"], body["ordered"], body["plan"]["kind"]) == ("a" * 32, True, "asymmetric")
    assert {node for row in body["plan"]["holders"] for node in row} == set(SURVIVORS)
    assert "3 failed in 2777.8 h of ranks that were watched (attempts: 3)" in order.why
    head.say("armed", "armed", "armed", "asked", "armed", "armed", "armed")
    head.step()
    assert not any(isinstance(one, Confirm) for one in head.whats())
    head.say("armed", ranks=(3,))
    head.step()
    assert isinstance(head.whats()[-1], Confirm)


def test_nothing_is_under_way_before_somebody_asks_nor_when_all_is_told() -> None:
    head = Head(mode=Mode.OBSERVE)
    assert head.orders.is_idle
    head.ask()
    head.step()
    assert not head.orders.is_idle
    head.say("armed")
    head.step(60.0)
    assert head.orders.is_idle


def test_questions_of_a_job_whose_incidents_belong_to_another_worker_are_left_to_it() -> None:
    head = Head()
    head.ask()
    assert head.orders.step(lambda job: job != "j") == []
    assert head.wire.given_orders == []


def test_what_the_store_has_seen_decides() -> None:
    """Where failures are frequent nobody restarts."""
    head = Head(n_failures=4_000, rank_s=1e5)
    head.ask()
    head.step()
    assert head.payload()["plan"]["kind"] == "reroute"
    assert head.asked_for[0] == {"name": "recovery/failures", "incident": ""}


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.APPROVE])
def test_in_any_other_mode_it_is_told_and_nobody_orders_it(mode: Mode) -> None:
    head = Head(mode)
    head.ask()
    head.step()
    assert head.payload()["ordered"] is False
    head.say("kept")
    head.step()
    assert [type(one) for one in head.whats()] == [Offer]
    head.orders.on_incident(lost(5))
    assert head.step(60) == []


def test_one_that_waits_no_more_is_the_end_of_it_for_all() -> None:
    head = Head()
    head.ask()
    head.step()
    head.say("armed", "kept", "armed", "armed", "armed", "armed", "armed")
    head.step()
    assert isinstance(head.whats()[-1], Withdraw)


def test_near_the_deadline_nothing_is_confirmed() -> None:
    head = Head()
    head.ask(within_ms=500)
    head.step()
    head.say("armed")
    head.step(0.4)
    assert isinstance(head.whats()[-1], Withdraw)


def test_the_same_question_of_another_host_is_answered_once() -> None:
    head = Head()
    head.ask(ranks=(0, 1, 2, 3))
    head.ask(ranks=(4, 6, 7))
    head.step()
    head.ask(ranks=(4, 6, 7))
    head.step()
    assert len({one.ticket for one in head.whats() if isinstance(one, Offer)}) == 1


def test_it_is_recorded_on_the_incident_of_the_loss_with_what_it_has_brought() -> None:
    head = Head()
    head.applied()
    assert head.step() == []
    head.orders.on_incident(replace(lost(2), id="another"))
    assert head.step() == []
    head.orders.on_incident(lost(5))
    (decision,) = head.step()
    assert (decision.action, decision.mode, decision.taken, decision.incident) == ("replan", "auto", True, "i")
    assert (decision.aimed_at, decision.number, decision.limit) == ((5,), 1, "")
    assert decision.reason.startswith("asked by survivors of rank 5: asymmetric DP ")
    assert decision.reason.endswith("all survivors go on with it")
    assert head.step(5) == []
    head.effect |= {"n_after": 12, "after_s": 0.125, "down_s": 3.25}
    (effect,) = head.step(20)
    assert (effect.action, effect.number, effect.taken) == ("track", 2, True)
    assert effect.reason.startswith("training stood still for 3.2 s; iterations take 0.125 s, 0.1 s before: 80.0% of")
    assert effect.seen_gain == pytest.approx(-0.25)
    assert head.step(60) == []
    assert head.asked_for[-1] == {"name": "recovery/effect", "job": "j", "attempt": "0", "at_ns": str(START_NS + 10**8)}


def test_what_no_survivor_used_is_recorded_as_not_taken() -> None:
    head = Head()
    head.ask()
    head.step()
    head.say("kept")
    head.step()
    head.step(10)
    head.orders.on_incident(lost(5))
    (decision,) = head.step()
    assert (decision.taken, decision.action) == (False, "replan")
    assert "no survivor uses it" in decision.limit
    assert head.step(60) == []


def test_too_few_iterations_are_said_in_the_end() -> None:
    head = Head()
    head.orders.on_incident(lost(5))
    head.applied()
    head.step()
    found = [one for _ in range(70) for one in head.step(10)]
    (effect,) = [one for one in found if one.action == "track"]
    assert effect.reason == "what it has brought is not known: too few iterations were seen"


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        {"stages": [[1]]},
        ABOUT | {"lost": []},
        ABOUT | {"holders": [[0, 4]]},
        ABOUT | {"layer": {"forward_s": -1, "parameter_bytes": 1}},
        ABOUT | {"layer": {"forward_s": 1, "parameter_bytes": 1e300}},
        ABOUT | {"stages": [[10**9, 4]] * 4},
        ABOUT | {"batches": [0, 8, 8, 8]},
        ABOUT | {"holders": [[None, 4], [None, None], [None, 6], [None, 7]]},
        ABOUT | {"more": 1},
    ],
)
def test_a_question_that_cannot_be_answered_is_not_and_takes_nothing_down(wrong: object) -> None:
    head = Head()
    head.ask(wrong)
    assert head.step() == []
    assert head.whats() == []
