"""Orders to scripts: all live ranks apply one at the same step or none does, whoever dies and whatever is lost."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from actuators.control.applying import ApplyProcedure
from actuators.control.thresholds import APPLY_AHEAD_S, APPLY_AHEAD_STEPS
from pacehound.model.events import CommandResult, TrainerAnswer
from pacehound.model.orders import Apply, Confirm, Offer, Withdraw
from tests.fakes.ordered_job import AGREE_EVERY, KIND, MS, OrderedJob

SETTLED_S = 30.0


def job_of(folder: Path, seed: int, **changed: object) -> OrderedJob:
    how = {"hosts": 1, "ranks": 3, "agrees": False, "loss": 0.0, "per_s": 8.0, **changed}
    return OrderedJob(folder / str(seed), random.Random(seed), **how)  # type: ignore[arg-type]


def assert_all_or_none(job: OrderedJob, said: str) -> bool:
    """Of each order: the live ranks that have come so far applied it at one step, or none has; whether any was."""
    applied = {ticket: step for rank in job.ranks for ticket, step in rank.applied.items()}
    for ticket, at_step in applied.items():
        steps = {rank.applied.get(ticket) for rank in job.ranks if rank.is_alive and rank.step > at_step}
        if steps <= {None}:
            continue  # by one that has died since
        assert len(steps) == 1, f"{said}: {[(rank.rank, rank.applied) for rank in job.ranks]}"
    assert not any((host.folder / "notes").exists() for host in job.hosts), f"{said}: an error of ours"
    return bool(applied)


@pytest.mark.parametrize("agrees", [False, True])
@pytest.mark.parametrize("hosts", [1, 3])
def test_all_ranks_apply_an_order_at_one_step(tmp_path: Path, hosts: int, agrees: bool) -> None:
    with closing(job_of(tmp_path, hosts, hosts=hosts, agrees=agrees)) as job:
        job.run(2)
        order = job.order()
        while not order.is_over:
            job.step()
    assert (order.outcome, order.reason) == ("applied", f"it came to step {order.at_step}")
    assert {rank.applied[order.ticket] for rank in job.ranks} == {order.at_step}
    assert {at.answer.step for at in order.ranks.values()} == {order.at_step}
    if agrees:
        assert order.at_step % AGREE_EVERY == 0


def adversity(folder: Path, seed: int, *, hosts: int, agrees: bool, loss: float, deaths: int) -> bool:
    """An order, and what goes wrong at moments drawn by chance; whether it was applied all the same."""
    per_s = random.Random(seed).choice([1.5, 8, 18])
    with closing(job_of(folder, seed, hosts=hosts, agrees=agrees, loss=loss, per_s=per_s)) as job:
        job.run(1)
        job.order()
        said = [f"seed {seed}"]
        for _ in range(deaths):
            job.run(job.chance.uniform(0, 14))
            said.append(something_fails(job, is_alone=deaths == 1 and hosts > 1 and not agrees))
        job.run(SETTLED_S)
        return assert_all_or_none(job, ", ".join(said))


def something_fails(job: OrderedJob, *, is_alone: bool) -> str:
    """What it was."""
    victims = ["controller", "agent", "agent that comes back", "rank"]
    if not is_alone:  # what is not promised of hosts that do not agree
        victims += ["network", "a second order"]
    victim = job.chance.choice(victims)
    host = job.chance.choice(job.hosts)
    if victim == "controller":
        job.controller = None
    elif victim == "rank":
        job.chance.choice(job.ranks).die()
    elif victim == "network":
        job.network_is_up = False
    elif victim == "a second order":
        job.order(job.chance.randrange(1_000, 10_000))
    else:
        host.die()
        if victim == "agent that comes back":
            job.run(job.chance.uniform(0, 1))
            host.start()
    return victim


def seeds(few: int, many: int) -> list[object]:
    return [
        pytest.param(range(few), id="short"),
        pytest.param(range(few, many), id="long", marks=pytest.mark.prove),
    ]


@pytest.mark.parametrize("among", seeds(10, 1_000))
def test_ranks_of_one_host_never_differ_whatever_dies_or_is_lost(tmp_path: Path, among: range) -> None:
    applied = [adversity(tmp_path, seed, hosts=1, agrees=False, loss=0.1, deaths=1 + seed % 2) for seed in among]
    assert 0 < sum(applied) < len(applied)


@pytest.mark.parametrize("among", seeds(6, 1_000))
def test_ranks_that_agree_by_themselves_never_differ_over_hosts(tmp_path: Path, among: range) -> None:
    applied = [adversity(tmp_path, seed, hosts=3, agrees=True, loss=0.1, deaths=1 + seed % 2) for seed in among]
    assert 0 < sum(applied) < len(applied)


@pytest.mark.parametrize("among", seeds(6, 1_000))
def test_hosts_do_not_differ_by_one_death_where_no_message_is_lost(tmp_path: Path, among: range) -> None:
    applied = [adversity(tmp_path, seed, hosts=3, agrees=False, loss=0.0, deaths=1) for seed in among]
    assert 0 < sum(applied) < len(applied)


class ByHand:
    """A procedure, and what one host of two ranks answers."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * MS
        self.order = ApplyProcedure(7, KIND, "[1]", 20_000 * MS, self.now_ns)

    def hear(
        self, *states: str, step: int = 100, per_s: float = 5.0, after_ms: int = 100, **said: object
    ) -> list[object]:
        trainers = tuple(
            TrainerAnswer(rank=rank, state=state, step=step, per_s=per_s, why=f"why {rank}")  # type: ignore[arg-type]
            for rank, state in enumerate(states)
        )
        how = {"world_size": 2, "ticket": self.order.ticket, "trainers": trainers, **said}
        result = CommandResult(job="j", attempt=0, time_ns=1, host="h", number=1, **how)  # type: ignore[arg-type]
        return self.step(result, after_ms=after_ms)

    def step(self, *results: CommandResult, after_ms: int = 100) -> list[object]:
        self.now_ns += after_ms * MS
        return list(self.order.step(results, self.now_ns))

    def armed(self) -> ByHand:
        self.hear("able", "able")
        self.hear("armed", "armed")
        assert self.order.state == "confirming"
        return self


def test_the_step_lies_ahead_of_the_furthest_rank_by_its_pace() -> None:
    by_hand = ByHand()
    assert by_hand.step() == [Offer(ticket=7, kind=KIND, payload="[1]")]
    assert by_hand.hear("able", "able") == [Apply(ticket=7, step=100 + APPLY_AHEAD_STEPS + round(5 * APPLY_AHEAD_S))]
    assert by_hand.hear("armed", "armed") == [Confirm(ticket=7)]
    assert by_hand.hear("confirmed", "confirmed") == []
    assert by_hand.order.state == "waiting"
    assert by_hand.hear("applied", "applied", step=143) == []
    assert (by_hand.order.is_over, by_hand.order.outcome) == (True, "applied")


def test_a_rank_that_makes_a_step_in_half_a_minute_is_told_one_before() -> None:
    by_hand = ByHand()
    (apply,) = by_hand.hear("able", "able", per_s=1 / 30, step=4)
    assert apply == Apply(ticket=7, step=4 + APPLY_AHEAD_STEPS + 1)


@pytest.mark.parametrize(
    ("states", "said", "reason"),
    [
        (("able", "unable"), {}, "rank 1: why 1"),
        (("absent", "able"), {}, "rank 0: why 0"),
        ((), {"refused": "cannot", "reason": "no", "what": "offer"}, "h has refused to offer it: no"),
        ((), {"what": "withdraw"}, "somebody has withdrawn it"),
    ],
)
def test_one_that_cannot_is_the_end_of_it_for_all(
    states: tuple[str, ...], said: dict[str, object], reason: str
) -> None:
    by_hand = ByHand()
    by_hand.step()
    assert by_hand.hear(*states, **said) == [Withdraw(ticket=7)]
    assert (by_hand.order.is_over, by_hand.order.outcome, by_hand.order.reason) == (True, "kept", reason)
    assert by_hand.step() == []


@pytest.mark.parametrize("refused", ["replayed", "expired", "out of order"])
def test_what_came_too_late_or_once_more_is_no_refusal(refused: str) -> None:
    by_hand = ByHand()
    by_hand.step()
    assert by_hand.hear(refused=refused, what="offer") == []
    assert by_hand.hear("able", "able")
    assert by_hand.hear("armed", "armed") == [Confirm(ticket=7)]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([], "no agent of this job has answered"),
        ([("able",)], "rank 1 of 2 have no script that takes orders"),
        ([("able", "asked")], "rank 1 will say at the next step whether they can"),
    ],
)
def test_who_is_missing_when_the_time_is_over_is_said(answers: list[tuple[str, ...]], reason: str) -> None:
    by_hand = ByHand()
    asked: list[object] = []
    for _ in range(220):
        asked += by_hand.hear(*answers[0]) if answers else by_hand.step()
    assert by_hand.order.is_over
    assert reason in by_hand.order.reason
    assert "not within 20 s" in by_hand.order.reason
    assert set(map(type, asked)) == {Offer, Withdraw}


def test_ranks_that_agree_at_different_steps_are_not_told_any() -> None:
    by_hand = ByHand()
    answers = tuple(
        TrainerAnswer(rank=rank, state="able", step=1, per_s=1, agrees_every=every) for rank, every in ((0, 5), (1, 10))
    )
    assert by_hand.hear(trainers=answers) == [Withdraw(ticket=7)]
    assert "every [5, 10] steps" in by_hand.order.reason


def test_a_rank_that_was_too_fast_is_tried_again_further_ahead_and_three_times_in_all() -> None:
    by_hand = ByHand()
    chosen = []
    for ticket in (7, 8, 9):
        (apply,) = by_hand.hear("able", "able")
        assert isinstance(apply, Apply)
        assert apply.ticket == ticket
        chosen.append(apply.step - 100 - APPLY_AHEAD_STEPS)
        passed = TrainerAnswer(rank=1, state="kept", step=500, why="it had passed step 143 by the time it was told")
        assert by_hand.hear(trainers=(passed,)) == [Withdraw(ticket=ticket)]
        by_hand.step()
    assert chosen == [round(5 * APPLY_AHEAD_S * factor) for factor in (1, 2, 4)]
    by_hand.hear("kept", "kept")
    assert (by_hand.order.is_over, by_hand.order.outcome) == (True, "kept")


def test_it_is_not_confirmed_where_it_could_not_be_taken_back_any_more() -> None:
    by_hand = ByHand()
    by_hand.hear("able", "able")
    assert by_hand.hear("armed", "armed", step=130) == [Withdraw(ticket=7)]
    assert by_hand.order.state == "asking"


def test_an_agent_that_does_not_confirm_has_it_taken_back_on_the_others() -> None:
    by_hand = ByHand().armed()
    told = [what for _ in range(21) for what in by_hand.hear("confirmed", "armed")]
    assert told[-1] == Withdraw(ticket=7)
    assert set(map(type, told[:-1])) == {Confirm}
    assert "the agent on h has not confirmed it" in by_hand.order.reason
    by_hand.hear("kept", "kept")
    assert (by_hand.order.is_over, by_hand.order.outcome) == (True, "kept")


def test_what_is_confirmed_on_all_hosts_is_not_taken_back_whoever_dies_or_says_so() -> None:
    by_hand = ByHand().armed()
    by_hand.hear("confirmed", "confirmed")
    assert by_hand.hear("confirmed", "absent") == []
    assert by_hand.hear("applied", "absent", step=143) == []
    assert by_hand.order.outcome == "applied"
    by_hand = ByHand().armed()
    by_hand.hear("confirmed", "confirmed")
    assert by_hand.order.end("as you said", by_hand.now_ns) == []
    assert by_hand.order.outcome == "unknown"


def test_before_that_whoever_asked_may_take_it_back() -> None:
    by_hand = ByHand()
    by_hand.hear("able", "able")
    assert by_hand.order.end("as you said", by_hand.now_ns) == [Withdraw(ticket=7)]
    assert by_hand.order.outcome == "kept"


def test_an_agent_that_says_nothing_more_is_the_end_of_it() -> None:
    by_hand = ByHand()
    by_hand.hear("able", "able")
    assert by_hand.step(after_ms=8_001)[-1] == Withdraw(ticket=7)


def test_where_some_applied_it_and_others_did_not_that_is_said() -> None:
    by_hand = ByHand().armed()
    by_hand.hear("confirmed", "armed")
    for _ in range(20):
        by_hand.step()
    assert by_hand.order.state == "withdrawing"
    by_hand.hear("applied", "kept", step=143)
    assert (by_hand.order.is_over, by_hand.order.outcome) == (True, "differs")


@pytest.mark.parametrize("seed", range(3))
def test_an_agent_that_dies_after_the_confirmation_costs_no_more_than_the_answer_being_late(
    tmp_path: Path, seed: int
) -> None:
    with closing(job_of(tmp_path, seed)) as job:
        job.run(1)
        order = job.order()
        while order.state != "waiting":
            job.step()
        job.hosts[0].die()
        while min(rank.step for rank in job.ranks) <= order.at_step:
            job.step()
        assert not order.is_over
        job.hosts[0].start()
        job.run(3)
    assert (order.is_over, order.outcome) == (True, "applied")
