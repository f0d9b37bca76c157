"""The simulated experiments on mitigation: the model of an iteration, and who gains what in it."""

from __future__ import annotations

import numpy as np
import pytest

from bench.mitigation import LARGE, OWN_PRICES, SIXTY_FOUR, _calibrated
from bench.rig.hybrid_job import Faults, job_of
from bench.rig.mitigated_run import FailSlow, Policy, run_trace
from pacehound.model.topology import Layout

PLACES = np.arange(16)


def small(**changes):
    layout = Layout(dp=4, pp=4)
    how = {"per_host": 4, "per_replica": 8, "iteration_s": 2.0, "reduce_share": 0.1}
    return job_of(layout, **(how | changes))


def test_a_healthy_iteration_takes_what_was_asked():
    assert small().iteration_s(PLACES, small().even, Faults()) == pytest.approx(2.0)


def test_a_replica_is_as_slow_as_its_slowest_stage():
    job = small()
    one = job.iteration_s(PLACES, job.even, Faults(ranks={1: 2.0}))
    assert one > 2.0 * 1.5
    assert job.iteration_s(PLACES, job.even, Faults(ranks={1: 2.0, 2: 2.0})) == pytest.approx(one)
    assert job.iteration_s(PLACES, job.even, Faults(ranks={1: 2.0, 5: 2.0})) > one


def test_a_slow_link_counts_only_where_a_ring_or_a_pipeline_runs_over_it():
    job = small(per_host=1)
    on_ring = job.iteration_s(PLACES, job.even, Faults(links={("h0", "h1"): 5.0}))
    assert on_ring == pytest.approx(2.0 + 4 * job.reduce_s)
    assert job.iteration_s(PLACES, job.even, Faults(links={("h0", "h5"): 5.0})) == pytest.approx(2.0)
    late = job.iteration_s(PLACES, job.even, Faults(links={("h12", "h13"): 5.0}))
    assert late < on_ring, "the last stage's gradients are there first"


def test_nobody_acts_on_a_healthy_job_and_a_fault_is_acted_on_after_it_is_known():
    job = small()
    assert run_trace(job, [], 600.0, Policy(prices=OWN_PRICES)).actions == ()
    assert run_trace(job, [], 600.0, None).iterations == pytest.approx(300.0)
    short = FailSlow(begin_s=100.0, end_s=110.0, times=2.0, rank=3)
    assert run_trace(job, [short], 600.0, Policy(prices=OWN_PRICES)).actions == ()
    long = FailSlow(begin_s=100.0, end_s=400.0, times=2.0, rank=3)
    assert run_trace(job, [long], 600.0, Policy(prices=OWN_PRICES)).actions[0] == "micro-batches"


def test_what_was_done_about_a_fault_is_undone_when_it_is_over():
    job = small()
    fault = FailSlow(begin_s=100.0, end_s=400.0, times=2.0, rank=3)
    alone = run_trace(job, [fault], 5000.0, Policy(prices=OWN_PRICES))
    assert alone.actions[-1] == "micro-batches"
    assert alone.iterations > 2500 - 0.5 * (2500 - run_trace(job, [fault], 5000.0, None).iterations)


@pytest.mark.parametrize(
    ("experiment", "least_reduction", "least_ratio"), [(SIXTY_FOUR, 0.75, 1.0), (LARGE, 0.60, 1.69)]
)
def test_more_is_regained_than_falcon_has_published(experiment, least_reduction, least_ratio):
    """Without any history; docs/mitigation.md has all seeds."""
    per_iteration_s = 60 / experiment.healthy_per_min
    job = job_of(experiment.layout, per_host=8, per_replica=32, iteration_s=per_iteration_s, reduce_share=0.1)
    trace, horizon_s = _calibrated(job, experiment, 0)
    untreated = run_trace(job, trace, horizon_s, None).iterations
    assert horizon_s / per_iteration_s / untreated == pytest.approx(experiment.untreated, rel=0.02)
    treated = run_trace(job, trace, horizon_s, Policy(prices=OWN_PRICES)).iterations
    assert treated - untreated >= least_reduction * (horizon_s / per_iteration_s - untreated)
    assert treated / untreated >= least_ratio
