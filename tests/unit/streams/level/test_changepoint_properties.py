"""What holds for ChangepointDetector whatever the series: units, gaps, rubbish, planned textures, many at once."""

from __future__ import annotations

import math
import pickle
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.suites.step_noise import Noise
from simulator.suites.step_times import POPULATIONS
from streams.level.changepoint import ChangepointDetector, ChangepointDetectors
from tests.fakes.examples import examples

ONSET, RELIEF = 700, 900


def changes_of(times_s, *, steps=None, times_ns=None, detector=None):
    detector = detector or ChangepointDetector()
    steps = range(len(times_s)) if steps is None else steps
    times_ns = [0] * len(times_s) if times_ns is None else times_ns
    found = [detector.update(*row) for row in zip(steps, times_ns, times_s, strict=True)]
    return [change for change in found if change is not None]


def steps_of(changes):
    return [(change.kind, change.step, change.detected_step) for change in changes]


def jittered(seed, n=1100, sd=0.01, correlation=0.3):
    return 0.1 * np.exp(Noise(sd=sd, correlation=correlation).sample(np.random.default_rng(seed), n))


def slowed(times_s, factor=1.15):
    slower = times_s.copy()
    slower[ONSET:RELIEF] *= factor
    return slower


@examples(4, deep=500)
@given(st.integers(0, 1000), st.floats(1e-6, 1e6))
def test_the_unit_of_time_does_not_matter(seed, unit):
    times_s = slowed(jittered(seed))
    assert steps_of(changes_of((unit * times_s).tolist())) == steps_of(changes_of(times_s.tolist()))


@examples(4, deep=500)
@given(st.integers(0, 1000), st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -3.0]), max_size=4))
def test_rows_that_are_no_step_time_change_nothing(seed, rubbish):
    times_s = slowed(jittered(seed))
    rng = np.random.default_rng(seed)
    detector, found, n_bad = ChangepointDetector(), [], 0
    for step, value in enumerate(times_s.tolist()):
        for bad in rubbish if rng.random() < 0.2 else ():
            assert detector.update(step, 0, bad) is None
            n_bad += 1
        found.append(detector.update(step, 0, value))
    assert [change for change in found if change is not None] == changes_of(times_s.tolist())
    assert detector.skipped == n_bad


@examples(8)
@given(st.floats(1e-9, 1e9), st.integers(24, 400))
def test_a_constant_series_is_silent(level, n):
    detector = ChangepointDetector()
    assert changes_of([level] * n, detector=detector) == []
    assert detector.state == "healthy"
    assert detector.baseline_s == pytest.approx(level)


@examples(8)
@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(-(10**6), 10**6))
def test_steps_may_have_gaps_and_begin_anywhere(seed, gap, first):
    """Rows 1 apart or 1,000 apart: the changes lie at the same rows."""
    times_s = slowed(jittered(seed)).tolist()
    steps = [first + gap * row for row in range(len(times_s))]
    found = changes_of(times_s, steps=steps)
    assert [((c.step - first) // gap, (c.detected_step - first) // gap) for c in found] == [
        (c.step, c.detected_step) for c in changes_of(times_s)
    ]


def test_times_only_label_a_change():
    times_s = slowed(jittered(1)).tolist()
    backwards = [10**18 - row for row in range(len(times_s))]
    found = changes_of(times_s, times_ns=backwards)
    assert steps_of(found) == steps_of(changes_of(times_s))
    assert [change.time_ns for change in found] == [10**18 - change.step for change in found]
    assert [change.detected_ns for change in found] == [10**18 - change.detected_step for change in found]


@examples(6, deep=750)
@given(st.integers(0, 1000), st.integers(0, 1099), st.floats(1.5, 1000.0))
def test_a_single_pause_anywhere_is_silent(seed, at, factor):
    times_s = jittered(seed)
    times_s[at] *= factor
    assert changes_of(times_s.tolist()) == []


def alternating(times_s):
    times_s[1::2] *= 1.25


def every_tenth(times_s):
    times_s[9::10] *= 5.0


def checkpoints(times_s):
    times_s[99::100] *= 6.0


def evaluations(times_s):
    times_s[249::250] *= 20.0
    for after, factor in enumerate((1.6, 1.3, 1.1, 1.05)):
        times_s[250 + after :: 250] *= factor


def warm_up(times_s):
    times_s[:30] *= 1.5


@pytest.mark.parametrize("texture", [alternating, every_tenth, checkpoints, evaluations, warm_up])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=[pytest.mark.prove]) for seed in (2, 3))])
def test_what_is_planned_is_silent_and_15_percent_in_it_are_found_within_24(texture, seed):
    times_s = jittered(seed)
    texture(times_s)
    assert [change.kind for change in changes_of(times_s.tolist()) if change.kind != "speedup"] == []
    found = [change for change in changes_of(slowed(times_s).tolist()) if change.kind != "speedup"]
    assert [change.kind for change in found] == ["onset", "relief"]
    for change, at in zip(found, (ONSET, RELIEF), strict=True):
        assert at <= change.detected_step <= at + 24
        assert abs(change.step - at) <= 8


@examples(8, deep=1_250)
@given(st.integers(0, 10**6))
def test_changes_are_said_after_they_came_and_in_order(seed):
    """Levels that come and go as they like: nothing is said before it happened, and slowness begins and ends."""
    rng = np.random.default_rng(seed)
    times_s = jittered(seed, 1500, sd=rng.uniform(0.002, 0.08), correlation=rng.uniform(0.0, 0.9))
    for _ in range(rng.integers(0, 6)):
        times_s[rng.integers(0, 1500) : rng.integers(0, 1500)] *= rng.uniform(0.5, 3.0)
    is_slow = False
    last = -1
    for change in changes_of(times_s.tolist()):
        assert change.step <= change.detected_step
        assert change.detected_step > last
        assert 0.0 <= change.probability <= 1.0
        assert is_slow == (change.kind in ("worse", "eased", "relief"))
        is_slow = change.kind in ("onset", "worse", "eased")
        last = change.detected_step


@lru_cache
def some_series(n, names=("four_node", "clean", "drift", "delay_12", "speedup")):
    """`n` series of each of several populations, cut so that all have 1,500 steps; shape `(5 n, 1500)`."""
    rows = []
    for name in names:
        for series in POPULATIONS[name].series(5, n):
            first = max(min((change.onset for change in series.truth.changes), default=0) - 600, 0)
            rows.append(series.log.step_time_s[first : first + 1500][-1500:])
    return np.stack([np.resize(row, 1500) for row in rows])


def by_many(times_s, detectors):
    found = {}
    for step, column in enumerate(np.ascontiguousarray(times_s.T)):
        for series, change in detectors.update(step, step, column):
            found.setdefault(series, []).append(change)
    return found


def test_many_at_once_say_what_each_says_alone():
    times_s = some_series(4).copy()
    times_s[::7, 100:130] = np.nan
    found = by_many(times_s, ChangepointDetectors(len(times_s)))
    for series, row in enumerate(times_s.tolist()):
        assert changes_of(row, times_ns=range(1500)) == found.get(series, [])
    assert len(found) >= 8


def test_the_exact_posterior_gives_the_same_changes():
    times_s = some_series(4)
    quick = by_many(times_s, ChangepointDetectors(len(times_s)))
    exact = by_many(times_s, ChangepointDetectors(len(times_s), exact=True))
    assert {i: steps_of(said) for i, said in quick.items()} == {i: steps_of(said) for i, said in exact.items()}
    assert len(quick) >= 8


@examples(4, deep=400)
@given(st.integers(0, 19), st.lists(st.integers(0, 1499), max_size=4))
def test_one_that_is_pickled_anywhere_goes_on_the_same(series, cut_at):
    row = some_series(4)[series].tolist()
    whole, detector, found = changes_of(row), ChangepointDetector(), []
    for first, last in zip([0, *sorted(cut_at)], [*sorted(cut_at), 1500], strict=True):
        found += changes_of(row[first:last], steps=range(first, last), detector=detector)
        detector = pickle.loads(pickle.dumps(detector))
    assert found == whole
