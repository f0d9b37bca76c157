"""Small and slow slowdowns, through the detector and alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.suites.step_noise import Noise
from streams.level.changepoint import ChangepointDetector
from tests.fakes.examples import tries
from tests.fakes.level_in_c import bar, drop_since, highest_quarter, new, onset, push, rows_per_block


def jittered(seed, n, sd=0.006, correlation=0.4):
    return Noise(sd=sd, correlation=correlation).sample(np.random.default_rng(seed), n)


def changes_of(log_times, n_steps=1, **more):
    detector = ChangepointDetector(**more)
    found = [detector.update(row * n_steps, row, math.exp(x), n_steps) for row, x in enumerate(log_times)]
    return [change for change in found if change is not None]


@pytest.mark.parametrize("over", [100, 500, 1000])
def test_the_onset_of_a_ramp_is_located_within_100_steps_and_its_relief_is_seen(over):
    for seed in tries(2, deep=4):
        ramp = np.clip((np.arange(5000) - 2000) / over, 0.0, 1.0) * (np.arange(5000) < 4000)
        found = changes_of(jittered(seed, 5000) + math.log(1.08) * ramp)
        assert found[0].kind == "onset"
        assert found[0].is_small
        assert abs(found[0].step - 2000) <= 100 + over // 4
        assert found[0].detected_step <= 2000 + over + 200
        assert (found[-1].kind, abs(found[-1].step - 4000) <= 24) == ("relief", True)
        assert [change.kind for change in found].count("onset") == 1


@pytest.mark.parametrize(("size", "within"), [(0.085, 64), (0.065, 100), (0.05, 300)])
def test_what_is_small_must_last_longer(size, within):
    delays = []
    for seed in tries(2, deep=4):
        log_times = jittered(seed, 2600)
        log_times[2000:] += math.log1p(size)
        (found,) = changes_of(log_times)
        assert (found.kind, found.is_small) == ("onset", True)
        assert abs(found.step - 2000) <= 32
        assert found.magnitude == pytest.approx(size, abs=0.015)
        delays.append(found.detected_step - 2000)
    assert max(delays) <= within


def test_below_4_percent_nothing_is_said():
    log_times = jittered(1, 4000)
    log_times[2000:] += math.log(1.03)
    assert changes_of(log_times) == []


def test_small_changes_are_looked_for_only_when_asked():
    log_times = jittered(1, 4000)
    log_times[2000:] += math.log(1.06)
    assert changes_of(log_times, small_changes=False) == []


def test_a_return_from_a_fast_stretch_is_no_slowdown():
    log_times = jittered(2, 4000)
    log_times[1500:1700] -= math.log(1.07)
    assert changes_of(log_times) == []


def test_slow_waves_are_no_shift():
    for seed in tries(1, deep=3):
        log_times = jittered(seed, 6000) + 0.03 * np.sin(np.arange(6000) / 90.0)
        assert changes_of(log_times) == []


def test_rows_of_50_steps_are_blocks_themselves():
    log_times = jittered(3, 400, sd=0.004)
    log_times[250:] += math.log(1.06)
    (found,) = changes_of(log_times, n_steps=50)
    assert found.is_small
    assert abs(found.step - 250 * 50) <= 100


def test_a_block_holds_eight_steps_or_one_row():
    assert [rows_per_block(float(n)) for n in (1, 2, 3, 8, 50)] == [8, 4, 2, 1, 1]


def test_the_bar_falls_with_the_length_of_the_window():
    bars = [math.expm1(bar(n, False)) for n in (3, 4, 8, 16, 64)]
    assert bars == pytest.approx([0.08, 0.06, 0.06, 0.04, 0.04])
    assert math.expm1(bar(7, True)) == pytest.approx(0.08)


def blocks(values):
    record = new("drift")
    completed = [push(record, step, 10 * step, value, 1.0) for step, value in enumerate(values)]
    return record, completed


def test_blocks_are_levels_of_their_steps_and_kept_within_bounds():
    (record,), completed = blocks(np.repeat(np.arange(1000.0), 8))
    assert [i for i, is_complete in enumerate(completed) if is_complete][:2] == [7, 15]
    assert 256 <= record["n"] <= 512
    last = slice(record["n"] - 3, record["n"])
    assert record["value"][last].tolist() == [997.0, 998.0, 999.0]
    assert record["step"][last].tolist() == [7976, 7984, 7992]
    assert record["time_ns"][last].tolist() == [79760, 79840, 79920]


def test_blocks_since_an_onset_are_forgotten():
    record, _ = blocks(np.zeros(84))
    drop_since(record, 40)
    assert (record["n"][0], record["n_pending"][0]) == (5, 0)
    drop_since(record, -1)
    assert record["n"][0] == 0


def test_the_base_is_the_highest_of_four_quarters():
    assert highest_quarter(np.repeat([0.0, 0.02, 0.05, 0.01], 16)) == pytest.approx(0.05)


def test_a_step_and_a_ramp_are_told_apart():
    steady = np.repeat([0.0, 0.06], [100, 30]) + jittered(4, 130, sd=0.001)
    first, is_ramp = onset(steady, 0.0, 64)
    assert (abs(first - 100) <= 1, is_ramp) == (True, 0)
    rising = np.clip((np.arange(160) - 100) / 60, 0.0, 1.0) * 0.06 + jittered(5, 160, sd=0.001)
    first, is_ramp = onset(rising, 0.0, 128)
    assert (abs(first - 100) <= 6, is_ramp) == (True, 1)
