"""Patterns of a few steps: learnt, named by their period, dropped when they stop, never made of noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.suites.step_noise import Noise
from streams.level.changepoint import ChangepointDetector
from tests.fakes.level_in_c import look, new, offset_of, remember


def jitter(seed, n, sd=0.01, correlation=0.3):
    return Noise(sd=sd, correlation=correlation).sample(np.random.default_rng(seed), n)


def learnt(values, first=0):
    record = new("pattern")
    for index, value in enumerate(values, first):
        if remember(record, index, value):
            look(record)
    return record[0]


@pytest.mark.parametrize("period", [2, 3, 7, 10, 20])
def test_every_nth_step_slow_is_a_pattern_of_n(period):
    values = jitter(1, 600)
    values[period - 1 :: period] += math.log(3.0)
    found = learnt(values)
    assert found["period"] == period
    offsets = found["offset"][:period]
    assert offsets[-1] - np.median(offsets[:-1]) == pytest.approx(math.log(3.0), abs=0.03)
    assert np.ptp(offsets[:-1]) < 0.05


def test_a_pattern_of_64_is_learnt_where_it_explains_enough():
    shape = np.random.default_rng(2).normal(0.0, 0.2, 64)
    found = learnt(np.tile(shape, 10)[:600])
    assert found["period"] == 0  # four rows of each phase are too few to tell it from noise
    assert learnt(np.tile(shape[:51], 12)[:600])["period"] == 51


def test_alternating_steps_are_told_by_two_or_a_multiple_of_it():
    for seed in range(6):
        found = learnt(np.tile([0.0, 0.3], 300) + jitter(seed, 600))
        assert found["period"] % 2 == 0
        offsets = found["offset"][: found["period"]]
        assert offsets[1::2].min() - offsets[::2].max() == pytest.approx(0.3, abs=0.05)


def test_a_pattern_that_stops_is_dropped():
    values = jitter(4, 1200)
    values[9:600:10] += 1.0
    assert learnt(values[:600])["period"] == 10
    dropped = learnt(values)
    assert dropped["period"] == 0
    assert offset_of(dropped, 9) == 0.0


def test_a_pattern_that_moves_by_a_step_is_learnt_anew():
    values = jitter(5, 1300)
    values[9:600:10] += 1.0
    values[600 + 4 :: 10] += 1.0
    found = learnt(values)
    assert found["period"] == 10
    assert int(found["offset"][:10].argmax()) == 4


def test_the_phase_goes_by_the_index_and_not_by_the_row():
    values = jitter(6, 600)
    values[9::10] += 1.0
    found = learnt(values, first=3)
    assert (found["period"], int(found["offset"][:10].argmax())) == (10, 2)
    assert offset_of(found, 1002) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_noise_and_spikes_are_no_pattern(correlation):
    for seed in range(8):
        values = jitter(seed, 900, 0.05, correlation)
        is_spike = np.random.default_rng(seed).random(900) < 0.02
        values[is_spike] += 1.5
        assert learnt(values)["period"] == 0


def test_neither_a_change_of_level_nor_a_pause_is_a_pattern():
    values = jitter(7, 900)
    values[450:] += 0.4
    values[200] += 5.0
    assert learnt(values)["period"] == 0


def test_offsets_below_2_percent_are_not_worth_it():
    assert learnt(np.tile([0.0, 0.01], 300))["period"] == 0


@pytest.mark.parametrize("period", [7, 10, 31])
def test_a_pattern_that_begins_and_stops_is_silent_and_a_change_within_it_is_measured_without_it(period):
    values = jitter(8, 2400)
    values[200:2000][period - 1 :: period] += math.log(2.0)
    values[1000:1300] += math.log(1.25)
    detector, found = followed(values)
    assert [change.kind for change in found] == ["onset", "relief"]
    assert [change.step for change in found] == pytest.approx([1000, 1300], abs=8)
    assert found[0].magnitude == pytest.approx(0.25, abs=0.03)
    assert (detector.state, len(detector.pattern_offsets)) == ("healthy", 0)


def followed(values):
    detector = ChangepointDetector()
    found = [detector.update(step, 0, math.exp(value)) for step, value in enumerate(values)]
    return detector, [change for change in found if change is not None]


@pytest.mark.parametrize("seed", range(6))
def test_every_other_step_slow_for_a_while_is_slow_and_relieved_when_it_stops(seed):
    """Half of all steps at twice the time is a slowdown; when it stops nothing sticks."""
    values = jitter(seed, 3000)
    values[200:2000:2] += math.log(2.0)
    detector, found = followed(values)
    told = [change.kind for change in found if change.kind != "speedup"]
    assert told == ["onset", "relief"]
    assert detector.state == "healthy"
    assert detector.baseline_s == pytest.approx(1.0, rel=0.02)
