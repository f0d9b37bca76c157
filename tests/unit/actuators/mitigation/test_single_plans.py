"""Restart, planned collection, resume: what would be done, and what it costs."""

from __future__ import annotations

import random

import pytest

from actuators.mitigation.collection import plan_collection
from actuators.mitigation.restart import plan_restart
from actuators.mitigation.resume import plan_resume
from pacehound.model.evidence.leaving import Process
from tests.fakes.events import finding


def test_a_restart_without_a_checkpoint_costs_the_work_since_the_last_one():
    hosts = ["n1", "n1", "n2", "n3"]
    plan = plan_restart(hosts, ["n2"], scheduler="slurm", job="7", restart_s=100.0, since_checkpoint_s=250.0)
    assert plan.cost_s == 350.0
    asked = plan_restart(hosts, ["n2"], scheduler="slurm", job="7", restart_s=100.0, checkpoint_s=40.0)
    assert asked.cost_s == 140.0
    assert "checkpoint" in asked.steps[0][0]


@pytest.mark.parametrize(
    ("scheduler", "command"),
    [
        ("slurm", "sbatch --nodes=2 --exclude=n2 SCRIPT"),
        ("torchrun", "torchrun --nnodes 2 --rdzv-id 'my job' SCRIPT"),
        ("kubernetes", "kubectl cordon n2"),
    ],
)
def test_each_scheduler_leaves_the_host_out(scheduler, command):
    plan = plan_restart(["n1", "n2", "n3"], ["n2"], scheduler=scheduler, job="my job", restart_s=1.0)
    assert command in [said for _, said in plan.steps]


def test_a_spare_takes_the_place_of_a_host():
    plan = plan_restart(["n1", "n2"], ["n2"], scheduler="slurm", job="7", restart_s=1.0, spares=3)
    assert plan.steps[-1][1] == "sbatch --nodes=2 --exclude=n2 SCRIPT"


def test_names_of_others_are_no_commands():
    plan = plan_restart(["n1", "$(rm x)"], ["$(rm x)"], scheduler="kubernetes", job="j;k", restart_s=1.0)
    assert [said for _, said in plan.steps] == ["kubectl cordon '$(rm x)'", "kubectl delete pods -l job-name='j;k'"]


def test_who_is_no_host_of_the_job_cannot_be_left_out_nor_can_all():
    with pytest.raises(ValueError, match="n9 is none of the 1 hosts"):
        plan_restart(["n1"], ["n9"], scheduler="slurm", job="7", restart_s=1.0)
    with pytest.raises(ValueError, match="1 of 1 hosts are to be left out"):
        plan_restart(["n1"], ["n1"], scheduler="slurm", job="7", restart_s=1.0)


def test_the_gain_of_planned_collection_is_that_of_ranks_that_collect_at_random():
    rng = random.Random(0)
    ranks, every, pause_s, compute_s, n_steps = 64, 50, 0.2, 1.0, 4000
    held_s = sum(pause_s * any(rng.random() < 1 / every for _ in range(ranks)) for _ in range(n_steps)) / n_steps
    step_s = compute_s + held_s
    plan = plan_collection(pause_s=pause_s, every_steps=every, n_ranks=ranks, step_time_s=step_s, furthest_step=10)
    planned_s = compute_s + pause_s / every
    assert plan.gain == pytest.approx((step_s - planned_s) / step_s, rel=0.03)


def test_memory_bounds_the_interval_and_the_first_step_lies_ahead():
    how = {"pause_s": 0.2, "every_steps": 50, "n_ranks": 64, "step_time_s": 1.0, "furthest_step": 1000}
    assert plan_collection(**how, free_bytes=8e9, garbage_bytes_per_step=1e7).interval_steps == 400
    assert plan_collection(**how, free_bytes=8e12, garbage_bytes_per_step=1).interval_steps == 1000
    first = plan_collection(**how).first_step
    assert (first % 50, first > 1050) == (0, True)
    with pytest.raises(ValueError, match="pause_s is 0"):
        plan_collection(**(how | {"pause_s": 0.0}))


def test_on_a_single_rank_planned_collection_gives_nothing():
    plan = plan_collection(pause_s=0.2, every_steps=50, n_ranks=1, step_time_s=1.0, furthest_step=0)
    assert plan.gain == pytest.approx(0.0)


def test_only_stopped_culprits_are_told_to_go_on():
    evidence = (
        Process(rank=2, pid=11, state="stopped"),
        Process(rank=1, pid=12, state="stopped"),
        Process(rank=2, pid=13, state="running"),
    )
    plan = plan_resume(finding(kind="hang", cause="H1", evidence=evidence))
    assert plan is not None
    assert (plan.processes, plan.signal) == (((2, 11),), "SIGCONT")
    assert plan_resume(finding(kind="hang", cause="H1", evidence=evidence[2:])) is None
