"""Who holds what, and what it is after nodes are lost or have come."""

from __future__ import annotations

import pytest

from actuators.recovery.state import Plan, State, even_batches, megatron_state
from pacehound.errors import InvalidInput


def test_a_lost_node_leaves_its_place_empty_and_the_others_where_they_are() -> None:
    state = megatron_state(dp=2, stages=(3, 3), n_micro_batches=8).without([3, 0])
    assert state.holders == ((None, 2), (1, None))
    assert state.lost == ((0, 0), (1, 1))
    assert state.survivors == (1, 2)


def test_who_has_come_is_idle_and_holds_nothing() -> None:
    state = megatron_state(dp=1, stages=(3, 3), n_micro_batches=2).joined([7])
    assert state.idle == (7,)
    assert state.held(7) == (0, 0)
    assert state.without([7]).idle == ()


def test_a_node_that_is_not_there_cannot_fail_and_one_that_is_cannot_come() -> None:
    state = megatron_state(dp=2, stages=(3, 3), n_micro_batches=8)
    with pytest.raises(InvalidInput, match="node 9 is none of the 4 nodes"):
        state.without([9])
    with pytest.raises(InvalidInput, match="node 1 belongs to the job already"):
        state.joined([1])


@pytest.mark.parametrize(
    ("stages", "batches", "said"),
    [
        (((2, 2), (2, 1)), (1, 1), "every layer once"),
        (((2, 2), (4, 0)), (1, 1), "each stage one"),
        (((2, 2),), (1, 1), "1 pipelines and 2 shares"),
        (((2, 2), (4,)), (2, 0), "needs a micro-batch"),
    ],
)
def test_a_plan_that_drops_layers_or_leaves_a_pipeline_without_work_is_refused(
    stages: tuple[tuple[int, ...], ...], batches: tuple[int, ...], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        Plan(kind="asymmetric", stages=stages, batches=batches)


def test_a_node_has_one_place() -> None:
    plan = Plan(kind="symmetric", stages=((2, 2),), batches=(1,))
    with pytest.raises(InvalidInput, match="two places"):
        State(plan=plan, holders=((4, 4),))


def test_a_batch_is_divided_evenly_and_wholly() -> None:
    assert even_batches(10, 4) == (3, 3, 2, 2)
    with pytest.raises(InvalidInput, match="3 micro-batches cannot be divided among 4"):
        megatron_state(dp=4, stages=(1,), n_micro_batches=3)
