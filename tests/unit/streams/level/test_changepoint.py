"""ChangepointDetector on synthetic series: silence on noise of many kinds, bounded delays, a healthy memory."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.short_job import FEWEST_ITERATIONS
from streams.level.changepoint import ChangepointDetector, ChangepointDetectors
from streams.level.records import record
from tests.fakes.examples import examples, tries

BASE_S = 0.055


def correlated(rng, n, sigma, rho):
    shocks = rng.normal(0.0, sigma * math.sqrt(1.0 - rho**2), n)
    values = np.empty(n)
    values[0] = rng.normal(0.0, sigma)
    for i in range(1, n):
        values[i] = rho * values[i - 1] + shocks[i]
    return values


def spiky(rng, n):
    values = rng.normal(0.0, 0.02, n)
    is_spike = rng.random(n) < 0.02
    values[is_spike] += np.log(rng.uniform(2.0, 50.0, is_spike.sum()))
    return values


def every_tenth(rng, n):
    values = rng.normal(0.0, 0.006, n)
    values[9::10] += math.log(5.2)
    return values


def alternating(rng, n):
    values = rng.normal(0.0, 0.01, n)
    values[::2] += math.log(1.47)
    return values


def two_cores(rng, n):
    """A shared 2-core machine: jitter of 7 %, skewed and correlated, spikes to x3, bursts of 3 to 6 slow steps."""
    values = correlated(rng, n, 0.06, 0.4) + rng.gamma(1.0, 0.03, n)
    is_spike = rng.random(n) < 0.02
    values[is_spike] += np.log(rng.uniform(2.0, 3.0, is_spike.sum()))
    start = int(rng.exponential(120.0)) + 25
    while start < n - 6:
        values[start : start + rng.integers(3, 7)] += math.log(rng.uniform(1.2, 2.5))
        start += int(rng.exponential(120.0)) + 25
    return values


def warm_up(rng, n):
    values = rng.normal(0.0, 0.02, n)
    values[:6] += np.log([50.0, 5.0, 2.0, 1.5, 1.3, 1.1])
    return values


NOISE = {
    "white 3 %": lambda rng, n: rng.normal(0.0, 0.03, n),
    "correlated 3 %": lambda rng, n: correlated(rng, n, 0.03, 0.8),
    "correlated 5 %": lambda rng, n: correlated(rng, n, 0.05, 0.8),
    "jitter 10 %": lambda rng, n: correlated(rng, n, 0.10, 0.3),
    "spikes": spiky,
    "every tenth slow": every_tenth,
    "alternating": alternating,
    "two cores": two_cores,
    "warm-up": warm_up,
}


def changes_of(log_times, detector=None):
    detector = detector or ChangepointDetector()
    found = []
    for step, x in enumerate(log_times):
        change = detector.update(step, step * 55_000_000, BASE_S * math.exp(x))
        if change is not None:
            found.append(change)
    return found


def with_slowdown(kind, seed, magnitude, lasts=100):
    rng = np.random.default_rng(seed)
    onset = int(rng.integers(80, 200))
    log_times = NOISE[kind](rng, onset + lasts + 100)
    log_times[onset : onset + lasts] += math.log1p(magnitude)
    return log_times, onset, onset + lasts


def false_alarms(kind, seeds, n_steps=1000):
    return sum(bool(changes_of(NOISE[kind](np.random.default_rng(seed), n_steps))) for seed in seeds)


@pytest.mark.parametrize("kind", NOISE)
def test_clean_noise_is_silent(kind):
    assert false_alarms(kind, range(6)) == 0


@pytest.mark.prove
@pytest.mark.parametrize("kind", NOISE)
def test_clean_noise_is_nearly_always_silent_over_200_000_steps(kind):
    """None in 200 series where the bar of 10 % is far from the noise; a few per cent of the series where it is not."""
    near_the_bar = {"correlated 3 %": 2, "correlated 5 %": 6, "jitter 10 %": 4, "two cores": 8}
    assert false_alarms(kind, range(200)) <= near_the_bar.get(kind, 0)


@pytest.mark.parametrize("kind", ["white 3 %", "spikes", "every tenth slow", "warm-up"])
@pytest.mark.parametrize("magnitude", [0.12, 0.20, 0.40])
def test_onset_and_relief_are_found_once_and_soon(kind, magnitude):
    """20 % within 12 iterations in the median, 12 % within 24 each time; the relief as well."""
    onset_delays, relief_delays = [], []
    for seed in tries(3, deep=5):
        log_times, onset, relief = with_slowdown(kind, seed, magnitude)
        found = changes_of(log_times)
        assert [change.kind for change in found] == ["onset", "relief"]
        assert abs(found[0].step - onset) <= 3
        assert found[0].magnitude == pytest.approx(magnitude, abs=0.04)
        onset_delays.append(found[0].detected_step - onset)
        relief_delays.append(found[1].detected_step - relief)
    assert max(onset_delays + relief_delays) <= 24
    if magnitude >= 0.2:
        assert np.median(onset_delays) <= 12
        assert np.median(relief_delays) <= 12


def test_a_40_percent_slowdown_on_a_noisy_machine_is_mostly_found_soon_and_always_relieved():
    """Young references full of bursts look like correlated noise: a few of these are found late, or not at all."""
    delays, relief_delays = [], []
    for seed in range(40):
        log_times, onset, relief = with_slowdown("two cores", seed, 0.40)
        found = changes_of(log_times)
        if not found:
            continue
        kinds = [change.kind for change in found]
        assert (kinds[0], kinds[-1], kinds.count("onset")) == ("onset", "relief", 1)
        assert found[0].detected_step >= onset
        delays.append(found[0].detected_step - onset)
        relief_delays.append(found[-1].detected_step - relief)
    assert max(relief_delays) <= 64
    assert np.median(relief_delays) <= 12
    assert sum(delay <= 20 for delay in delays) >= 36
    assert np.median(delays) <= 12


@pytest.mark.parametrize("n_slow", [1, 3, 6])
@pytest.mark.parametrize("factor", [1.4, 2.0, 50.0])
def test_a_burst_is_no_onset(n_slow, factor):
    for seed in tries(1, deep=3):
        log_times = np.random.default_rng(seed).normal(0.0, 0.03, 150)
        log_times[90 : 90 + n_slow] += math.log(factor)
        assert changes_of(log_times) == []


def test_what_stays_below_the_bar_is_jitter():
    log_times = np.random.default_rng(1).normal(0.0, 0.005, 400)
    log_times[200:] += math.log(1.07)
    assert changes_of(log_times) == []


@pytest.mark.parametrize(("iterations", "is_found"), [(FEWEST_ITERATIONS, True), (FEWEST_ITERATIONS - 1, False)])
def test_the_fewest_iterations_that_people_are_told_are_the_fewest_in_which_a_slowdown_is_found(iterations, is_found):
    def finds(onset):
        log_times = np.random.default_rng(0).normal(0.0, 0.01, iterations)
        log_times[onset:] += math.log(2.0)
        return bool(changes_of(log_times))

    assert any(map(finds, range(iterations))) == is_found


@pytest.mark.parametrize("seed", range(5))
def test_in_a_young_job_with_many_pauses_a_far_slower_level_is_found(seed):
    """Of few rows they look like noise that is strongly correlated; no window of them was ever as slow."""
    rng = np.random.default_rng(seed)
    values = correlated(rng, 100, 0.01, 0.9) + np.where(rng.random(100) < 0.22, math.log(1.2), 0.0)
    values[50:] += math.log(1.42)
    changes = changes_of(values)
    assert [change.kind for change in changes] == ["onset"]
    assert 49 <= changes[0].step <= 51
    assert changes[0].detected_step <= 70


def test_a_slow_level_never_becomes_normal_by_lasting():
    log_times = np.random.default_rng(2).normal(0.0, 0.02, 6000)
    log_times[200:5800] += math.log(1.3)
    detector = ChangepointDetector()
    found = changes_of(log_times, detector)
    assert [change.kind for change in found] == ["onset", "relief"]
    assert detector.baseline_s == pytest.approx(BASE_S, rel=0.02)


def test_a_return_in_small_steps_is_a_relief_all_the_same():
    log_times = np.random.default_rng(8).normal(0.0, 0.02, 900)
    log_times[200:400] += math.log(1.3)
    log_times[400:] += np.maximum(math.log(1.3) - 0.0008 * np.arange(500), 0.0)
    found = changes_of(log_times)
    assert found[0].kind == "onset"
    assert found[-1].kind == "relief"
    assert [change.kind for change in found].count("relief") == 1


def test_worsening_and_easing_are_told_against_the_healthy_baseline():
    log_times = np.random.default_rng(3).normal(0.0, 0.02, 500)
    for start, factor in ((100, 1.2), (200, 1.6), (300, 1.25), (400, 1.0)):
        log_times[start : start + 100] += math.log(factor)
    found = changes_of(log_times)
    assert [change.kind for change in found] == ["onset", "worse", "eased", "relief"]
    assert [change.magnitude for change in found] == pytest.approx([0.2, 0.6, 0.25, 0.0], abs=0.03)
    assert found[1].before_s == pytest.approx(BASE_S * 1.2, rel=0.02)
    assert all(change.baseline_s == pytest.approx(BASE_S, rel=0.02) for change in found)


def test_a_lasting_speedup_is_no_slowdown_and_becomes_the_baseline():
    log_times = np.random.default_rng(4).normal(0.0, 0.02, 500)
    log_times[200:] += math.log(0.77)
    log_times[350:] += math.log(1.3)
    detector = ChangepointDetector()
    found = changes_of(log_times, detector)
    assert [change.kind for change in found] == ["speedup", "onset"]
    assert detector.baseline_s == pytest.approx(BASE_S * 0.77, rel=0.02)


def test_a_short_fast_stretch_leaves_the_baseline():
    log_times = np.random.default_rng(5).normal(0.0, 0.02, 400)
    log_times[200:235] += math.log(0.7)
    assert changes_of(log_times) == []


def test_rebaseline_takes_the_slow_level_for_normal():
    log_times = np.random.default_rng(6).normal(0.0, 0.02, 300)
    log_times[100:] += math.log(1.5)
    detector = ChangepointDetector()
    assert [change.kind for change in changes_of(log_times[:150], detector)] == ["onset"]
    detector.rebaseline()
    assert detector.state == "healthy"
    assert changes_of(log_times[150:], detector) == []
    assert detector.baseline_s == pytest.approx(BASE_S * 1.5, rel=0.02)


@pytest.mark.parametrize("seed", range(5))
def test_a_level_of_four_rows_may_be_the_new_baseline(seed):
    """Rows of five steps: drift.py says a large change after four or five of them."""
    rng = np.random.default_rng(seed)
    detector = ChangepointDetector()
    rows = np.concatenate([rng.normal(0.0, 0.05, 400), rng.normal(0.8, 0.05, 300)])
    kinds = []
    for row, x in enumerate(rows):
        change = detector.update(5 * row, row, math.exp(x), 5)
        if change is not None:
            kinds.append(change.kind)
            detector.rebaseline()
            assert detector.baseline_s == pytest.approx(math.exp(0.8), rel=0.1)
    assert kinds == ["onset"]
    assert detector.baseline_s == pytest.approx(math.exp(0.8), rel=0.03)


def test_a_long_warm_up_is_learnt_through():
    log_times = np.random.default_rng(7).normal(0.0, 0.02, 300)
    log_times[:40] += np.linspace(math.log(3.0), 0.0, 40)
    assert [change.kind for change in changes_of(log_times) if change.kind != "speedup"] == []


def test_a_constant_series_is_healthy_and_a_step_in_it_is_seen():
    detector = ChangepointDetector()
    assert changes_of(np.zeros(20), detector) == []
    assert (detector.state, detector.baseline_s) == ("learning", None)
    assert changes_of(np.zeros(300), detector) == []
    assert detector.state == "healthy"
    assert [change.kind for change in changes_of(np.full(30, 0.2), detector)] == ["onset"]


def test_a_prefix_gives_the_same_changes():
    log_times, _, _ = with_slowdown("two cores", 3, 0.5)
    whole = changes_of(log_times)
    for end in (150, 220, 280):
        assert changes_of(log_times[:end]) == [change for change in whole if change.detected_step < end]


def test_its_state_is_bounded():
    detector = ChangepointDetector()
    sizes = {len(pickle.dumps(detector))}
    for part in range(4):
        changes_of(np.random.default_rng(part).normal(0.0, 0.02, 1000), detector)
        sizes.add(len(pickle.dumps(detector)))
    assert len(sizes) == 1
    assert record("series").itemsize < 64 * 1024


def test_parameters_are_checked():
    for wrong in (0.0, -0.1, 1.0, 10.0, math.nan):
        with pytest.raises(ValueError, match="min_change"):
            ChangepointDetector(min_change=wrong)
        with pytest.raises(ValueError, match="min_change"):
            ChangepointDetectors(3, min_change=wrong)
    with pytest.raises(ValueError, match="n >= 0"):
        ChangepointDetectors(-1)
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        ChangepointDetectors(3).update(0, 0, np.ones(4))


@examples(25)
@given(st.integers(0, 2**31), st.floats(1e-6, 1e5), st.floats(0.0, 0.03))
def test_scale_does_not_matter_and_onset_and_relief_alternate(seed, scale_s, sigma):
    rng = np.random.default_rng(seed)
    log_times = rng.normal(0.0, sigma, 200)
    log_times[100:150] += math.log(1.5)
    detector = ChangepointDetector()
    found = [detector.update(i, i, scale_s * math.exp(x)) for i, x in enumerate(log_times)]
    assert [change.kind for change in found if change is not None] == ["onset", "relief"]


@examples(25)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=200))
def test_any_numbers_are_survived(values):
    detector = ChangepointDetector()
    for step, value in enumerate(values):
        detector.update(step, 0, value)
    assert detector.skipped == sum(not (math.isfinite(v) and v > 0.0) for v in values)
