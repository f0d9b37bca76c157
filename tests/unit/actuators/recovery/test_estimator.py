"""Times and memory of plans, against what can be reckoned by hand and against the order of 1F1B run step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.recovery.estimator import (
    downtime_s,
    estimate,
    exchange_s,
    fill_and_cycle_s,
    one_f_one_b_s,
    pipeline_s,
    symmetric_step_s,
)
from actuators.recovery.memory import peak_bytes, stage_bytes
from actuators.recovery.models import unit_model
from actuators.recovery.restorer import Restoration, restore
from actuators.recovery.state import Plan, megatron_state
from tests.fakes.examples import examples
from tests.unit.actuators.recovery.strategies_of_states import CLUSTER, compositions, model, state_of


@given(st.integers(1, 8), st.integers(1, 24), st.floats(0.1, 3.0), st.floats(0.1, 6.0))
def test_dynamic_programming_gives_equation_9_where_all_stages_are_alike(p: int, m: int, f: float, b: float) -> None:
    assert one_f_one_b_s((f,) * p, (b,) * p, m) == pytest.approx(symmetric_step_s(p, m, f, b))


def slowly(forward_s: tuple[float, ...], backward_s: tuple[float, ...], m: int, hop_s: float) -> float:
    """Equation 11 as it is written: the order of each stage listed, and each end asked for by recursion."""
    p = len(forward_s)
    orders = []
    for i in range(p):
        warm = min(m, p - i - 1)
        order = [("f", j) for j in range(warm)]
        for j in range(m):
            order += [("f", warm + j)] * (warm + j < m) + [("b", j)]
        orders.append(order)
    ends: dict[tuple[str, int, int], float] = {}

    def end(kind: str, i: int, j: int) -> float:
        if (kind, i, j) not in ends:
            at = orders[i].index((kind, j))
            before = end(orders[i][at - 1][0], i, orders[i][at - 1][1]) if at else 0.0
            of = (i - 1 if kind == "f" else i + 1), j
            needed = end(kind, *of) + hop_s if 0 <= of[0] < p else (end("f", i, j) if kind == "b" else 0.0)
            ends[kind, i, j] = max(before, needed) + (forward_s if kind == "f" else backward_s)[i]
        return ends[kind, i, j]

    return max(end("b", i, m - 1) for i in range(p))


@examples(25)
@given(
    st.lists(st.tuples(st.floats(0.5, 3.0), st.floats(0.5, 6.0)), min_size=1, max_size=5),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.3, 4.0]),
)
def test_the_sweep_over_stages_gives_what_equation_11_does(
    times: list[tuple[float, float]], m: int, hop: float
) -> None:
    forward_s, backward_s = zip(*times, strict=True)
    assert one_f_one_b_s(forward_s, backward_s, m, hop) == pytest.approx(slowly(forward_s, backward_s, m, hop))


@examples(25)
@given(compositions(16, 6), st.integers(1, 24), st.sampled_from([0.0, 0.4]), st.sampled_from([0.0, 0.65]))
def test_the_line_that_the_search_reckons_with_is_close_once_a_pipeline_is_full_and_near_for_even_stages(
    stages: tuple[int, ...], m: int, hop: float, head: float
) -> None:
    small = model(16, head_layers=head)
    fill_s, cycle_s = fill_and_cycle_s(small, stages, hop)
    exact_s = pipeline_s(small, stages, m, hop)
    if m >= 2 * len(stages) or max(stages) - min(stages) <= 1:
        assert fill_s + (m - 1) * cycle_s == pytest.approx(exact_s, rel=0.01 if m >= 2 * len(stages) else 0.15)


def test_a_step_is_the_slowest_pipeline_and_the_exchange() -> None:
    plan = Plan(kind="asymmetric", stages=((4, 4), (8,)), batches=(3, 1))
    state, small = state_of(plan), model()
    found = estimate(state, small, CLUSTER)
    assert found.compute_s == pytest.approx(max(pipeline_s(small, (4, 4), 3, 0.011), 24.0))
    assert found.exchange_s == exchange_s(state, small, CLUSTER)
    assert found.throughput == pytest.approx(4 / found.step_s)


def test_an_exchange_of_two_takes_what_a_ring_does_and_dependent_ones_wait() -> None:
    small = unit_model(n_layers=4)
    small = replace(small, gradient_bytes=10.0)
    even = state_of(Plan(kind="symmetric", stages=((2, 2), (2, 2)), batches=(1, 1)))
    # 20 bytes among two: each sends half of them twice, at 10 bytes a second.
    assert exchange_s(even, small, replace(CLUSTER, latency_s=0.0)) == pytest.approx(2.0)
    uneven = state_of(Plan(kind="asymmetric", stages=((2, 2), (4,)), batches=(1, 1)))
    assert exchange_s(uneven, small, replace(CLUSTER, latency_s=0.0)) == pytest.approx(4.0)


def test_peak_memory_is_that_of_equation_14() -> None:
    small = model()
    # 4 layers of 8 bytes, and for the first of two stages two micro-batches of half a byte in each.
    assert stage_bytes(small, 2, 0, 4, 2) == 4 * 8 + 2 * 4 * 0.5
    state = megatron_state(dp=2, stages=(4, 4), n_micro_batches=8)
    assert peak_bytes(state, small) == 36.0
    # The peer of a lost node has twice as many micro-batches under way.
    assert peak_bytes(state.without([0]), small) == 40.0


def test_without_a_live_replica_all_comes_from_the_checkpoint_or_not_at_all() -> None:
    state = megatron_state(dp=2, stages=(4, 4), n_micro_batches=8).without([0, 1])
    plan = Plan(kind="symmetric", stages=((4, 4),), batches=(8,))
    restoration = restore(state, plan, model())
    assert restoration.moved_bytes == 0.0
    assert {move.source for move in restoration.moves} == {None}
    assert downtime_s(restoration, CLUSTER) == float("inf")
    kept = replace(CLUSTER, checkpoint_bytes_per_s=7.0, checkpoint_age_s=100.0)
    assert downtime_s(restoration, kept) == pytest.approx(2.0 + 4 * 7.0 / 7.0 + 100.0)


def test_downtime_is_the_restart_and_the_busiest_node() -> None:
    state = state_of(Plan(kind="symmetric", stages=((4, 4),), batches=(1,)))
    moved = Restoration(state=state, moves=(), moved_bytes=90.0, busiest_bytes=50.0, read_bytes=0.0)
    assert downtime_s(moved, CLUSTER) == 2.0 + 5.0
