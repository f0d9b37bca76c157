"""What earlier runs did: read off their logs, and what counts as the same change."""

from __future__ import annotations

import numpy as np
import pytest

from pacehound.model.events import EarlierRun, LevelChange
from pacehound.model.step_log import StepLog
from simulator.suites.step_times import POPULATIONS
from streams.level.earlier_runs import earlier_run, planned_by


def a_log(times_s, **more):
    n = len(times_s)
    columns = {"step": np.arange(n), "n_steps": np.ones(n, np.int64), "time_ns": np.zeros(n, np.int64)}
    return StepLog(path="earlier.log", format="csv", step_time_s=np.asarray(times_s), **(columns | more))


def jittered(n, seed=1):
    return 0.1 * np.exp(np.random.default_rng(seed).normal(0.0, 0.01, n))


def run(*changes, name="monday", last_step=5000):
    return EarlierRun(
        name=name, last_step=last_step, changes=tuple(LevelChange(step=s, log_ratio=r) for s, r in changes)
    )


def test_every_change_of_level_is_read_each_against_the_one_before():
    times_s = jittered(1600)
    times_s[400:] *= 1.5
    times_s[800:] *= 1.3
    times_s[1200:] *= 0.6
    read = earlier_run(a_log(times_s))
    assert (read.name, read.last_step) == ("earlier.log", 1599)
    assert [change.step for change in read.changes] == pytest.approx([400, 800, 1200], abs=4)
    assert np.exp([change.log_ratio for change in read.changes]) == pytest.approx([1.5, 1.3, 0.6], rel=0.03)


def test_announced_pauses_of_an_earlier_run_are_left_out():
    times_s = jittered(600)
    times_s[300:320] *= 3.0
    planned = dict.fromkeys(range(300, 320), "evaluation")
    assert earlier_run(a_log(times_s, planned=planned)).changes == ()
    assert earlier_run(a_log(times_s)).changes != ()


def test_a_log_without_rows_says_nothing():
    assert earlier_run(a_log([])) == EarlierRun(name="earlier.log", last_step=-1, changes=())


@pytest.mark.parametrize(
    ("step", "log_ratio", "is_planned"),
    [
        (1000, 0.5, True),
        (1020, 0.5, True),
        (980, 0.5, True),
        (1030, 0.5, False),
        (1000, 0.62, True),
        (1000, 0.75, False),
        (1000, -0.5, False),
    ],
)
def test_the_same_change_is_near_in_step_and_in_size(step, log_ratio, is_planned):
    assert planned_by([run((1000, 0.5))], step, log_ratio) == (("monday",) if is_planned else ())


def test_late_in_a_run_2_percent_of_the_steps_are_near():
    assert planned_by([run((4000, 0.5))], 4075, 0.5)
    assert not planned_by([run((4000, 0.5))], 4100, 0.5)


def test_half_of_the_runs_that_came_so_far_must_have_had_it():
    had, had_not = run((1000, 0.5)), run(name="tuesday")
    short = run(name="wednesday", last_step=500)
    assert planned_by([had, had_not], 1000, 0.5) == ("monday",)
    assert planned_by([had, had_not, had_not], 1000, 0.5) == ()
    assert planned_by([had, had_not, short, short], 1000, 0.5) == ("monday",)
    assert planned_by([short], 1000, 0.5) == planned_by([], 1000, 0.5) == ()


def test_a_schedule_of_a_synthetic_job_is_read_off_its_earlier_run():
    for series in POPULATIONS["schedule"].series(2, 3):
        read = earlier_run(series.earlier[0])
        for change in series.truth.changes:
            assert planned_by([read], change.onset, np.log1p(change.magnitude))
