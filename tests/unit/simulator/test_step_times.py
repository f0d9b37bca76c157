"""Synthetic step times: the noise is what it says, and the truth is what was done to the series."""

import numpy as np
import pytest

from simulator.suites.step_noise import Noise
from simulator.suites.step_times import POPULATIONS
from tests.fakes.examples import tries


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.8])
def test_the_noise_has_the_spread_and_correlation_that_it_states(correlation):
    noise = Noise(sd=0.02, correlation=correlation)
    sample = noise.sample(np.random.default_rng(1), 200_000)
    assert sample.std() == pytest.approx(0.02, rel=0.03)
    assert np.corrcoef(sample[1:], sample[:-1])[0, 1] == pytest.approx(correlation, abs=0.02)
    means = sample[: 200_000 // 30 * 30].reshape(-1, 30).mean(axis=1)
    assert means.std() == pytest.approx(noise.sd_of_mean(30), rel=0.05)


@pytest.mark.parametrize("name", POPULATIONS)
def test_a_series_depends_on_its_seed_and_number_alone(name):
    population = POPULATIONS[name]
    in_order = list(population.series(seed=3, count=4))
    alone = population.make(3, 2)
    assert np.array_equal(in_order[2].log.step_time_s, alone.log.step_time_s)
    assert in_order[2].truth == alone.truth
    assert not np.array_equal(alone.log.step_time_s, population.make(4, 2).log.step_time_s)
    assert len({series.name for series in in_order}) == 4


@pytest.mark.parametrize("name", POPULATIONS)
def test_every_series_is_positive_finite_and_in_order(name):
    for series in POPULATIONS[name].series(seed=0, count=4):
        assert np.isfinite(series.log.step_time_s).all()
        assert (series.log.step_time_s > 0).all()
        assert (np.diff(series.log.time_ns) > 0).all()


@pytest.mark.parametrize(("name", "n_slow"), [("one_node", 6), ("four_node", 43)])
@pytest.mark.parametrize("seed", tries(1, deep=2))
def test_as_many_jobs_are_slow_as_in_falcons_tables(name, n_slow, seed):
    slow = [series for series in POPULATIONS[name].series(seed) if series.truth.changes]
    assert len(slow) == n_slow
    for series in slow:
        for change in series.truth.changes:
            assert series.truth.end_of(change) - change.onset >= 30
            assert change.magnitude >= 0.99 * series.noise.smallest_change()


@pytest.mark.parametrize("name", ["four_node", "drift", "speedup", "delay_12", "batch_ramp", "schedule"])
def test_the_median_moves_as_the_truth_says(name):
    """Over all changes of a population: the level between onset and end against the steps before."""
    errors = []
    for series in POPULATIONS[name].series(seed=1, count=60):
        times = series.log.step_time_s
        for change in series.truth.changes:
            first, end = change.settled or change.onset, series.truth.end_of(change)
            before = np.median(times[max(change.onset - 100, 0) : change.onset])
            errors.append(np.median(times[first:end]) / before - 1.0 - change.magnitude)
    assert len(errors) >= 10
    assert abs(np.median(errors)) < 0.01


def test_the_runs_of_a_schedule_share_their_levels_and_not_their_noise():
    series = POPULATIONS["schedule"].make(0, 0)
    (earlier,) = series.earlier
    assert not np.array_equal(earlier.step_time_s, series.log.step_time_s)
    for change in series.truth.changes:
        span = slice(change.onset, series.truth.end_of(change))
        ratio = np.median(earlier.step_time_s[span]) / np.median(series.log.step_time_s[span])
        assert ratio == pytest.approx(1.0, abs=0.02)


def test_an_intermittent_series_keeps_its_median():
    for series in POPULATIONS["intermittent"].series(seed=0):
        (change,) = series.truth.changes
        times = series.log.step_time_s
        inside = np.median(times[change.onset : change.end])
        assert inside == pytest.approx(np.median(times[: change.onset]), rel=0.06)
        assert change.magnitude > 0.005
