"""Measuring hosts on which nothing runs: as many as were asked for, nobody is held, and all ends."""

from __future__ import annotations

from typing import Any

import pytest

from actuators.control.thresholds import LOCATE_WITHIN_NS
from actuators.validation.idle import IdleValidation
from actuators.validation.thresholds import BUDGET_S, RESULT_WITHIN_NS, START_WITHIN_NS
from pacehound.model.events import CommandResult
from pacehound.model.orders import Dismiss, Locate, Measure, Prepare, What
from tests.fakes.answering_agents import JUDGED

MS = 1_000_000
STEP_NS = 100 * MS


class IdleHosts:
    """Agents that answer at once, unless they are `silent` at a step."""

    def __init__(self, *names: str, silent: str = "", refuses: str = "", fails: bool = False) -> None:
        self.names, self.silent, self.refuses, self.fails = names, silent, refuses, fails
        self.orders: list[What] = []

    def answers(self, orders: list[What]) -> list[CommandResult]:
        self.orders += orders
        found = []
        for order in orders:
            what = type(order).__name__.lower()
            if what == self.refuses:
                found.append(self._result(self.names[0], what, refused="cannot", reason="a job runs here"))
            elif isinstance(order, Locate):
                found += [self._result(name, what, rendezvous=f"{name}:29400") for name in self.names]
            elif isinstance(order, Prepare) and self.silent != "ready":
                places = range(order.world_size)
                found += [self._result(name, what, trap=order.trap, ready=tuple(places)) for name in self.names]
            elif isinstance(order, Measure) and self.fails:
                found.append(self._result(self.names[0], "prepare", trap=order.trap, failed="no memory"))
            elif isinstance(order, Measure) and self.silent != "result":
                found.append(self._result(self.names[0], "prepare", trap=order.trap, judged=JUDGED))
        return found

    def _result(self, host: str, what: str, **said: Any) -> CommandResult:
        return CommandResult(job="j", attempt=0, time_ns=1, host=host, number=1, what=what, **said)


def run(hosts: IdleHosts, for_ns: int = 20_000 * MS) -> IdleValidation:
    procedure = IdleValidation(7, 2, 4, 0)
    answers: list[CommandResult] = []
    for now_ns in range(0, for_ns, STEP_NS):
        answers = hosts.answers(procedure.step(answers, now_ns))
        if procedure.is_over:
            break
    assert procedure.is_over, procedure.reason
    return procedure


def test_as_many_hosts_as_were_asked_for_are_measured_and_nobody_is_held() -> None:
    hosts = IdleHosts("b", "a")
    procedure = run(hosts)
    assert (procedure.judged, procedure.reason) == (JUDGED, "measured")
    assert hosts.orders == [
        Locate(idle=True),
        Prepare(trap=7, rendezvous="a:29400", world_size=8, hosts=("a", "b"), per_host=4),
        Measure(trap=7),
        Dismiss(trap=7),
    ]


@pytest.mark.parametrize(
    ("hosts", "for_ns", "reason"),
    [
        (IdleHosts("a"), LOCATE_WITHIN_NS, "1 of 2 hosts have answered: a"),
        (IdleHosts("a", "b", "c"), 0, "3 of 2 hosts have answered: a, b, c"),
        (IdleHosts("a", "b", refuses="locate"), 0, "a has refused the order to locate: a job runs here"),
        (IdleHosts("a", "b", silent="ready"), START_WITHIN_NS, "8 processes were not ready within 120 s"),
        (IdleHosts("a", "b", silent="result"), round(BUDGET_S * 1e9) + RESULT_WITHIN_NS, "no result in time"),
        (IdleHosts("a", "b", fails=True), 0, "a: no memory"),
    ],
)
def test_whatever_fails_all_processes_end_and_the_reason_is_said(hosts: IdleHosts, for_ns: int, reason: str) -> None:
    procedure = run(hosts, for_ns + 2_000 * MS)
    assert (procedure.judged, procedure.reason) == (None, reason)
    if any(isinstance(one, Prepare) for one in hosts.orders):
        assert isinstance(hosts.orders[-1], Dismiss)
