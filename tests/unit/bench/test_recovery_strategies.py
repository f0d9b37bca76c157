"""The strategies that a recovery is compared with lose no layer and no micro-batch, and do what they can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actuators.recovery.policy import FailureHistory
from bench.recovering.hours import failures, samples_of
from bench.recovering.strategies import (
    STRATEGIES,
    Adaptive,
    Rerouting,
    ReroutingEvened,
    Templates,
    TemplatesInOrder,
    _repaired,
)
from bench.recovery import started

HISTORY = FailureHistory(n_failures=1, node_s=32 * 3600.0)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.name)
def test_after_each_failure_all_layers_and_the_whole_batch_are_there(strategy) -> None:
    job, state = started(8, 4, 1, 64)
    for node in (3, 9, 17, 21, 30, 1):
        went = strategy.after(job, state.without([node]), HISTORY, 100.0)
        assert went.state is not None
        state = went.state
        assert state.plan.n_micro_batches == 64
        assert {sum(stages) for stages in state.plan.stages} == {32}
        assert node not in state.survivors
        assert job.throughput(state) > 0


@pytest.mark.parametrize(
    ("sizes", "shortest", "expected"),
    [
        ([4, 4, 3], 2, [3, 4, 4]),
        ([4, 1], 2, [2, 3]),
        ([2, 2, 1], 2, [2, 3]),
        ([2, 1], 4, []),
        ([1, 1, 1, 1], 2, [2, 2]),
    ],
)
def test_a_pipeline_without_a_template_borrows_and_else_is_merged(sizes, shortest, expected) -> None:
    assert _repaired(sizes, shortest) == expected


def test_losses_that_are_evened_out_are_never_two_apart() -> None:
    job, state = started(8, 4, 1, 64)
    # All of the first stage: nodes 0 to 7 hold it.
    went = ReroutingEvened().after(job, state.without([0, 1, 2, 3, 4]), HISTORY, 100.0)
    plain = Rerouting().after(job, state.without([0, 1, 2, 3, 4]), HISTORY, 100.0)
    assert went.state is not None
    assert plain.state is not None
    lost = [sum(row[stage] is None for row in went.state.holders) for stage in range(4)]
    assert max(lost) - min(lost) < 2
    assert job.throughput(went.state) > job.throughput(plain.state)
    assert went.downtime_s > plain.downtime_s


def test_an_exchange_in_the_order_of_layers_takes_no_less_than_one_in_rounds() -> None:
    job, state = started(8, 4, 1, 64)
    after = Templates().after(job, state.without([3, 9]), HISTORY, 100.0).state
    assert after is not None
    assert TemplatesInOrder().throughput(job, after) < Templates().throughput(job, after)
    assert TemplatesInOrder().throughput(job, state) == pytest.approx(Templates().throughput(job, state))


def test_nobody_who_chooses_does_less_than_the_better_of_the_two() -> None:
    job, state = started(8, 4, 1, 64)
    lost = failures(1, n_nodes=32, for_s=5 * 3600.0, per_hour=0.10)
    done = {one.name: samples_of(one, job, state, lost, 5 * 3600.0) for one in STRATEGIES}
    assert done["pacehound"] >= 0.98 * max(done["oobleck"], done["recycle"])


def test_without_failures_all_do_the_same_and_a_failure_costs_its_downtime() -> None:
    job, state = started(8, 4, 1, 64)
    undisturbed = {samples_of(one, job, state, [], 100.0) for one in STRATEGIES}
    assert undisturbed == {job.throughput(state) * 100.0}
    slow = replace(job, cluster=replace(job.cluster, restart_s=60.0, reroute_s=60.0))
    disturbed = samples_of(Adaptive(), slow, state, [(0.0, 3)], 50.0)
    assert disturbed == 0.0
