"""Bursts: counted where they come without a rhythm, planned where they recur, no news where they always were."""

from __future__ import annotations

import numpy as np
import pytest

from streams.level.bursts import BurstWatch


def told(slow, n=2000, excess=0.7, base=None):
    watch = BurstWatch()
    rows = np.zeros(n) if base is None else base.copy()
    rows[sorted(slow)] += excess
    said = [watch.update(row, row + 1000, row, float(x)) for row, x in enumerate(rows)]
    return [change for change in said if change is not None], watch


def irregular(first, last, n, seed=1):
    return sorted(np.random.default_rng(seed).choice(np.arange(first, last, 5), n, replace=False).tolist())


def test_five_bursts_within_256_rows_begin_it_and_it_ends_when_they_have_passed():
    slow = [400, 431, 477, 490, 540, 551, 590]
    (begins, ends), _ = told(slow)
    assert (begins.kind, begins.first.step, begins.last.step, begins.n) == ("begins", 1400, 1540, 5)
    assert begins.loss == pytest.approx(5 * 1.0 / 256, rel=0.02)
    assert (ends.kind, ends.first.step, ends.last.step) == ("ends", 1400, 1590)


def test_four_bursts_are_no_news():
    assert told([400, 431, 477, 490])[0] == []


def test_bursts_that_cost_little_are_no_news():
    assert told([400, 431, 477, 490, 540], excess=0.16)[0] == []


def test_rows_next_to_each_other_are_one_burst():
    slow = {400 + row for row in range(40) if row % 4 != 3}
    assert told(slow)[0] == []


@pytest.mark.parametrize("period", [20, 97, 250])
def test_bursts_that_recur_are_planned(period):
    slow = set(range(300, 2400, period))
    said, watch = told(slow, n=2500)
    assert watch.recurrent[0] == period
    assert [change.kind for change in said] in ([], ["begins", "ends"])
    if said:
        assert said[1].period == period  # it took them for intermittent before it had seen four


@pytest.mark.parametrize("period", [4, 5, 6, 7])
@pytest.mark.parametrize("first", [24, 300])
def test_a_rhythm_of_few_steps_is_one_before_it_can_be_learnt_as_a_pattern(period, first):
    """A rank that logs every few steps, seen from the end of the warm-up on."""
    said, _ = told(range(first, first + 120, period), n=first + 200)
    assert said == []


@pytest.mark.parametrize("seed", range(20))
def test_frequent_bursts_without_a_rhythm_are_news(seed):
    gaps = np.random.default_rng(seed).integers(4, 13, 40)
    said, _ = told(300 + np.cumsum(gaps))
    assert [change.kind for change in said] == ["begins", "ends"]


def test_an_evaluation_that_comes_a_row_late_still_recurs():
    slow = [300, 551, 800, 1051, 1300, 1549, 1800]
    said, watch = told(slow)
    assert said == []
    assert len(watch.recurrent) >= 1
    assert all(abs(period - 250) <= 3 for period in watch.recurrent)


def test_a_job_that_always_had_its_bursts_has_no_news():
    """Eighty in four thousand rows are usual here: the Poisson rule."""
    said, _ = told(irregular(1200, 4000, 80), n=4000)
    assert [change for change in said if change.first.row > 2600] == []


def test_many_more_bursts_than_usual_are_news():
    more = [3000, 3011, 3035, 3072, 3131, 3150, 3196, 3229]
    (begins, *_), _ = told([1430, 2105, 2618, *more], n=4000)
    assert (begins.kind, begins.first.row) == ("begins", 3000)
    assert begins.last.row <= 3150


def test_noise_is_no_burst():
    """Eight sigmas of what the rows scatter: 30 % of excess at 10 % of noise are no burst."""
    base = np.random.default_rng(3).normal(0.0, 0.1, 3000)
    assert told([], n=3000, base=base)[0] == []
    slow = irregular(1000, 1250, 12)
    assert told(slow, n=3000, excess=0.3, base=base)[0] == []


def test_its_memory_is_bounded():
    watch = BurstWatch()
    for row in range(20_000):
        watch.update(row, row, 0, 2.0 if row % 9 == 0 else 0.0)
    assert len(watch._bursts) <= 128
    assert len(watch._excesses) <= 64
    assert len(watch._periods) <= 200
