"""Survivors that ask all get one answer or none uses it, whoever is killed at whatever moment."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from actuators.control.answering import AnswerProcedure
from pacehound.model.events import CommandResult
from pacehound.model.orders import Offer, What
from pacehound.trainer.order import RECOVERY
from pacehound.trainer.recovering import Awaited, Question, Recovery
from tests.fakes.examples import some, tries
from tests.fakes.ordered_job import MS, OrderedJob

RANKS = 3
WITHIN_NS = 4_000 * MS
"""The simulated network takes up to 0.6 s each way; three words go over it before an answer is confirmed."""
MOMENTS = range(1, 90)
"""Steps of 50 ms: past the deadline of the last rank to ask."""


class Asking:
    """A job of some hosts that has lost its last rank; the others ask, each a little later than the one before."""

    def __init__(self, *, hosts: int = 1, seed: int = 1, is_ordered: bool = True, loss: float = 0.0) -> None:
        self.job = OrderedJob(
            Path(tempfile.mkdtemp()), random.Random(seed), hosts=hosts, ranks=RANKS, agrees=False, loss=loss, per_s=0
        )
        for _ in range(2):
            for host in self.job.hosts:
                host.look([], self.job.clock.now_ns)
        dead = self.job.ranks[-1]
        dead.die()
        self.survivors = [rank for rank in self.job.ranks if rank is not dead]
        self.question = Question([rank.rank for rank in self.survivors], {"lost": [dead.rank]})
        for host in self.job.hosts:
            host.meant = tuple(self.question.survivors)
        self.waiting: dict[int, Awaited] = {}
        self.used: dict[int, Recovery | None] = {}
        self.is_ordered = is_ordered
        self.head: AnswerProcedure | None = None
        self.is_head_alive = True
        self.n_steps = 0
        self.left = {rank.rank for rank in self.survivors}

    def step(self) -> None:
        self.n_steps += 1
        for number, rank in enumerate(self.survivors):
            if rank.is_alive and self.n_steps == 1 + 2 * number:
                self.waiting[rank.rank] = rank.control._asks(self.question, WITHIN_NS)
        for one, awaited in list(self.waiting.items()):
            if self.job.ranks[one].is_alive and awaited.look(self.job.clock.now_ns):
                self.used[one] = awaited.found
                del self.waiting[one]
        for host in self.job.hosts:
            asked = host.trainers.question(self.job.clock.now_ns) if host.trainers is not None else None
            if asked is not None and self.is_head_alive and self.head is None:
                body = f'{{"digest":"{self.question.digest}","ordered":{str(self.is_ordered).lower()},"plan":[7]}}'
                self.head = AnswerProcedure(
                    Offer(ticket=5, kind=RECOVERY, payload=body), asked[1].survivors, is_ordered=self.is_ordered,
                    until_ns=self.job.clock.now_ns + asked[1].within_ms * MS, now_ns=self.job.clock.now_ns,
                )  # fmt: skip
                self.job.controller = _Meant(self.head)
        self.job.step()

    def run(self, at: int = 0, act: Callable[[Asking], None] | None = None) -> None:
        for moment in range(1, MOMENTS.stop + 20):
            if moment == at and act is not None:
                act(self)
            self.step()
            if moment >= at and all(rank.rank in self.used for rank in self.survivors if rank.is_alive):
                break
        self.left = {rank.rank for rank in self.survivors if rank.is_alive}
        self.job.close()
        assert self.left <= self.used.keys(), "somebody waits past the deadline"


class _Meant:
    """As `RecoveryOrders` gives orders."""

    def __init__(self, procedure: AnswerProcedure) -> None:
        self._procedure = procedure

    def step(self, results: list[CommandResult], now_ns: int) -> list[What]:
        return self._procedure.step(results, now_ns)


def plans(asking: Asking) -> set[int]:
    """By ticket, of those that are left; 0: the one that the script chooses."""
    return {0 if one is None else one.ticket for rank, one in asking.used.items() if rank in asking.left}


def kill_agent(asking: Asking) -> None:
    asking.job.hosts[0].die()


def kill_agent_and_begin_another(asking: Asking) -> None:
    asking.job.hosts[0].die()
    asking.job.hosts[0].start()


def kill_head(asking: Asking) -> None:
    asking.job.controller, asking.is_head_alive = None, False


def cut_network(asking: Asking) -> None:
    asking.job.network_is_up = False


def kill_rank(asking: Asking) -> None:
    asking.survivors[0].die()


KILLS = (kill_agent, kill_agent_and_begin_another, kill_head, cut_network, kill_rank)


def test_all_survivors_use_what_is_ordered() -> None:
    asking = Asking()
    while len(asking.used) < 2 or not (asking.head is not None and asking.head.is_over):
        asking.step()
        assert asking.n_steps < 2 * MOMENTS.stop
    asking.job.close()
    assert [one.plan for one in asking.used.values() if one is not None] == [[7], [7]]
    assert asking.head is not None
    assert (asking.head.is_over, asking.head.outcome) == (True, "applied")


def test_on_two_hosts_too() -> None:
    asking = Asking(hosts=2)
    asking.run()
    assert len(asking.used) == 5
    assert plans(asking) == {5}


def test_what_is_only_told_is_told_to_all_and_holds_nobody_up() -> None:
    asking = Asking(is_ordered=False)
    while len(asking.used) < 2:
        asking.step()
        assert asking.n_steps < 60
    assert [one is not None and (one.is_ordered, one.plan) for one in asking.used.values()] == [(False, [7])] * 2
    asking.job.close()


@pytest.mark.parametrize("kill", KILLS, ids=lambda one: one.__name__)
def test_whatever_is_killed_at_any_moment_survivors_of_a_host_are_on_one_plan(kill: Callable[[Asking], None]) -> None:
    """And over all moments both come about: an order that stands, and one that does not."""
    came_of_it: Counter[int] = Counter()
    for moment in some(MOMENTS, 3):
        asking = Asking()
        asking.run(moment, kill)
        found = plans(asking)
        assert len(found) == 1, (moment, asking.used)
        came_of_it.update(found)
    assert set(came_of_it) == {0, 5}, came_of_it


def test_a_network_that_loses_and_reorders_leaves_them_on_one_plan() -> None:
    came_of_it: Counter[int] = Counter()
    for seed in tries(20, deep=40):
        asking = Asking(seed=seed, loss=0.4)
        asking.run()
        found = plans(asking)
        assert len(found) == 1, (seed, asking.used)
        came_of_it.update(found)
    assert set(came_of_it) == {0, 5}, came_of_it


def test_where_nobody_answers_they_wait_until_the_deadline_and_no_longer() -> None:
    asking = Asking()
    kill_head(asking)
    asking.run()
    assert plans(asking) == {0}


def test_where_nobody_listens_they_wait_for_nobody() -> None:
    asking = Asking()
    asking.job.hosts[0].die()
    asking.step()
    asking.step()
    assert asking.used == {0: None}
    asking.job.close()


def test_another_question_is_no_answer_to_this_one() -> None:
    asking = Asking()
    other = Question([0, 1], {"lost": [1]})
    assert other.digest != asking.question.digest
    asking.question, real = other, asking.question
    asking.step()
    asking.question = real
    for _ in range(MOMENTS.stop):
        asking.step()
    assert plans(asking) == {0}
    asking.job.close()
