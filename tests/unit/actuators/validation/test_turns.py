"""Ranks that share a machine's processors compute in turns; everybody once in a repetition, in few turns."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.validation.thresholds import MOST_TURNS
from actuators.validation.turns import move_to_another_processor, turns_of

MACHINES = ["a", "b", "c"]


@given(
    st.lists(st.sampled_from(MACHINES), min_size=1, max_size=60),
    st.fixed_dictionaries({machine: st.integers(1, 128) for machine in MACHINES}),
    st.integers(0, 20),
)
def test_everybody_computes_once_in_few_turns(machines: list[str], processors: dict[str, int], repetition: int) -> None:
    turns = turns_of(machines, processors, repetition)
    assert sorted(rank for turn in turns for rank in turn) == list(range(len(machines)))
    assert len(turns) <= MOST_TURNS
    assert turns == turns_of(machines, processors, repetition), "all ranks draw alike"


@given(st.integers(1, 8), st.integers(1, 16), st.integers(0, 20))
def test_half_of_a_machine_is_left_to_what_else_runs_there(n_ranks: int, processors: int, repetition: int) -> None:
    turns = turns_of(["a"] * n_ranks, {"a": processors}, repetition)
    assert max(map(len, turns)) <= max(processors // 2, 1)


def test_the_order_changes_from_one_repetition_to_the_next() -> None:
    orders = {turns_of(["a"] * 4, {"a": 2}, repetition) for repetition in range(8)}
    assert len(orders) > 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processors cannot be chosen here")
def test_a_rank_may_use_the_processors_that_it_could_use_before() -> None:
    may_use = os.sched_getaffinity(0)
    try:
        for mine in (may_use, {min(may_use)}):
            os.sched_setaffinity(0, mine)
            for repetition in range(5):
                move_to_another_processor(repetition)
                assert os.sched_getaffinity(0) == mine
    finally:
        os.sched_setaffinity(0, may_use)
