"""Micro-batches are moved by itself: what helps is kept, what does not is undone, and all ranks have one plan."""

from __future__ import annotations

import itertools
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from actuators.acting.act import Terms
from actuators.acting.applied import Applied
from actuators.acting.limits import Limits
from actuators.acting.microbatches import MicroBatches
from actuators.mitigation.moving import plan_moves
from actuators.mitigation.speeds import Speeds, speeds_of
from actuators.mitigation.thresholds import COOL_DOWN_NS, HELD_FOR_NS, KEPT_SHARE, MOST_ACTIONS_PER_HOUR, PACE_STEPS
from actuators.now import Now
from pacehound.model.events import CommandResult, Cost, Decision, Incident, Instant, RankAnswer
from pacehound.model.evidence.computing import OwnTimeApart, OwnTimeGrew
from pacehound.model.evidence.machines import Measured, NobodySlow
from pacehound.model.orders import Offer, What
from tests.fakes.events import SECOND_NS, START_NS, finding, incident
from tests.fakes.ordered_job import OrderedJob

GREW = OwnTimeGrew(ranks=(1,), own_s=0.4, peers_s=0.0, iteration_s=0.4)
MICRO_BATCHES = 8
FAST_PER_S = 16.0
"""Of the job's steps while no rank is slow."""


def slow(excess_s: float = 100.0, **changes: object) -> Incident:
    one = finding(kind="slow", cause="S1", culprits=(1,), candidates=(), victims=(), magnitude=1.0, evidence=(GREW,))
    return incident(findings=(replace(one, **changes),), cost=Cost(excess_s=excess_s, ranks=2))  # type: ignore[arg-type]


def acting(one: Incident, ticket: int, limits: Limits, **how: bool) -> Applied:
    return Applied(MicroBatches(), one, ticket, Terms(limits=limits), **how)


class MovedJob(OrderedJob):
    """Two ranks, one of which takes `ratio` times as long, and one who moves micro-batches; is its own controller."""

    def __init__(
        self, folder: Path, seed: int, *, first: Incident | None = None, loss: float = 0.0, **how: bool
    ) -> None:
        super().__init__(
            folder / str(seed), random.Random(seed), hosts=1, ranks=2, agrees=False, loss=loss,
            per_s=FAST_PER_S, micro_batches=MICRO_BATCHES,
        )  # fmt: skip
        self.ratio, self.is_futile = 2.0, False
        self.decisions: list[Decision] = []
        self.orders: list[What] = []
        self.heard: list[CommandResult] = []
        self.limits = Limits()
        self.mitigating = acting(first or slow(), 1_000, self.limits, **how)
        self.controller = Acting(self)

    @property
    def now(self) -> Now:
        return Now(monotonic_ns=self.clock.now_ns, unix_ns=START_NS + self.clock.now_ns)

    @property
    def actions(self) -> list[str]:
        return [one.action for one in self.decisions]

    @property
    def counts(self) -> list[int]:
        """Of all ranks that live, once the last of them has come to the step of the order."""
        for _ in range(100):
            found = {tuple(rank.counts) for rank in self.ranks if rank.is_alive}
            if len(found) == 1:
                break
            self.step()
        assert len(found) == 1, found
        return list(found.pop())

    def step(self) -> None:
        counts = self.ranks[0].counts
        work = MICRO_BATCHES * self.ratio if self.is_futile else max(counts[0], counts[1] * self.ratio)
        self.per_s = FAST_PER_S * MICRO_BATCHES / work
        super().step()

    def until(self, state: str, within_s: float = 120.0) -> None:
        for _ in range(round(within_s * 20)):
            if self.mitigating.state == state:
                return
            self.step()
        raise AssertionError(f"{self.mitigating.state}, not {state}: {self.mitigating.reason}")


class Acting:
    """Steps it in the job's time."""

    def __init__(self, job: MovedJob) -> None:
        self.job = job

    def step(self, results: list[CommandResult], now_ns: int) -> list[What]:
        heard, self.job.heard = [*results, *self.job.heard], []
        orders, decisions = self.job.mitigating.step(heard, self.job.now)
        self.job.decisions += decisions
        self.job.orders += orders
        return orders


def test_what_helps_is_kept_until_the_fault_is_over_and_then_given_back(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 1)) as job:
        job.until("helping")
        assert job.counts == [11, 5]
        adjusted, kept = job.decisions
        assert (adjusted.action, kept.action) == ("adjust_microbatches", "keep_microbatches")
        assert adjusted.reason.startswith("rank 1 takes 2.00 times as long (its own time grew); rank 0: 8 to 11")
        assert (adjusted.taken, adjusted.price_s, adjusted.alternatives[0]) == (True, 5.0, "adjust_topology at 60 s")
        assert adjusted.promised_gain == pytest.approx(1 - 11 / 16)
        assert kept.seen_gain == pytest.approx(1 - 11 / 16, abs=0.15)
        job.run(45)
        assert job.mitigating.state == "helping", "it is looked at, and nothing has changed"
        job.ratio = 1.0
        job.run(30)
        job.mitigating.on_incident(over_at(job.now.unix_ns))
        job.until("over")
        assert job.counts == [8, 8]
        assert job.actions[2:] == ["restore_microbatches", "track"]
        assert job.mitigating.may_act_again


def over_at(time_ns: int) -> Incident:
    return replace(slow(relief=Instant(step=1, time_ns=time_ns)), state="relieved")


def test_a_relief_that_is_our_own_doing_gives_nothing_back(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 2)) as job:
        job.until("watching")
        job.mitigating.on_incident(over_at(job.now.unix_ns))
        job.until("helping")
        job.run(45)
        assert (job.mitigating.state, job.counts) == ("helping", [11, 5])


@pytest.mark.parametrize("is_over", [True, False])
def test_a_measurement_that_finds_nobody_slow_leads_to_a_trial_once(tmp_path: Path, is_over: bool) -> None:
    measured = slow(evidence=(GREW, NobodySlow(n_measured=2, n_cleared=2)))
    with closing(MovedJob(tmp_path, 10)) as job:
        job.until("helping")
        if is_over:
            job.ratio = 1.0
        job.mitigating.on_incident(measured)
        job.until("checking")
        assert job.counts == [8, 8]
        assert job.decisions[-1].reason == "the ranks were measured since, and nobody is slow"
        job.until("over" if is_over else "helping")
        job.run(150)
        assert job.counts == ([8, 8] if is_over else [11, 5])
        reasons = [one.reason for one in job.decisions if one.action == "restore_microbatches"]
        assert reasons.count("the ranks were measured since, and nobody is slow") == 1, reasons


def test_a_trial_that_finds_the_fault_still_there_brings_the_plan_back_and_is_repeated_more_rarely(
    tmp_path: Path,
) -> None:
    with closing(MovedJob(tmp_path, 3)) as job:
        job.until("helping")
        job.mitigating._trials.pause_ns = 10 * SECOND_NS
        job.until("checking")
        assert job.counts == [8, 8]
        job.until("helping")
        assert job.counts == [11, 5]
        assert job.actions[2:] == ["restore_microbatches", "adjust_microbatches", "keep_microbatches"]
        assert job.mitigating._trials.pause_ns == 20 * SECOND_NS


def test_what_does_not_help_is_undone_at_once_and_nothing_tried_for_a_while(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 4)) as job:
        job.is_futile = True
        job.until("over")
        assert job.actions == ["adjust_microbatches", "restore_microbatches", "track"]
        assert "was promised" in job.decisions[1].reason
        seen, promised = job.decisions[1].seen_gain, job.decisions[1].promised_gain
        assert seen is not None
        assert promised is not None
        assert seen < KEPT_SHARE * promised
        assert job.counts == [8, 8]
        again = acting(slow(), 9_000, job.limits)
        _, (decision,) = again.step([], job.now)
        assert (decision.taken, again.is_over) == (False, True)
        assert decision.limit.startswith("an action about this job did not help")
        later = Now(monotonic_ns=job.clock.now_ns + COOL_DOWN_NS, unix_ns=0)
        assert acting(slow(), 9_000, job.limits).step([], later) == ([], [])


def test_what_somebody_who_has_gone_has_moved_is_given_back(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 5, was_left=True)) as job:
        for rank in job.ranks:
            rank.counts = [11, 5]
        job.until("over")
        assert (job.counts, job.actions) == ([8, 8], ["restore_microbatches", "track"])


def test_nothing_is_ordered_before_the_loss_has_reached_the_price(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 6, first=slow(excess_s=0.0))) as job:
        job.mitigating.incident = replace(job.mitigating.incident, time_ns=job.now.unix_ns)
        job.run(2)
        assert (job.mitigating.state, job.orders, job.decisions) == ("waiting", [], [])
        job.until("helping")


def test_no_order_begins_while_ranks_are_held(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 7)) as job:
        held = RankAnswer(rank=0, state="held")
        for _ in range(20 * 20):
            job.heard.append(CommandResult(job="j", attempt=0, time_ns=1, host="h0", number=1, ranks=(held,)))
            job.step()
        assert job.mitigating.state == "moving"
        assert not any(isinstance(one, Offer) and one.kind == "microbatches" for one in job.orders)
        job.run(HELD_FOR_NS / SECOND_NS)
        job.until("helping")


def test_scripts_that_do_not_say_their_micro_batches_are_let_be_and_it_is_said(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 8)) as job:
        for trainer in job.hosts[0].trainers.listener.trainers.values():  # type: ignore[union-attr]
            trainer.micro_batches = 0
        job.run(0.2)
        for trainer in job.hosts[0].trainers.listener.trainers.values():  # type: ignore[union-attr]
            trainer.micro_batches = 0
        job.until("over")
        (decision,) = job.decisions
        assert not decision.taken
        assert "not all scripts say how many micro-batches they compute" in decision.limit
        assert job.ranks[0].step < PACE_STEPS, "no pace would change that, so that none is waited for"


def test_a_job_that_ends_is_let_be(tmp_path: Path) -> None:
    with closing(MovedJob(tmp_path, 9)) as job:
        job.until("helping")
        job.mitigating.on_incident(replace(slow(), state="closed", closed_why="the job has ended"))
        job.step()
        assert job.mitigating.is_over
        assert job.actions[-1] == "track"


def adversity(folder: Path, seed: int) -> str:
    """Something fails at a moment drawn by chance; what is said of it."""
    with closing(MovedJob(folder, seed, loss=random.Random(seed).choice([0.0, 0.05]))) as job:
        chance = random.Random(seed)
        job.is_futile = chance.random() < 0.4
        job.run(chance.uniform(0, 25))
        victim = chance.choice(["rank", "agent", "agent that comes back", "controller", "network", "fault", "nobody"])
        said = f"seed {seed}: {victim} in {job.mitigating.state}"
        if victim == "rank":
            job.ranks[1].die()
        elif victim.startswith("agent"):
            job.hosts[0].die()
        elif victim == "controller":
            job.controller = None
        elif victim == "network":
            job.network_is_up = False
        elif victim == "fault":
            job.ratio = 1.0
        job.run(12)
        job.network_is_up = True
        if victim == "agent that comes back":
            job.hosts[0].start()
        if victim == "controller":
            job.mitigating = acting(slow(), 50_000, Limits(), was_left=True)
            job.controller = Acting(job)
        job.run(70)
        actions = [one for one in job.actions if one != "track"]
        assert actions.count("adjust_microbatches") <= MOST_ACTIONS_PER_HOUR, said
        if victim != "controller":
            assert ("restore_microbatches", "restore_microbatches") not in itertools.pairwise(actions), said
        counts = job.counts if victim != "rank" else job.ranks[0].counts
        assert sum(counts) == 2 * MICRO_BATCHES, said
        if job.mitigating.is_over and "rank" not in victim and "could not be" not in job.mitigating.reason:
            assert counts == [8, 8], f"{said}: {job.mitigating.reason}"
        return said


@pytest.mark.parametrize("seed", range(6))
def test_whoever_fails_ranks_have_one_plan_and_what_is_over_is_given_back(tmp_path: Path, seed: int) -> None:
    adversity(tmp_path, seed)


@pytest.mark.prove
def test_whoever_fails_in_five_hundred_jobs(tmp_path: Path) -> None:
    for seed in range(500):
        adversity(tmp_path, seed)


def test_a_job_is_acted_upon_so_often_an_hour_at_the_most() -> None:
    limits = Limits()
    for number in range(MOST_ACTIONS_PER_HOUR):
        assert limits.reason_not_to_act(number * SECOND_NS) == ""
        limits.acted(number * SECOND_NS)
    assert "within an hour" in limits.reason_not_to_act(100 * SECOND_NS)
    assert limits.reason_not_to_act(3_600 * SECOND_NS) == ""
    assert "within an hour" in limits.reason_not_to_act(3_599 * SECOND_NS)


@pytest.mark.parametrize(
    ("changes", "ratios"),
    [
        ({}, {1: 2.0}),
        ({"magnitude": None}, None),
        ({"evidence": (OwnTimeApart(ranks=(1,), own_s=0.3, peers_s=0.2, n_peers=1, spread_s=0.0),)}, {1: 1.5}),
        ({"evidence": (Measured(ranks=(1,), verdict="culprit", measured="memory", ratio=3.0),)}, {1: 3.0}),
        ({"evidence": (Measured(ranks=(1,), verdict="cleared", measured="memory", ratio=1.0),)}, None),
        ({"evidence": (Measured(ranks=(1,), verdict="culprit", measured="memory", ratio=3.0), GREW)}, {1: 2.0}),
    ],
    ids=["grew", "no magnitude", "apart", "measured", "cleared", "its own work first"],
)
def test_how_slow_a_rank_is_is_said_by_the_evidence(
    changes: dict[str, object], ratios: dict[int, float] | None
) -> None:
    found = speeds_of(slow(**changes).findings[0])
    assert (found and found.ratios) == (pytest.approx(ratios) if ratios else None)


@pytest.mark.parametrize(
    ("one", "is_acted_upon"),
    [
        (slow(), True),
        (slow(verdict="suspected"), False),
        (slow(cause="S2"), False),
        (slow(kind="hang"), False),
        (replace(slow(), state="relieved"), False),
        (slow(evidence=()), False),
    ],
    ids=["proven", "suspected", "network", "hang", "relieved", "unknown speed"],
)
def test_only_a_proven_rank_that_computes_for_longer_is_acted_upon(one: Incident, is_acted_upon: bool) -> None:
    assert MicroBatches().is_against(one) is is_acted_upon


@pytest.mark.parametrize(
    ("counts", "why"), [([0, 8], "not all scripts say"), ([1, 1], "0 % shorter"), ([8], "the job has 1 ranks")]
)
def test_where_there_is_nothing_to_move_it_is_said_why(counts: list[int], why: str) -> None:
    found = plan_moves(counts, Speeds(ratios={1: 2.0}, source=""))
    assert isinstance(found, str)
    assert why in found
