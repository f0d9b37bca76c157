"""The detectors that ours are compared with find a plain slowdown, or the comparison would be no comparison."""

import numpy as np
import pytest

from bench.baselines import PlainBocd, SlidingWindow
from simulator.suites.step_times import POPULATIONS
from streams.level.step_series import follow
from streams.level.step_watch import StepTime
from streams.scoring.evaluate import Score, final_versions, score


@pytest.mark.parametrize("baseline", [SlidingWindow, PlainBocd])
def test_it_finds_slowdowns_of_20_percent_and_their_relief(baseline):
    scores = [
        score(follow(series.log, baseline(job=series.name))[0], series.truth)
        for series in POPULATIONS["delay_20"].series(seed=5, count=12)
    ]
    total = Score.total(scores)
    assert total.recall == 1.0
    assert total.delay(0.5) <= 10
    assert len(total.relief_errors) == 12
    assert np.median(total.relief_errors) <= 5


@pytest.mark.parametrize("baseline", [SlidingWindow, PlainBocd])
def test_what_is_no_time_is_passed_over(baseline):
    detector = baseline(job="job")
    values = [0.1] * 50 + [float("nan"), 0.0, -1.0, float("inf")] + [0.1] * 50
    rows = [StepTime(step=step, time_ns=0, step_time_s=value) for step, value in enumerate(values)]
    assert [finding for row in rows for finding in detector.update(row)] == []


def test_bocd_believes_a_single_spike_and_takes_it_back():
    rng = np.random.default_rng(0)
    times = 0.1 * np.exp(0.01 * rng.standard_normal(200))
    times[100] *= 2.0
    detector = PlainBocd(job="job")
    rows = [StepTime(step=step, time_ns=0, step_time_s=value) for step, value in enumerate(times.tolist())]
    findings = final_versions([finding for row in rows for finding in detector.update(row)])
    assert [finding.onset.step for finding in findings] == [100]
    assert findings[0].relief.step - 100 <= 5


def test_the_sliding_window_forgets_a_long_fault():
    times = [0.1] * 600 + [0.13] * 1_000
    detector = SlidingWindow(job="job")
    rows = [StepTime(step=step, time_ns=0, step_time_s=value) for step, value in enumerate(times)]
    (finding,) = final_versions([finding for row in rows for finding in detector.update(row)])
    assert 600 <= finding.onset.step <= 605
    assert finding.relief is not None
