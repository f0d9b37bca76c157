"""Orders to scripts: all live ranks apply one at the same step or none does, whoever dies and whatever is lost."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fakes.ordered_job import AGREE_EVERY, OrderedJob

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
    job = job_of(tmp_path, hosts, hosts=hosts, agrees=agrees)
    job.run(2)
    order = job.order()
    while not order.is_over:
        job.step()
    assert (order.outcome, order.reason) == ("applied", f"it came to step {order.at_step}")
    assert {rank.applied[order.ticket] for rank in job.ranks} == {order.at_step}
    assert {at.answer.step for at in order.ranks.values()} == {order.at_step}
    if agrees:
        assert order.at_step % AGREE_EVERY == 0
    job.close()


def adversity(folder: Path, seed: int, *, hosts: int, agrees: bool, loss: float, deaths: int) -> bool:
    """An order, and what goes wrong at moments drawn by chance; whether it was applied all the same."""
    job = job_of(folder, seed, hosts=hosts, agrees=agrees, loss=loss, per_s=random.Random(seed).choice([1.5, 8, 18]))
    chance = job.chance
    job.run(1)
    job.order()
    said = [f"seed {seed}"]
    for _ in range(deaths):
        job.run(chance.uniform(0, 14))
        victim = chance.choice(["controller", "agent", "agent that comes back", "rank", "network", "a second order"])
        if victim in ("a second order", "network") and deaths == 1 and hosts > 1 and not agrees:
            victim = "agent"  # what docs/trainer.md does not promise
        said.append(victim)
        host = chance.choice(job.hosts)
        if victim == "controller":
            job.controller = None
        elif victim == "rank":
            chance.choice(job.ranks).die()
        elif victim == "network":
            job.network_is_up = False
        elif victim == "a second order":
            job.order(chance.randrange(1_000, 10_000))
        else:
            host.die()
            if victim == "agent that comes back":
                job.run(chance.uniform(0, 1))
                host.start()
    job.run(SETTLED_S)
    was_applied = assert_all_or_none(job, ", ".join(said))
    job.close()
    return was_applied


def seeds(few: int, many: int) -> list[object]:
    return [
        pytest.param(range(few), id="short"),
        pytest.param(range(few, many), id="long", marks=pytest.mark.prove),
    ]


@pytest.mark.parametrize("among", seeds(25, 1_000))
def test_ranks_of_one_host_never_differ_whatever_dies_or_is_lost(tmp_path: Path, among: range) -> None:
    applied = [adversity(tmp_path, seed, hosts=1, agrees=False, loss=0.1, deaths=1 + seed % 2) for seed in among]
    assert 0 < sum(applied) < len(applied)


@pytest.mark.parametrize("among", seeds(15, 1_000))
def test_ranks_that_agree_by_themselves_never_differ_over_hosts(tmp_path: Path, among: range) -> None:
    applied = [adversity(tmp_path, seed, hosts=3, agrees=True, loss=0.1, deaths=1 + seed % 2) for seed in among]
    assert 0 < sum(applied) < len(applied)


@pytest.mark.parametrize("among", seeds(15, 1_000))
def test_hosts_do_not_differ_by_one_death_where_no_message_is_lost(tmp_path: Path, among: range) -> None:
    applied = [adversity(tmp_path, seed, hosts=3, agrees=False, loss=0.0, deaths=1) for seed in among]
    assert 0 < sum(applied) < len(applied)
