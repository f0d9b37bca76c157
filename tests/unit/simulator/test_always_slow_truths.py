"""Jobs that are slow from their first step: the same for a seed, as slow as they say, and uneven as they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pacehound.model.topology import Layout
from simulator.job import JobSpec, simulate
from simulator.load import rank_pace, sequence_load
from simulator.suites.always_slow_jobs import CONDITIONS, FAULTS, GROWTHS, SMALL, case_of
from simulator.timing import run

FEW = tuple(layout for layout in SMALL if layout.world_size <= 16)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_makes_iterations_longer_by_what_the_case_says(name: str) -> None:
    case = case_of(name, 0, FEW, steps=8)
    assert case == case_of(name, 0, FEW, steps=8)
    assert GROWTHS[0] - 0.01 <= case.growth <= GROWTHS[1] + 0.01
    took_s, quiet_s = (
        simulate(replace(case.spec, faults=faults)).iteration_times_s.mean() for faults in (case.spec.faults, ())
    )
    assert took_s / quiet_s - 1.0 == pytest.approx(case.growth, abs=1e-6)
    assert bool(case.culprits) != bool(case.links)


def test_every_condition_comes_up_in_turn_and_an_unknown_fault_is_refused() -> None:
    assert [case_of("clean", seed, FEW).condition for seed in range(len(CONDITIONS))] == list(CONDITIONS)
    with pytest.raises(ValueError, match="no fault 'rumours'"):
        case_of("rumours", 0)


def test_ranks_that_share_tensors_and_stages_have_the_same_sequences() -> None:
    spec = JobSpec(layout=Layout(tp=2, dp=3, pp=2), iterations=2, jitter=0.0, sequence_spread=0.3, micro_batches=4)
    assert sequence_load(spec, 0).shape == (4, 3)
    assert not np.array_equal(sequence_load(spec, 0), sequence_load(spec, 1))
    first = run(spec).arrival_s[0][0, 0]  # of the first call: behind one computation
    assert np.allclose(first[:, 0], first[:, 1])
    assert len(np.unique(first[:, 0].round(6))) == 3


def test_the_pace_of_a_rank_wanders_and_what_its_device_is_stays() -> None:
    layout = Layout(dp=64)
    stays = rank_pace(JobSpec(layout=layout, iterations=100, device_spread=0.02))
    assert np.allclose(stays, stays[0])
    assert np.log(stays[0]).std() == pytest.approx(0.02, rel=0.3)
    wanders = np.log(rank_pace(JobSpec(layout=layout, iterations=400, wandering=0.02)))
    assert wanders.std() == pytest.approx(0.02, rel=0.2)
    assert (wanders[:-1] * wanders[1:]).mean() / wanders.var() == pytest.approx(np.exp(-0.1), abs=0.05)


def test_stages_that_differ_are_as_many_as_there_are() -> None:
    with pytest.raises(ValueError, match="2 entries for 4 stages"):
        JobSpec(layout=Layout(pp=4), stage_work=(1.0, 1.2))
