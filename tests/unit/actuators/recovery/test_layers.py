"""The layers of stages: nobody faster, nobody out of memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.recovery.estimator import pipeline_s, stage_layers
from actuators.recovery.layers import split_layers
from actuators.recovery.memory import stage_bytes
from tests.fakes.examples import examples
from tests.unit.actuators.recovery.strategies_of_states import model


def all_splits(n_layers: int, n_stages: int) -> list[tuple[int, ...]]:
    return [one for one in product(range(1, n_layers + 1), repeat=n_stages) if sum(one) == n_layers]


@examples(25)
@given(st.integers(1, 4), st.integers(4, 9), st.sampled_from([0.0, 0.65, 2.5]), st.floats(20.0, 90.0))
def test_no_split_that_fits_has_a_faster_slowest_stage(p: int, n_layers: int, head: float, memory: float) -> None:
    one = model(n_layers, head_layers=head, embedding_layers=head)
    fits = [
        split
        for split in all_splits(n_layers, p)
        if all(stage_bytes(one, p, i, n, p - i) <= memory for i, n in enumerate(split))
    ]
    found = split_layers(one, p, memory)
    assert (found is None) == (not fits)
    if found is not None:
        assert found in fits
        assert max(stage_layers(one, found)) == min(max(stage_layers(one, split)) for split in fits)


@pytest.mark.parametrize("head", [0.0, 0.65])
@pytest.mark.parametrize("p", [2, 3, 4])
def test_of_all_splits_none_takes_a_fiftieth_less_time(p: int, head: float) -> None:
    """Odyssey tries each; the greedy one is the fastest or next to it."""
    one = model(10, head_layers=head)
    found = split_layers(one, p, 1e9)
    assert found is not None
    for m in (4, 12):
        fastest = min(pipeline_s(one, split, m, 0.01) for split in all_splits(10, p))
        assert pipeline_s(one, found, m, 0.01) <= 1.02 * fastest


def test_the_first_stages_have_fewer_layers_where_memory_is_short() -> None:
    one = replace(model(8), activation_bytes=4.0)
    assert split_layers(one, 2, 1e9) == (4, 4)
    assert split_layers(model(9), 2, 1e9) == (5, 4)
    assert split_layers(one, 2, 60.0) == (3, 5)
    assert split_layers(one, 2, 40.0) is None


def test_there_are_no_more_stages_than_layers() -> None:
    assert split_layers(model(3), 4, 1e9) is None
