"""How long fail-slows last, those that were cut off counted as such."""

from __future__ import annotations

import numpy as np
import pytest

from actuators.mitigation.survival import Past, kaplan_meier


def test_the_curve_is_that_of_the_textbook():
    """Kaplan and Meier's own arithmetic: 4 of 5 at risk outlast the first end, then 2 of 3, then none of one."""
    past = [
        Past(duration_s=1),
        Past(duration_s=2, has_ended=False),
        Past(duration_s=3),
        Past(duration_s=4, has_ended=False),
    ]
    curve = kaplan_meier([*past, Past(duration_s=5)])
    assert curve is not None
    assert (curve.n_ended, curve.n_cut_off) == (3, 2)
    assert curve.longer_than([0.5, 1, 2.9, 3, 4.9, 5]) == pytest.approx([1, 4 / 5, 4 / 5, 8 / 15, 8 / 15, 0])


def test_those_that_were_cut_off_do_not_make_fail_slows_look_short():
    rng = np.random.default_rng(0)
    truth, seen_for = rng.exponential(1000.0, 4000), rng.uniform(0, 2000.0, 4000)
    past = [Past(duration_s=min(d, s), has_ended=bool(d <= s)) for d, s in zip(truth, seen_for, strict=True)]
    curve = kaplan_meier(past)
    assert curve is not None
    assert curve.longer_than(1000.0) == pytest.approx(np.exp(-1), abs=0.03)
    forgotten = kaplan_meier([one for one in past if one.has_ended])
    assert forgotten is not None
    assert forgotten.longer_than(1000.0) < 0.25
    assert curve.mean_until(np.inf) == pytest.approx(1000.0, rel=0.06)


def test_the_mean_until_a_time_is_the_area_below_the_curve():
    rng = np.random.default_rng(1)
    past = [
        Past(duration_s=d, has_ended=bool(e))
        for d, e in zip(rng.lognormal(3, 1, 60), rng.random(60) < 0.7, strict=True)
    ]
    curve = kaplan_meier(past)
    assert curve is not None
    until = float(curve.ends_s[-1]) * 1.5
    grid = np.linspace(0, until, 200_001)
    area = float(np.mean(curve.longer_than(grid[:-1] + np.diff(grid) / 2)) * until)
    assert curve.mean_until(until) == pytest.approx(area, rel=1e-4)


def test_without_an_end_nothing_is_known():
    assert kaplan_meier([]) is None
    assert kaplan_meier([Past(duration_s=9, has_ended=False)]) is None
