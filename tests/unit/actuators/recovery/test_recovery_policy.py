"""Which plan is taken: by what it does until the next failure, which the failures so far tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from actuators.recovery.models import profile_of
from actuators.recovery.policy import FailureHistory, choose, score
from actuators.recovery.profile import ClusterProfile
from actuators.recovery.state import State, megatron_state

LLAMA = profile_of("llama2-7b", flops=313e12, sequence=2048)
CLUSTER = ClusterProfile(
    memory_bytes=64 * 2**30, bandwidth_bytes_per_s=25e9, latency_s=2e-5, restart_s=2.0, reroute_s=0.5
)
SELDOM = FailureHistory(n_failures=1, node_s=32 * 24 * 3600.0)


def job(dp: int = 8, n_micro_batches: int = 64) -> State:
    return megatron_state(dp=dp, stages=(8, 8, 8, 8), n_micro_batches=n_micro_batches)


def test_the_best_plan_is_the_one_that_does_most_until_the_next_failure() -> None:
    found = choose(job().without([3, 9]), LLAMA, CLUSTER, SELDOM)
    assert found.chosen is not None
    for option in found.options:
        expected = score(option.estimate.throughput, option.downtime_s, found.until_next_s)
        assert option.score == pytest.approx(expected)
        assert option.score <= found.chosen.score


def test_where_failures_come_fast_it_reroutes_and_where_they_do_not_it_plans_anew() -> None:
    slow_to_restart = replace(CLUSTER, restart_s=120.0)
    state = job().without([3, 4, 5])
    often = choose(state, LLAMA, slow_to_restart, FailureHistory(n_failures=40, node_s=32 * 3600.0))
    seldom = choose(state, LLAMA, slow_to_restart, SELDOM)
    assert often.chosen is not None
    assert seldom.chosen is not None
    assert often.chosen.state.plan.kind == "reroute"
    assert often.chosen.restoration is None
    assert seldom.chosen.restoration is not None
    assert seldom.chosen.estimate.throughput > often.chosen.estimate.throughput
    assert "it pays after" in seldom.reason


def test_a_stage_that_is_lost_everywhere_cannot_be_rerouted_and_needs_a_checkpoint() -> None:
    state = megatron_state(dp=2, stages=(16, 16), n_micro_batches=8).without([0, 1])
    assert choose(state, LLAMA, CLUSTER, SELDOM).chosen is None
    kept = replace(CLUSTER, checkpoint_bytes_per_s=1e9, checkpoint_age_s=300.0)
    found = choose(state, LLAMA, kept, SELDOM)
    assert found.chosen is not None
    assert found.chosen.downtime_s > 300.0
    assert "reroute" not in {option.state.plan.kind for option in found.options}


def test_where_no_node_has_the_memory_it_says_so() -> None:
    found = choose(job().without([3]), LLAMA, replace(CLUSTER, memory_bytes=2**30), SELDOM)
    assert found.chosen is None
    assert "no plan fits into 1 GiB" in found.reason


def test_nodes_that_come_are_put_to_work_where_it_pays() -> None:
    found = choose(job().without([3]).joined([40, 41, 42]), LLAMA, CLUSTER, SELDOM)
    assert found.chosen is not None
    assert found.chosen.state.survivors == (*(n for n in range(32) if n != 3), 40, 41, 42)
    assert set(found.chosen.state.place_of) & {40, 41, 42}


def test_a_job_that_lost_nothing_may_stay_as_it_is() -> None:
    found = choose(job().joined([40]).without([40]), LLAMA, CLUSTER, FailureHistory(n_failures=9, node_s=3600.0))
    assert found.chosen is not None
    assert (found.chosen.downtime_s, found.chosen.state.plan.kind) == (0.0, "symmetric")


def test_a_second_failure_is_met_from_the_state_that_the_first_one_left() -> None:
    first = choose(job().without([3]), LLAMA, CLUSTER, SELDOM).chosen
    assert first is not None
    second = choose(first.state.without([17, 22]), LLAMA, CLUSTER, SELDOM).chosen
    assert second is not None
    assert second.state.plan.n_micro_batches == 64
    assert set(second.state.survivors) == set(range(32)) - {3, 17, 22}
    assert second.estimate.throughput < first.estimate.throughput


@pytest.mark.parametrize(
    ("times", "expected"), [([], 2 * 7200 / 0.5 / 2), ([3600.0], (7200 + 3600) / 1.5 / 2), ([9e9], 2 * 7200 / 0.5 / 2)]
)
def test_the_time_to_the_next_failure_is_that_of_the_rate_that_was_seen(times: list[float], expected: float) -> None:
    history = FailureHistory.of(times, n_nodes=2, since_s=0.0, now_s=7200.0)
    assert history.until_next_s(2) == pytest.approx(expected)
    assert history.until_next_s(4) == pytest.approx(expected / 2)


def test_without_anything_watched_only_what_costs_nothing_is_worth_anything() -> None:
    assert score(10.0, 1.0, FailureHistory(n_failures=1, node_s=0.0).until_next_s(8)) == 0.0
