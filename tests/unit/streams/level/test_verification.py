"""Levels, their noise, and the bars: each function on arrays whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.suites.step_noise import Noise
from tests.fakes.level_in_c import level, locate, measure, new, persists, split, standard_error, strays


def sample(seed, n, sd=0.02, correlation=0.0):
    return Noise(sd=sd, correlation=correlation).sample(np.random.default_rng(seed), n)


def measured(log_times, is_averaged=False):
    into = new("measure")
    measure(log_times, is_averaged, into)
    return into[0]


def test_a_level_is_moved_neither_by_a_pause_nor_by_one_more_of_two_kinds():
    assert level(np.array([0.0] * 9 + [4.0])) == 0.0
    even, odd = np.tile([0.0, 0.3], 8), np.tile([0.0, 0.3], 8)[:-1]
    assert level(even) == pytest.approx(0.15)
    assert level(odd) == pytest.approx(0.15, abs=0.02)


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.8])
def test_noise_and_correlation_are_those_of_an_ar1_process(correlation):
    told = [measured(sample(seed, 3000, 0.02, correlation)) for seed in range(10)]
    assert np.mean([m["noise"] for m in told]) == pytest.approx(0.02, rel=0.1)
    assert np.mean([m["correlation"] for m in told]) == pytest.approx(correlation, abs=0.07)


def test_a_jump_of_the_level_does_not_pass_for_noise():
    noise = sample(1, 1000)
    jumped = noise + np.repeat([0.0, 0.5], 500)
    assert measured(jumped)["noise"] == pytest.approx(measured(noise)["noise"], rel=0.1)
    assert np.std(jumped) > 10 * measured(jumped)["noise"]


def test_spikes_do_not_pass_for_noise():
    noise = sample(2, 1000)
    spiky = noise.copy()
    spiky[::100] += 3.0
    assert measured(spiky)["noise"] == pytest.approx(measured(noise)["noise"], rel=0.15)


def test_of_averaged_rows_the_correlation_is_not_asked():
    told = measured(sample(3, 100, 0.02, 0.8), is_averaged=True)
    assert told["correlation"] == 0.5


def test_the_noise_of_a_constant_stretch_is_the_floor():
    told = measured(np.zeros(30))
    assert (told["level"], told["noise"], told["n"]) == (0.0, 0.002, 30)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("n", [10, 30, 64])
def test_the_standard_error_is_the_scatter_of_the_means(correlation, n):
    means = sample(4, 400 * n, 0.02, correlation).reshape(400, n).mean(axis=1)
    assert standard_error(0.02, correlation, 10**6, n) == pytest.approx(means.std(), rel=0.15)


def test_little_knowledge_makes_the_standard_error_larger():
    errors = [standard_error(0.02, 0.3, known, 20) for known in (24, 96, 384, 10**6)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1.05 * errors[-1]


def test_strays_see_what_the_model_does_not():
    steady = sample(5, 384)
    waves = steady + 0.1 * np.sin(np.arange(384) / 15)
    assert strays(waves, 12) > 5 * strays(steady, 12)
    assert strays(steady[:39], 10) == 0.0


@pytest.mark.parametrize(
    ("after", "is_long", "answer"),
    [
        ([1.0] * 10, False, True),
        ([1.0] * 6 + [0.0] * 4, False, False),  # a burst that is over
        ([1.0] * 6 + [0.0] * 3 + [1.0], False, False),
        ([0.0] * 3 + [1.0] * 7, False, True),
        ([0.0, 1.0] * 12, False, False),
        ([0.0, 1.0] * 12, True, True),  # two kinds of steps, of which one lies beyond the middle
        ([0.0] * 9 + [1.0], True, False),
    ],
)
def test_a_level_persists_when_most_and_the_last_lie_beyond_the_middle(after, is_long, answer):
    after = np.array(after)
    assert persists(after, 0.5, 1.0, is_long) is answer
    assert persists(-after, -0.5, -1.0, is_long) is answer


@pytest.mark.parametrize("proposed", [12, 16, 20, 24])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_change_is_located_whatever_was_proposed(proposed, sign):
    for seed in range(10):
        log_times = sample(seed, 100) + sign * np.repeat([0.0, 0.2], [84, 16])
        assert abs(locate(0.0, log_times, proposed, False) - 16) <= 1


def test_a_spike_before_the_change_is_not_its_beginning():
    log_times = np.repeat([0.0, 0.2], [84, 16])
    log_times[78] = 3.0
    assert locate(0.0, log_times, 16, False) == 16


def test_a_split_finds_the_newer_of_two_levels():
    for seed in range(10):
        log_times = sample(seed, 40) + np.repeat([0.0, 0.15], [25, 15])
        assert abs(split(log_times, 3, 30) - 15) <= 1


@pytest.mark.parametrize("seed", range(40))
def test_a_split_is_the_best_by_the_level_of_either_side(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 80))
    log_times = rng.normal(0.0, 0.1, n) + np.where(np.arange(n) < rng.integers(0, n + 1), 0.0, 0.2)
    log_times = np.round(log_times, 1) if seed % 2 else log_times  # many are alike

    def left(n_after):
        older, newer = log_times[: n - n_after], log_times[n - n_after :]
        return sum(np.abs(np.concatenate([older - level(older), newer - level(newer)])).tolist())

    splits = {n_after: left(n_after) for n_after in range(3, n - 2)}
    assert split(log_times, 3, n) == min(splits, key=splits.__getitem__, default=3)


def test_a_level_of_anything_is_finite():
    assert math.isfinite(level(np.array([1e300, -1e300, 0.0])))
