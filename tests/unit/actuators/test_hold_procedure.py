"""Holding a job of several hosts: all ranks or none, and no longer than was said, whoever dies at whatever moment."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from actuators.control.holding import HoldProcedure
from actuators.control.thresholds import LEASE_MS, LOCATE_WITHIN_NS
from pacehound.model.events import CommandResult, RankAnswer
from pacehound.model.orders import Hold, Keep, Locate, Release
from tests.fakes.examples import tries
from tests.fakes.held_job import MS, STEP_NS, HeldJob

AFTER_DEATH_NS = 2_100 * MS + 600 * MS
"""A lease, the trap's own two seconds, and what was on its way when the controller died."""

NOBODY_AFTER_NS = 10_000 * MS
"""docs/commands.md: until the controller finds an agent silent, and its word has come to the others."""


def run(job: HeldJob, seconds: float) -> None:
    for _ in range(round(seconds * 1e9 / STEP_NS)):
        job.step()


@pytest.mark.parametrize("rounds_per_s", [0.7, 5, 100])
@pytest.mark.parametrize("seed", tries(2, deep=4))
def test_a_job_is_held_as_a_whole_at_one_round_and_goes_on(tmp_path: Path, seed: int, rounds_per_s: float) -> None:
    job = HeldJob(tmp_path, random.Random(seed), hosts=3, rounds_per_s=rounds_per_s)
    run(job, 3)
    hold = job.hold(5.0)
    while not hold.is_over:
        job.step()
        if hold.state == "held":
            assert all(rank.is_held for rank in job.ranks)
            assert len({rank.launched for rank in job.ranks}) == 1
    assert hold.held_since_ns, hold.reason
    assert hold.reason == "the time that was asked for is over"
    run(job, 2)
    assert not any(rank.is_held for rank in job.ranks)
    before = min(rank.launched for rank in job.ranks)
    run(job, 4)
    assert min(rank.launched for rank in job.ranks) > before
    job.close()


KILLS = [
    pytest.param(range(3), id="short"),
    pytest.param(range(3, 800), id="long", marks=pytest.mark.prove),
]


@pytest.mark.parametrize("seeds", KILLS)
def test_whoever_dies_at_whatever_moment_nobody_stays_held(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        chance = random.Random(seed)
        job = HeldJob(tmp_path / str(seed), chance, hosts=2, rounds_per_s=chance.choice([2, 20, 100]))
        run(job, 1)
        hold = job.hold(20.0)
        victim = chance.choice(["controller", "agent", "agent that comes back", "rank"])
        run(job, chance.uniform(0, 9))
        if victim == "controller":
            job.controller = None
        elif victim == "rank":
            chance.choice(job.ranks).is_alive = False
        else:
            host = chance.choice(job.hosts)
            host.orders = None
            if victim == "agent that comes back":
                run(job, chance.uniform(0, 1))
                host.start()
        run(job, (AFTER_DEATH_NS if victim == "controller" else NOBODY_AFTER_NS) / 1e9)
        # An agent that comes back is an agent again: all may be held by then, and as a whole.
        if victim != "agent that comes back" or hold.state != "held":
            assert not any(rank.is_held for rank in job.ranks), f"seed {seed}: {victim}, {hold.reason}"
        run(job, 30)
        assert hold.is_over or victim == "controller", f"seed {seed}: {victim}, {hold.reason}"
        assert not any(rank.is_held for rank in job.ranks), f"seed {seed}: {victim}"
        job.close()


def located(hold: HoldProcedure, ranks: dict[int, RankAnswer], world_size: int, now_ns: int) -> list[object]:
    answer = CommandResult(
        job="j",
        attempt=0,
        time_ns=1,
        host="h",
        number=1,
        order="o",
        what="locate",
        world_size=world_size,
        ranks=tuple(ranks.values()),
    )
    return list(hold.step([answer], now_ns))


def running(launched: int, per_s: float = 10.0, hold_limit_ms: int = 0) -> dict[int, RankAnswer]:
    return {
        rank: RankAnswer(rank=rank, state="running", launched=launched, per_s=per_s, hold_limit_ms=hold_limit_ms)
        for rank in range(2)
    }


def test_the_round_lies_two_seconds_ahead_of_the_furthest_rank() -> None:
    hold = HoldProcedure(1, 10**9, 0)
    orders = [located(hold, running(100), 2, now_ns) for now_ns in (0, 600 * MS, 1_200 * MS)]
    assert orders[:2] == [[Locate()], [Locate()]]
    assert orders[2] == [Hold(trap=1, round=120, hold_ms=21_000, lease_ms=LEASE_MS)]


@pytest.mark.parametrize(
    ("ranks", "world_size", "reason"),
    [
        ({}, 0, "no agent of this job has answered"),
        (running(100), 4, "ranks 2-3 of 4 are at no agent that has answered"),
        (running(100, hold_limit_ms=999), 2, "its ranks may stand still for 0.999 s, a quarter of the time"),
        (running(100, per_s=0.0), 2, "no rank makes calls on the communicator of all ranks"),
    ],
)
def test_what_cannot_be_held_is_not_begun_and_the_reason_said(
    ranks: dict[int, RankAnswer], world_size: int, reason: str
) -> None:
    hold = HoldProcedure(1, 10**9, 0)
    orders: list[object] = []
    for now_ns in range(0, LOCATE_WITHIN_NS + 2_000 * MS, 100 * MS):
        orders += located(hold, ranks, world_size, now_ns) if ranks else hold.step([], now_ns)
    assert set(map(type, orders)) == {Locate}
    assert hold.is_over
    assert reason in hold.reason


def test_somebody_elses_release_ends_it() -> None:
    hold = HoldProcedure(1, 10**9, 0)
    for now_ns in (0, 600 * MS, 1_200 * MS):
        located(hold, running(100), 2, now_ns)
    release = CommandResult(job="j", attempt=0, time_ns=1, host="h", number=2, order="x", what="release")
    assert hold.step([release], 1_300 * MS) == [Release(trap=1)]
    assert hold.reason == "somebody has let the ranks go"


def test_an_order_that_came_too_late_for_an_agent_is_said_again_and_one_that_cannot_be_is_the_end() -> None:
    hold = HoldProcedure(1, 10**9, 0)
    for now_ns in (0, 600 * MS, 1_200 * MS):
        located(hold, running(100), 2, now_ns)
        late = CommandResult(
            job="j", attempt=0, time_ns=1, host="h", number=2, what="locate", refused="expired", reason="it ended"
        )
        hold.step([late], now_ns)
    assert hold.state == "gathering"
    full = CommandResult(
        job="j", attempt=0, time_ns=1, host="h", number=3, what="hold", trap=1, refused="cannot", reason="it is full"
    )
    assert hold.step([full], 1_300 * MS) == [Release(trap=1)]
    assert hold.reason == "h has refused the order to hold: it is full"


def test_the_lease_is_renewed_while_ranks_are_waited_for() -> None:
    hold = HoldProcedure(1, 10**9, 0)
    for now_ns in (0, 600 * MS, 1_200 * MS):
        located(hold, running(100), 2, now_ns)
    assert hold.step([], 1_400 * MS) == []
    assert hold.step([], 1_500 * MS) == [Keep(trap=1, lease_ms=LEASE_MS)]
