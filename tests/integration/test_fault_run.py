"""Whatever dies under load, every call and every incident is there once; bench/rig/fault_run.py says how we know."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.rig import realjob
from bench.rig.fault_run import FaultRun
from bench.soak import soak

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[FaultRun]:
    """With half the ranks and half the steps of the long one: what does not depend on either costs enough."""
    made = FaultRun(tmp_path, seed=5, load_ranks=8, step_s=0.1)
    yield made
    made.stop()


@pytest.mark.timeout(900)
def test_one_fault_of_each_kind_loses_nothing_and_doubles_nothing(run: FaultRun) -> None:
    """Killed: a worker, the writer, the broker; stopped for twelve seconds: the agent."""
    neighbours = realjob.Neighbours()
    run.start()
    assert len(list(run.inject_faults(4, between_s=(0.5, 2.0)))) == 4
    outcome = run.end()
    assert outcome.jobs_as_embedded >= 1
    with realjob.unless_disturbed(neighbours.disturbance):
        assert outcome.held_by_us_s < 2.0, "the job that is watched must not notice what its control does not"


@pytest.mark.prove
@pytest.mark.timeout(1_800)
def test_twelve_faults_while_hosts_of_large_jobs_speak_at_home(tmp_path: Path) -> None:
    """Jobs of 1,088 ranks on 136 hosts, told call by call: two homes, and what they relay."""
    run = FaultRun(tmp_path, seed=6, load_ranks=1_088, step_s=0.1)
    try:
        run.start()
        assert len(list(run.inject_faults(12, between_s=(2.0, 8.0)))) == 12
        outcome = run.end()
    finally:
        run.stop()
    print(*(f"{name}: {value}" for name, value in dataclasses.asdict(outcome).items()), sep="\n")
    assert outcome.simulated_jobs >= 2


@pytest.mark.prove
def test_a_hundred_faults_outages_of_two_minutes_and_workers_that_come_and_go(tmp_path: Path) -> None:
    """As `python -m bench.soak` does it."""
    outcome = soak(tmp_path, faults=100, seed=1, outage_s=120.0, rebalances=True)
    print(*(f"{name}: {value}" for name, value in dataclasses.asdict(outcome).items()), sep="\n")
    assert outcome.held_by_us_s < 2.0
