"""What rerouting costs: no less than the work of the busiest nodes, not much more, and not what equation 13 says."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from actuators.recovery.estimator import equation_13_s, rerouted
from actuators.recovery.models import unit_model
from actuators.recovery.rerouting import extra_loads, routes_of
from actuators.recovery.state import State, megatron_state


def state_with(dp: int, p: int, m: int, lost: list[int]) -> State:
    """So many nodes lost of each stage, all in different pipelines as long as there are some."""
    turn, failed = count(), []
    for stage, n in enumerate(lost):
        failed += [dp * stage + next(turn) % dp for _ in range(n)]
    return megatron_state(dp=dp, stages=(1,) * p, n_micro_batches=dp * m).without(failed)


CASES = [
    (4, 2, 3, [1, 0]),
    (8, 4, 16, [1, 0, 0, 0]),
    (8, 4, 8, [1, 0, 0, 0]),
    (8, 4, 8, [0, 0, 0, 1]),
    (8, 4, 8, [1, 1, 0, 0]),
    (8, 4, 8, [1, 1, 1, 1]),
    (8, 4, 8, [3, 3, 2, 2]),
    (2, 4, 8, [0, 1, 0, 0]),
    (8, 4, 8, [5, 4, 5, 4]),
]


def busiest_s(state: State) -> float:
    """The node that most passes through is busy for so long, whatever the order is, and the ways to it and from it."""
    routes = routes_of(state)
    assert routes is not None
    found = 0.0
    for pipeline, stage in state.place_of.values():
        n = sum((pipeline, stage) in one.places for one in routes)
        found = max(found, 3.0 * (n + stage))  # the last micro-batch goes on backward, the first one came forward
    return found


@pytest.mark.parametrize(("dp", "p", "m", "lost"), CASES)
def test_a_step_is_near_the_busiest_node(dp: int, p: int, m: int, lost: list[int]) -> None:
    state = state_with(dp, p, m, lost)
    took_s = rerouted(state, unit_model(n_layers=p), 0.0).duration_s
    assert busiest_s(state) <= took_s <= 1.25 * busiest_s(state)


@pytest.mark.parametrize(("dp", "p", "m", "lost"), CASES)
def test_in_no_more_memory_than_it_needs_it_takes_a_sixth_more_at_most(
    dp: int, p: int, m: int, lost: list[int]
) -> None:
    state, model = state_with(dp, p, m, lost), replace(unit_model(n_layers=p), activation_bytes=1.0)
    ample_s, tight_s = (rerouted(state, model, 0.0, memory).duration_s for memory in (float("inf"), 1.0))
    assert ample_s <= tight_s <= 7 / 6 * ample_s


def test_one_of_eight_that_is_lost_costs_a_quarter_less_than_whole_pipelines_one_after_the_other_would() -> None:
    """20 units with the micro-batches of a pipeline before those of the next one; 14 is this order's."""
    assert rerouted(state_with(4, 2, 3, [1, 0]), unit_model(n_layers=2), 0.0).duration_s == 14.0


@pytest.mark.parametrize(("dp", "p", "m", "lost"), CASES)
def test_summed_it_is_equation_13(dp: int, p: int, m: int, lost: list[int]) -> None:
    expected = (p + m - 1 + sum(m * f / (dp - f) for f in lost)) * 3.0
    assert equation_13_s(state_with(dp, p, m, lost), unit_model(n_layers=p), 0.0) == pytest.approx(expected)


def test_equation_13_counts_twice_what_it_takes_where_many_are_lost() -> None:
    """Why plans are not priced with it."""
    state, model = state_with(8, 4, 8, [5, 4, 5, 4]), unit_model(n_layers=4)
    assert (rerouted(state, model, 0.0).duration_s, equation_13_s(state, model, 0.0)) == pytest.approx((79.0, 161.0))


def test_where_a_stage_is_lost_everywhere_there_is_no_rerouting() -> None:
    state = state_with(2, 2, 4, [2, 0])
    assert (extra_loads(state), routes_of(state)) == (None, None)
    for priced in (rerouted, equation_13_s):
        with pytest.raises(ValueError, match="no peer"):
            priced(state, unit_model(n_layers=2), 0.0)
